//! Propagates dependencies: objects that workloads reference, and objects that select their pods.
//!
//! ```text
//!   Deployment web ──references──► ConfigMap, Secret, ServiceAccount, claim   to every target of web
//!        pods ◄──selects── Service ◄──references── Ingress ──references──► Secret   to every target of the pods
//! ```
//!
//! These have no placement of their own: they are on the targets of the workloads that need them, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::fleet::{Division, Role, Target};
use api::meta::selector::LabelSelector;
use api::names::{PROJECTED, SCALED_DOWNSTREAM, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::CallError;
use serde_json::Value;

use crate::controller::{Splitter, WorkItem, lock};
use crate::division::{self, Dividend, Part, Plan, Rule, limits};
use crate::execute::aggregate;
use crate::execute::events;
use crate::execute::propagate::{self, SendResult};
use crate::placement::context::table;
use crate::placement::targets::Pick;
use crate::reconcile::PREREQUISITE_REQUEUE;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};
use crate::transform::classes;
use crate::transform::references::{self, DependencyRef};
use crate::transform::{self, Destination, Transformed};

/// The targets where a dependency is needed, by cluster. The share is the number of pods that need it; of several roles,
/// Steady wins over Arriving and Arriving over Leaving.
pub(crate) type TargetsByCluster = BTreeMap<String, Target>;

/// Requeue delay while workloads still run beside a copy on a physical cluster that is no longer the nearest of its
/// name.
const STILL_USED_REQUEUE: Duration = Duration::from_secs(1);

/// Reconciles a dependency.
pub(crate) async fn reconcile(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> Result<Outcome, CallError> {
    // A projection is not propagated.
    if object["metadata"]["labels"][PROJECTED] == TRUE {
        return Ok(Outcome::Done);
    }
    if watched.kind.name == "HorizontalPodAutoscaler" {
        enqueue_scale_target(splitter, subject, object);
    }
    let copies = mailbox_objects::list_current(&splitter.caches, watched, subject, object);
    // Without physical clusters, a logical cluster only stores objects.
    if splitter.visible_from(subject.cluster()).is_empty() && copies.iter().all(|copy| copy.object.is_none())
    {
        return Ok(Outcome::Done);
    }
    let mut places = places(splitter, watched, subject, object, 0);
    let plan = planned(watched, subject, object, &places, &copies);
    // A claim that no workload needs keeps its copy, and its status is aggregated too.
    for (cluster, _) in &plan.parts {
        places.entry(cluster.clone()).or_insert_with(|| steady(cluster));
    }
    let mut sent = send_parts(splitter, watched, subject, object, &plan, &copies).await?;
    let is_needed = |copy: &MailboxObject| plan.parts.iter().any(|(cluster, _)| copy.is_at(cluster));
    let unneeded: Vec<&MailboxObject> =
        copies.iter().filter(|copy| copy.object.is_some() && !is_needed(copy)).collect();
    if !unneeded.is_empty() && !splitter.is_indexed(subject.cluster(), &subject.key.namespace) {
        return Ok(Outcome::RequeueAfter(PREREQUISITE_REQUEUE));
    }
    let (used, unused): (Vec<&MailboxObject>, Vec<&MailboxObject>) =
        unneeded.into_iter().partition(|copy| !copy.is_nearest && runs_work(splitter, copy));
    for copy in unused {
        sent.wrote |=
            propagate::delete(splitter, watched, subject, copy, "no workload there needs it").await?;
    }
    if sent.wrote {
        enqueue_dependencies(splitter, subject, object);
    }
    aggregate::aggregate_dependency(splitter, watched, subject, object, &copies, &places).await?;
    Ok(match used.is_empty() {
        _ if sent.unfinished => Outcome::Failed,
        true => Outcome::Done,
        false => Outcome::RequeueAfter(STILL_USED_REQUEUE),
    })
}

/// Whether sending the parts of a dependency wrote anything, and whether some of them have to be retried.
#[derive(Default)]
struct SentParts {
    wrote: bool,
    unfinished: bool,
}

/// Sends every part of the plan to the mailbox of its cluster, and reports to the user which parts cannot be sent.
async fn send_parts(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    plan: &Plan,
    copies: &[MailboxObject],
) -> Result<SentParts, CallError> {
    let overrides = splitter.caches.list_own(&splitter.caches.config.overrides, subject.cluster());
    let namespace = splitter.caches.namespace(subject.cluster(), &subject.key.namespace);
    let mut sent = SentParts::default();
    for (cluster, part) in &plan.parts {
        let copy = copies.iter().find(|copy| copy.is_at(cluster));
        let Some(copy) = copy.filter(|copy| !copy.is_being_deleted()) else { continue };
        let destination = Destination {
            logical_cluster: &subject.cluster().to_string(),
            cluster: &copy.member.object,
            overrides: &overrides,
            namespace_labels: &namespace.labels,
            api_access: None,
        };
        let problem = match transform::transform(object, Some(part), &destination) {
            Ok(Transformed::Object(_))
                if copy.object.is_none() && splitter.is_namespace_terminating(copy) =>
            {
                sent.unfinished = true;
                None
            }
            Ok(Transformed::Object(wanted)) => {
                send_part(splitter, watched, subject, object, copy, wanted, &mut sent).await?
            }
            Ok(Transformed::NotPropagated(_)) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            events::record_send_failure(splitter, subject, object, &format!("{cluster}: {problem}")).await?;
        }
    }
    Ok(sent)
}

/// Sends one part. Returns what a user can do something about, if the mailbox or the physical cluster does not take it.
async fn send_part(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    copy: &MailboxObject,
    mut wanted: Value,
    sent: &mut SentParts,
) -> Result<Option<String>, CallError> {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
    wanted["metadata"]["annotations"][api::names::SOURCE_GENERATION] = generation.to_string().into();
    let missing = classes::missing(&wanted, &copy.member.object);
    if copy.object.is_none() && !missing.is_empty() {
        let missing = classes::told(&missing, copy.name());
        events::record_missing_class(splitter, subject, object, &missing).await?;
    }
    match propagate::write_object(splitter, watched, subject, copy, wanted).await {
        Err(error) if propagate::is_refused(&error) => {
            sent.unfinished = true;
            Ok(Some(error.to_string()))
        }
        result => match result? {
            SendResult::Unchanged => Ok(None),
            SendResult::Written => {
                sent.wrote = true;
                Ok(None)
            }
            SendResult::Denied(why) => Ok(Some(why.told(copy.name()))),
        },
    }
}

/// Whether workloads that may need a copy are in the same namespace of the mailbox.
fn runs_work(splitter: &Splitter, copy: &MailboxObject) -> bool {
    let works = |watched: &WatchedKind| matches!(watched.class, KindClass::Workload | KindClass::Custom);
    splitter.caches.watched_kinds().iter().any(|watched| {
        works(watched) && !watched.view.keys_within(copy.mailbox, Some(&copy.namespace)).is_empty()
    })
}

/// Queues the scale target of an autoscaler if its copies do not have the autoscaling annotation yet.
fn enqueue_scale_target(splitter: &Splitter, subject: &ObjectRef, autoscaler: &Value) {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let Some(scaled) = splitter.caches.by_group_kind(group, text("kind")) else { return };
    let its = ObjectRef {
        kind: scaled.name.clone(),
        key: Key { name: text("name").to_owned(), ..subject.key.clone() },
    };
    let copies = mailbox_objects::list(&splitter.caches, &scaled, &its);
    let is_told = |copy: &MailboxObject| {
        copy.object.as_ref().is_none_or(|copy| !copy["metadata"]["annotations"][SCALED_DOWNSTREAM].is_null())
    };
    if !copies.iter().all(is_told) {
        splitter.queue.add(WorkItem::Object(its));
    }
}

/// Queues the dependencies of a dependency.
fn enqueue_dependencies(splitter: &Splitter, subject: &ObjectRef, object: &Value) {
    for need in references::dependencies(object) {
        enqueue_dependency(splitter, subject, &need);
    }
    if object["kind"] == "Service" {
        splitter.enqueue_kind_in_namespace(
            "ingresses.networking.k8s.io",
            subject.cluster(),
            &subject.key.namespace,
        );
    }
}

/// Queues an object that another one references.
pub(crate) fn enqueue_dependency(splitter: &Splitter, of: &ObjectRef, need: &DependencyRef) {
    if let Some(watched) = splitter.caches.by_group_kind("", need.kind) {
        let key = Key { name: need.name.clone(), ..of.key.clone() };
        splitter.queue.add(WorkItem::Object(ObjectRef { kind: watched.name.clone(), key }));
    }
}

/// Chains of references are short: a Secret of an Ingress for a Service.
const DEPTH_MAX: usize = 3;

fn places(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    depth: usize,
) -> TargetsByCluster {
    let mut places = TargetsByCluster::new();
    if depth > DEPTH_MAX {
        return places;
    }
    {
        let placement_index = lock(&splitter.placement_index);
        for (_, entry) in placement_index.within(subject.cluster(), &subject.key.namespace) {
            if concerns(watched, object, entry) {
                match watched.kind.name.as_str() {
                    "PodDisruptionBudget" => entry.counted().for_each(|target| join(&mut places, &target)),
                    _ => entry.targets.iter().for_each(|target| join(&mut places, target)),
                }
            }
        }
    }
    let namespace = &subject.key.namespace;
    let through =
        |kind: &str, group: &str, is_user: &dyn Fn(&Value) -> bool, places: &mut TargetsByCluster| {
            let Some(users) = splitter.caches.by_group_kind(group, kind) else { return };
            for key in users.view.keys_within(subject.cluster(), Some(namespace)) {
                let Some(user) = users.get(&key).filter(is_user) else { continue };
                let its = ObjectRef { kind: users.name.clone(), key };
                let found = self::places(splitter, &users, &its, &user, depth + 1);
                found.values().for_each(|target| join(places, target));
            }
        };
    let needs = |user: &Value, kind: &str, name: &str| {
        references::dependencies(user).iter().any(|need| need.kind == kind && need.name == name)
    };
    let name = &subject.key.name;
    match watched.kind.name.as_str() {
        "Secret" => {
            through("ServiceAccount", "", &|user| needs(user, "Secret", name), &mut places);
            through("Ingress", "networking.k8s.io", &|user| needs(user, "Secret", name), &mut places);
        }
        "Ingress" => {
            let named = references::dependencies(object);
            let is_named = |service: &Value| {
                named.iter().any(|need| need.kind == "Service" && service["metadata"]["name"] == *need.name)
            };
            through("Service", "", &is_named, &mut places);
        }
        _ => {}
    }
    places
}

fn join(places: &mut TargetsByCluster, target: &Target) {
    let firmness = |role: Role| match role {
        Role::Steady => 0,
        Role::Arriving => 1,
        Role::Leaving => 2,
    };
    match places.get_mut(&target.cluster) {
        Some(known) => {
            known.share = known.share.zip(target.share).map(|(known, more)| known + more);
            if firmness(target.role) < firmness(known.role) {
                known.role = target.role;
            }
        }
        None => drop(places.insert(target.cluster.clone(), target.clone())),
    }
}

/// Whether an object references the dependency, or the dependency selects its pods.
fn concerns(watched: &WatchedKind, object: &Value, entry: &PlacementEntry) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let named = entry.dependencies.iter().any(|need| need.kind == watched.kind.name && need.name == name);
    if named && watched.kind.group.is_empty() {
        return true;
    }
    let selects = |selector: &Value| {
        let parts = LabelSelector::from_value(selector).zip(entry.pod_labels.as_ref());
        parts.is_some_and(|(selector, labels)| selector.matches(|key| labels.get(key).map(String::as_str)))
    };
    match watched.kind.name.as_str() {
        "Service" => {
            let selector = table(&object["spec"]["selector"]);
            let has = |labels: &crate::placement::policy::Labels| {
                selector.iter().all(|(name, value)| labels.get(name) == Some(value))
            };
            !selector.is_empty() && entry.pod_labels.as_ref().is_some_and(has)
        }
        "NetworkPolicy" => selects(&object["spec"]["podSelector"]),
        "PodDisruptionBudget" => selects(&object["spec"]["selector"]),
        "HorizontalPodAutoscaler" => scales(object, &entry.group, &entry.kind, &entry.name),
        _ => false,
    }
}

/// Whether an object is the scale target of an autoscaler.
fn scales(autoscaler: &Value, group: &str, kind: &str, name: &str) -> bool {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let version = of["apiVersion"].as_str().unwrap_or_default();
    let its_group = version.rsplit_once('/').map_or("", |(group, _)| group);
    of["kind"] == *kind && its_group == group && of["name"] == *name
}

/// The claims an object mounts, each with the physical clusters it was sent to.
pub(crate) fn claims(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
) -> BTreeMap<String, BTreeSet<String>> {
    let Some(claims) = splitter.caches.by_group_kind("", references::CLAIM) else { return BTreeMap::new() };
    let there = |name: &String| {
        let key = Key { name: name.clone(), ..subject.key.clone() };
        let copies =
            mailbox_objects::list(&splitter.caches, &claims, &ObjectRef { kind: claims.name.clone(), key });
        let present = copies.iter().filter(|copy| copy.is_nearest && copy.object.is_some());
        present.map(|copy| copy.name().to_owned()).collect()
    };
    references::claims(object).into_iter().map(|name| (name.clone(), there(&name))).collect()
}

/// `maxReplicas` of the autoscaler of an object. None if it has none.
pub(crate) fn scaled_to(splitter: &Splitter, subject: &ObjectRef, object: &Value) -> Option<u32> {
    let autoscalers = splitter.caches.by_group_kind("autoscaling", "HorizontalPodAutoscaler")?;
    let (group, kind) = transform::group_kind(object);
    let keys = autoscalers.view.keys_within(subject.cluster(), Some(&subject.key.namespace));
    keys.iter()
        .filter_map(|key| autoscalers.get(key))
        .find(|autoscaler| scales(autoscaler, group, kind, &subject.key.name))
        .map(|autoscaler| division::number(&autoscaler, "/spec/maxReplicas", 1))
}

fn steady(cluster: &str) -> Target {
    Target { cluster: cluster.to_owned(), role: Role::Steady, share: None }
}

/// Plans the part of a dependency for every target.
fn planned(
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    places: &TargetsByCluster,
    copies: &[MailboxObject],
) -> Plan {
    let key = format!("{}/{}", subject.key.namespace, subject.key.name);
    let pods = |target: &Target| target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or(1);
    // What selects pods of an undivided workload is not divided either.
    let division = match places.values().all(|target| target.share.is_some()) {
        true => Division::Divide,
        false => Division::Duplicate,
    };
    let pick = |target: &Target| Pick {
        cluster: target.cluster.clone(),
        tier: 0,
        weight: u64::from(pods(target).max(1)),
        min: 0,
        max: None,
        capacity: None,
        limit: None,
        held: None,
    };
    let picks: Vec<Pick> = places.values().map(pick).collect();
    let rule = division::rule(&watched.kind.group, &watched.kind.name, false);
    let recorded: Vec<Target> = copies
        .iter()
        .filter(|copy| copy.is_nearest && copy.object.is_some())
        .map(|copy| steady(copy.name()))
        .collect();
    let replicas_at = division::REPLICAS;
    let dividend = Dividend { object, rule, replicas_at, division, key: &key, scaled: None };
    match rule {
        Rule::Autoscaler if places.values().any(|target| target.role != Role::Steady) => {
            let stays = |pick: &Pick| places[&pick.cluster].role != Role::Leaving;
            let staying: Vec<Pick> = picks.into_iter().filter(stays).collect();
            let is_place = |copy: &&MailboxObject| copy.is_nearest && places.contains_key(copy.name());
            let present: Vec<(&str, &Value)> = copies
                .iter()
                .filter(is_place)
                .filter_map(|copy| Some((copy.name(), copy.object.as_ref()?)))
                .collect();
            limits::kept(division::plan(&dividend, &staying, &recorded), &present)
        }
        Rule::Budget if places.len() > 1 && division == Division::Divide => {
            let pods = places.iter().map(|(cluster, target)| (cluster.clone(), pods(target))).collect();
            limits::budget(object, &key, &pods)
        }
        // A claim keeps its target even if no workload needs it: data is deleted only when the user deletes the claim.
        Rule::One if !recorded.is_empty() => {
            let kept = |target: Target| (target.cluster, Part::default());
            Plan { parts: recorded.into_iter().map(kept).collect(), ..Plan::default() }
        }
        _ => division::plan(&dividend, &picks, &recorded),
    }
}

impl Splitter {
    /// Whether all workloads of a namespace that could need a dependency are in the placement index.
    pub(crate) fn is_indexed(&self, cluster: api::cluster::Id, namespace: &str) -> bool {
        let works = |watched: &WatchedKind| matches!(watched.class, KindClass::Workload | KindClass::Custom);
        self.caches.watched_kinds().iter().filter(|watched| works(watched)).all(|watched| {
            watched.view.synced()
                && watched.view.keys_within(cluster, Some(namespace)).into_iter().all(|key| {
                    let subject = ObjectRef { kind: watched.name.clone(), key };
                    let known = lock(&self.placement_index).get(&subject).is_some();
                    known
                        || watched.get(&subject.key).is_none_or(|object| {
                            !crate::reconcile::has_own_placement(self, watched, &subject, &object)
                        })
                })
        })
    }

    /// Queues all objects of a kind in a namespace.
    pub(crate) fn enqueue_kind_in_namespace(&self, kind: &str, cluster: api::cluster::Id, namespace: &str) {
        let Some(watched) = self.caches.by_resource(kind) else { return };
        for key in watched.view.keys_within(cluster, Some(namespace)) {
            self.queue.add(WorkItem::Object(ObjectRef { kind: watched.name.clone(), key }));
        }
    }
}
