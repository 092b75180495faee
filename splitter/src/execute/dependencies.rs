//! Propagates dependencies: objects that workloads reference, and objects that select their pods.
//!
//! ```text
//!   Deployment web ──references──► ConfigMap, Secret, ServiceAccount, claim   to every target of web
//!        pods ◄──selects── Service ◄──references── Ingress ──references──► Secret   to every target of the pods
//! ```
//!
//! These have no placement of their own: they are on the targets of the workloads that need them, and nowhere else.

use std::collections::BTreeMap;
use std::time::Duration;

use api::fleet::{Division, Role, Target};
use api::meta::selector::LabelSelector;
use api::names::{PROJECTED, SCALED_DOWNSTREAM, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::CallError;
use serde_json::Value;

use crate::context::PREREQUISITE_REQUEUE;
use crate::context::{Splitter, WorkItem, lock};
use crate::division::pick::Pick;
use crate::division::{self, Dividend, DivisionPlan, DivisionRule, TargetPatch, limits};
use crate::execute::aggregate;
use crate::execute::propagate;
use crate::execute::{events, grants};
use crate::placement::context::table;
use crate::plan::{MailboxWrite, plan_mailbox_write};
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::related::scales;
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};
use crate::transform::classes;
use crate::transform::references::{self, DependencyRef};
use crate::transform::{self, Destination, Transformed};

/// The targets where a dependency is needed, by cluster. The share is the number of pods that need it; of several roles,
/// Steady wins over Arriving and Arriving over Leaving.
pub(crate) type TargetsByCluster = BTreeMap<String, Target>;

/// Requeue delay while workloads still use a dependency on a physical cluster that is no longer the nearest of its name.
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
    let mailbox_objects = mailbox_objects::list_current(&splitter.caches, watched, subject, object);
    // Without physical clusters, a logical cluster only stores objects.
    if splitter.visible_from(subject.cluster()).is_empty()
        && mailbox_objects.iter().all(|mailbox_object| mailbox_object.object.is_none())
    {
        return Ok(Outcome::Done);
    }
    let mut places = places(splitter, watched, subject, object, 0);
    let plan = plan_for_targets(watched, subject, object, &places, &mailbox_objects);
    // A claim that no workload needs keeps its mailbox object, and its status is aggregated too.
    for (cluster, _) in &plan.patches {
        places.entry(cluster.clone()).or_insert_with(|| steady(cluster));
    }
    let mut sent = send_to_targets(splitter, watched, subject, object, &plan, &mailbox_objects).await?;
    let is_needed = |mailbox_object: &MailboxObject| {
        plan.patches.iter().any(|(cluster, _)| mailbox_object.is_at(cluster))
    };
    let unneeded: Vec<&MailboxObject> = mailbox_objects
        .iter()
        .filter(|mailbox_object| mailbox_object.object.is_some() && !is_needed(mailbox_object))
        .collect();
    if !unneeded.is_empty() && !splitter.is_indexed(subject.cluster(), &subject.key.namespace) {
        return Ok(Outcome::RequeueAfter(PREREQUISITE_REQUEUE));
    }
    let (used, unused): (Vec<&MailboxObject>, Vec<&MailboxObject>) = unneeded
        .into_iter()
        .partition(|mailbox_object| !mailbox_object.is_nearest && runs_workloads(splitter, mailbox_object));
    for mailbox_object in unused {
        sent.wrote |=
            propagate::delete(splitter, watched, subject, mailbox_object, "no workload there needs it")
                .await?;
    }
    if sent.wrote {
        enqueue_dependencies(splitter, subject, object);
    }
    aggregate::aggregate_dependency(splitter, watched, subject, object, &mailbox_objects, &places).await?;
    Ok(match used.is_empty() {
        _ if sent.unfinished => Outcome::Failed,
        true => Outcome::Done,
        false => Outcome::RequeueAfter(STILL_USED_REQUEUE),
    })
}

/// Whether sending a dependency to its targets wrote anything, and whether some of them have to be retried.
#[derive(Default)]
struct SendSummary {
    wrote: bool,
    unfinished: bool,
}

/// Sends a dependency to the mailbox of every target of the plan, and reports to the user where it cannot be sent.
async fn send_to_targets(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    plan: &DivisionPlan,
    mailbox_objects: &[MailboxObject],
) -> Result<SendSummary, CallError> {
    let overrides = splitter.caches.list_own(&splitter.caches.config.overrides, subject.cluster());
    let namespace = splitter.caches.namespace(subject.cluster(), &subject.key.namespace);
    let members: Vec<_> = mailbox_objects
        .iter()
        .filter(|one| plan.patches.iter().any(|(cluster, _)| one.is_at(cluster)))
        .map(|one| one.member.clone())
        .collect();
    let permissions = grants::send_permissions(splitter, subject, &namespace, &members).await?;
    let mut sent = SendSummary::default();
    for (cluster, patch) in &plan.patches {
        let mailbox_object = mailbox_objects.iter().find(|mailbox_object| mailbox_object.is_at(cluster));
        let Some(mailbox_object) = mailbox_object.filter(|mailbox_object| !mailbox_object.is_being_deleted())
        else {
            continue;
        };
        let destination = Destination {
            logical_cluster: &subject.cluster().to_string(),
            cluster: &mailbox_object.member.object,
            overrides: &overrides,
            namespace_labels: &namespace.labels,
            api_access: None,
        };
        let problem = match transform::transform(object, Some(patch), &destination) {
            Ok(Transformed::Object(_))
                if mailbox_object.object.is_none() && splitter.is_namespace_terminating(mailbox_object) =>
            {
                sent.unfinished = true;
                None
            }
            Ok(Transformed::Object(mut desired)) => {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                desired["metadata"]["annotations"][api::names::SOURCE_GENERATION] =
                    generation.to_string().into();
                report_missing_class(splitter, subject, object, mailbox_object, &desired).await?;
                let write = plan_mailbox_write(&watched.kind, mailbox_object, desired, &permissions);
                send_to_target(splitter, watched, subject, mailbox_object, &write, &mut sent).await?
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

/// Reports a class that a dependency names and the physical cluster lacks, before the dependency is first sent.
async fn report_missing_class(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    mailbox_object: &MailboxObject,
    desired: &Value,
) -> Result<(), CallError> {
    let missing = classes::missing(desired, &mailbox_object.member.object);
    if mailbox_object.object.is_some() || missing.is_empty() {
        return Ok(());
    }
    let missing = classes::missing_message(&missing, mailbox_object.name());
    events::record_missing_class(splitter, subject, object, &missing).await
}

/// Sends a dependency to one target. Returns the problem if the mailbox or the physical cluster refuses it.
async fn send_to_target(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    write: &MailboxWrite,
    sent: &mut SendSummary,
) -> Result<Option<String>, CallError> {
    if let MailboxWrite::Denied(why) = write {
        return Ok(Some(why.message_with_remedy(mailbox_object.name())));
    }
    match propagate::execute_write(splitter, watched, subject, mailbox_object, write).await {
        Err(error) if propagate::is_refused(&error) => {
            sent.unfinished = true;
            Ok(Some(error.to_string()))
        }
        wrote => {
            sent.wrote |= wrote?;
            Ok(None)
        }
    }
}

/// Whether workloads that may need the object are in the same namespace of the mailbox.
fn runs_workloads(splitter: &Splitter, mailbox_object: &MailboxObject) -> bool {
    let is_workload =
        |watched: &WatchedKind| matches!(watched.class, KindClass::Workload | KindClass::Custom);
    splitter.caches.watched_kinds().iter().any(|watched| {
        is_workload(watched)
            && !watched.view.keys_within(mailbox_object.mailbox, Some(&mailbox_object.namespace)).is_empty()
    })
}

/// Queues the scale target of an autoscaler if its mailbox objects do not have the autoscaling annotation yet.
fn enqueue_scale_target(splitter: &Splitter, subject: &ObjectRef, autoscaler: &Value) {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let Some(scaled) = splitter.caches.by_group_kind(group, text("kind")) else { return };
    let object_ref = ObjectRef {
        kind: scaled.name.clone(),
        key: Key { name: text("name").to_owned(), ..subject.key.clone() },
    };
    let mailbox_objects = mailbox_objects::list(&splitter.caches, &scaled, &object_ref);
    let is_annotated = |mailbox_object: &MailboxObject| {
        mailbox_object
            .object
            .as_ref()
            .is_none_or(|object| !object["metadata"]["annotations"][SCALED_DOWNSTREAM].is_null())
    };
    if !mailbox_objects.iter().all(is_annotated) {
        splitter.queue.add(WorkItem::Object(object_ref));
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
                let object_ref = ObjectRef { kind: users.name.clone(), key };
                let found = self::places(splitter, &users, &object_ref, &user, depth + 1);
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
        let matched = LabelSelector::from_value(selector).zip(entry.pod_labels.as_ref());
        matched.is_some_and(|(selector, labels)| selector.matches(|key| labels.get(key).map(String::as_str)))
    };
    match watched.kind.name.as_str() {
        "Service" => {
            let selector = table(&object["spec"]["selector"]);
            let has = |labels: &crate::policy::Labels| {
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

fn steady(cluster: &str) -> Target {
    Target { cluster: cluster.to_owned(), role: Role::Steady, share: None }
}

/// Plans the patch of a dependency for every target.
fn plan_for_targets(
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    places: &TargetsByCluster,
    mailbox_objects: &[MailboxObject],
) -> DivisionPlan {
    let key = format!("{}/{}", subject.key.namespace, subject.key.name);
    let pods = |target: &Target| target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or(1);
    // A dependency that selects pods of an undivided workload is not divided either.
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
    let recorded: Vec<Target> = mailbox_objects
        .iter()
        .filter(|mailbox_object| mailbox_object.is_nearest && mailbox_object.object.is_some())
        .map(|mailbox_object| steady(mailbox_object.name()))
        .collect();
    let replicas_at = division::REPLICAS;
    let dividend = Dividend { object, rule, replicas_at, division, key: &key, scaled: None };
    match rule {
        DivisionRule::Autoscaler if places.values().any(|target| target.role != Role::Steady) => {
            let is_staying = |pick: &Pick| places[&pick.cluster].role != Role::Leaving;
            let staying: Vec<Pick> = picks.into_iter().filter(is_staying).collect();
            let is_place = |mailbox_object: &&MailboxObject| {
                mailbox_object.is_nearest && places.contains_key(mailbox_object.name())
            };
            let present: Vec<(&str, &Value)> = mailbox_objects
                .iter()
                .filter(is_place)
                .filter_map(|mailbox_object| Some((mailbox_object.name(), mailbox_object.object.as_ref()?)))
                .collect();
            limits::keep_limits(division::plan(&dividend, &staying, &recorded), &present)
        }
        DivisionRule::Budget if places.len() > 1 && division == Division::Divide => {
            let pods = places.iter().map(|(cluster, target)| (cluster.clone(), pods(target))).collect();
            limits::budget(object, &key, &pods)
        }
        // A claim keeps its target even if no workload needs it: data is deleted only when the user deletes the claim.
        DivisionRule::One if !recorded.is_empty() => {
            let kept = |target: Target| (target.cluster, TargetPatch::default());
            DivisionPlan { patches: recorded.into_iter().map(kept).collect(), ..DivisionPlan::default() }
        }
        _ => division::plan(&dividend, &picks, &recorded),
    }
}
