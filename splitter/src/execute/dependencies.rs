//! What goes along: things that are needed by what runs, and things that are about it.
//!
//! ```text
//!   Deployment web ──names──► ConfigMap, Secret, ServiceAccount, claim      wherever web goes
//!        pods ◄──selects── Service ◄──names── Ingress ──names──► Secret      wherever the pods are
//! ```
//!
//! Nothing is decided about these: they are wherever somebody is who needs them, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::fleet::{Division, LabelSelector, Role, Target};
use api::names::{PROJECTED, SCALED_BELOW, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::CallError;
use serde_json::Value;

use crate::controller::{Item, Splitter, lock};
use crate::division::{self, Dividend, Part, Plan, Rule, limits};
use crate::execute::aggregate;
use crate::execute::events;
use crate::execute::propagate::{self, Sent};
use crate::placement::context::table;
use crate::placement::policy::select::{self, Selected};
use crate::placement::targets::Pick;
use crate::reconcile::SOON;
use crate::snapshot::mailbox_objects::{self, Copy};
use crate::snapshot::placement_index::Entry;
use crate::snapshot::{Class, Followed, Subject};
use crate::transform::classes;
use crate::transform::references::{self, Need};
use crate::transform::{self, Lowered, Way};

/// Where something is needed, and how many pods are there that need it. The role is the firmest anybody has there.
pub(crate) type Places = BTreeMap<String, Target>;

/// Until what is left behind where a name meant something else is asked about again.
const STILL_USED: Duration = Duration::from_secs(1);

/// Looks after one of them.
pub(crate) async fn look(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
) -> Result<Outcome, CallError> {
    // What is shown from a mailbox has the status it has there, and goes nowhere.
    if object["metadata"]["labels"][PROJECTED] == TRUE {
        return Ok(Outcome::Done);
    }
    if followed.kind.name == "HorizontalPodAutoscaler" {
        add_scaled(splitter, subject, object);
    }
    let copies = mailbox_objects::of_this(&splitter.world, followed, subject, object);
    // Where there is nothing to run anything on, a logical cluster is an API and no more.
    if splitter.seen_from(subject.cluster()).is_empty() && copies.iter().all(|copy| copy.object.is_none()) {
        return Ok(Outcome::Done);
    }
    let mut places = places(splitter, followed, subject, object, 0);
    let plan = planned(followed, subject, object, &places, &copies);
    // What stays although nobody needs it is told of all the same.
    for (cluster, _) in &plan.parts {
        places.entry(cluster.clone()).or_insert_with(|| steady(cluster));
    }
    let overrides = splitter.world.ours(&splitter.world.own.overrides, subject.cluster());
    let namespace = splitter.world.namespace(subject.cluster(), &subject.key.namespace);
    let (mut wrote, mut unfinished) = (false, false);
    for (cluster, part) in &plan.parts {
        let copy = copies.iter().find(|copy| copy.is_at(cluster));
        let Some(copy) = copy.filter(|copy| !copy.is_being_deleted()) else { continue };
        let way = Way {
            logical_cluster: &subject.cluster().to_string(),
            cluster: &copy.member.object,
            overrides: &overrides,
            namespace_labels: &namespace.labels,
            home: None,
        };
        let problem = match transform::lower(object, Some(part), &way) {
            Ok(Lowered::Sent(_)) if copy.object.is_none() && splitter.is_emptied(copy) => {
                unfinished = true;
                None
            }
            Ok(Lowered::Sent(mut wanted)) => {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(1);
                wanted["metadata"]["annotations"][api::names::STANDS_FOR] = generation.to_string().into();
                let missing = classes::missing(&wanted, &copy.member.object);
                if copy.object.is_none() && !missing.is_empty() {
                    let missing = classes::told(&missing, cluster);
                    events::tell_missing(splitter, subject, object, &missing).await?;
                }
                match propagate::put(splitter, followed, subject, copy, wanted).await {
                    Err(error) if propagate::is_refused(&error) => {
                        unfinished = true;
                        Some(error.to_string())
                    }
                    sent => match sent? {
                        Sent::Unchanged => None,
                        Sent::Written => {
                            wrote = true;
                            None
                        }
                        Sent::Denied(why) => Some(why.told(cluster)),
                    },
                }
            }
            Ok(Lowered::Stays(_)) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            events::tell_problem(splitter, subject, object, &format!("{cluster}: {problem}")).await?;
        }
    }
    let is_needed = |copy: &Copy| plan.parts.iter().any(|(cluster, _)| copy.is_at(cluster));
    let unneeded: Vec<&Copy> =
        copies.iter().filter(|copy| copy.object.is_some() && !is_needed(copy)).collect();
    if !unneeded.is_empty() && !splitter.is_entered(subject.cluster(), &subject.key.namespace) {
        return Ok(Outcome::Again(SOON));
    }
    let (used, unused): (Vec<&Copy>, Vec<&Copy>) =
        unneeded.into_iter().partition(|copy| !copy.is_meant && runs_work(splitter, copy));
    for copy in unused {
        wrote |= propagate::delete(splitter, followed, subject, copy).await?;
    }
    if wrote {
        led_along(splitter, subject, object);
    }
    aggregate::follower(splitter, followed, subject, object, &copies, &places).await?;
    Ok(match used.is_empty() {
        _ if unfinished => Outcome::Failed,
        true => Outcome::Done,
        false => Outcome::Again(STILL_USED),
    })
}

/// Whether something that may need a copy is still beside it.
fn runs_work(splitter: &Splitter, copy: &Copy) -> bool {
    let works = |followed: &Followed| matches!(followed.class, Class::Work | Class::Custom);
    splitter.world.kinds().iter().any(|followed| {
        works(followed) && !followed.view.keys_within(copy.mailbox, Some(&copy.namespace)).is_empty()
    })
}

/// Looks after what an autoscaler is about, if it does not know of it yet.
fn add_scaled(splitter: &Splitter, subject: &Subject, autoscaler: &Value) {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let text = |field: &str| of[field].as_str().unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let Some(scaled) = splitter.world.named(group, text("kind")) else { return };
    let its = Subject {
        kind: scaled.name.clone(),
        key: Key { name: text("name").to_owned(), ..subject.key.clone() },
    };
    let copies = mailbox_objects::of(&splitter.world, &scaled, &its);
    let is_told = |copy: &Copy| {
        copy.object.as_ref().is_none_or(|copy| !copy["metadata"]["annotations"][SCALED_BELOW].is_null())
    };
    if !copies.iter().all(is_told) {
        splitter.queue.add(Item::Object(its));
    }
}

/// What goes along with something that goes along.
fn led_along(splitter: &Splitter, subject: &Subject, object: &Value) {
    for need in references::dependencies(object) {
        add_need(splitter, subject, &need);
    }
    if object["kind"] == "Service" {
        splitter.add_kind_in("ingresses.networking.k8s.io", subject.cluster(), &subject.key.namespace);
    }
}

/// Looks after something that is needed.
pub(crate) fn add_need(splitter: &Splitter, of: &Subject, need: &Need) {
    if let Some(followed) = splitter.world.named("", need.kind) {
        let key = Key { name: need.name.clone(), ..of.key.clone() };
        splitter.queue.add(Item::Object(Subject { kind: followed.name.clone(), key }));
    }
}

/// Chains of needs are short: a Secret of an Ingress for a Service.
const DEPTH_MAX: usize = 3;

fn places(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
    depth: usize,
) -> Places {
    let mut places = Places::new();
    if depth > DEPTH_MAX {
        return places;
    }
    {
        let book = lock(&splitter.book);
        for (_, entry) in book.within(subject.cluster(), &subject.key.namespace) {
            if concerns(followed, object, entry) {
                match followed.kind.name.as_str() {
                    "PodDisruptionBudget" => entry.counted().for_each(|target| join(&mut places, &target)),
                    _ => entry.targets.iter().for_each(|target| join(&mut places, target)),
                }
            }
        }
    }
    let namespace = &subject.key.namespace;
    let through = |kind: &str, group: &str, is_user: &dyn Fn(&Value) -> bool, places: &mut Places| {
        let Some(users) = splitter.world.named(group, kind) else { return };
        for key in users.view.keys_within(subject.cluster(), Some(namespace)) {
            let Some(user) = users.get(&key).filter(is_user) else { continue };
            let its = Subject { kind: users.name.clone(), key };
            let found = self::places(splitter, &users, &its, &user, depth + 1);
            found.values().for_each(|target| join(places, target));
        }
    };
    let needs = |user: &Value, kind: &str, name: &str| {
        references::dependencies(user).iter().any(|need| need.kind == kind && need.name == name)
    };
    let name = &subject.key.name;
    match followed.kind.name.as_str() {
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

fn join(places: &mut Places, target: &Target) {
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

/// Whether something is needed by, or about, what is decided about.
fn concerns(followed: &Followed, object: &Value, entry: &Entry) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let named = entry.needs.iter().any(|need| need.kind == followed.kind.name && need.name == name);
    if named && followed.kind.group.is_empty() {
        return true;
    }
    let selects = |selector: &Value| {
        let selector: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
        let labels = entry.pod_labels.as_ref();
        selector
            .zip(labels)
            .is_some_and(|(selector, labels)| select::labels(&selector, labels) == Selected::Yes)
    };
    match followed.kind.name.as_str() {
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

/// Whether an autoscaler is about something.
fn scales(autoscaler: &Value, group: &str, kind: &str, name: &str) -> bool {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let version = of["apiVersion"].as_str().unwrap_or_default();
    let its_group = version.rsplit_once('/').map_or("", |(group, _)| group);
    of["kind"] == *kind && its_group == group && of["name"] == *name
}

/// The claims an object mounts, each with the physical clusters that have it.
pub(crate) fn claims(
    splitter: &Splitter,
    subject: &Subject,
    object: &Value,
) -> BTreeMap<String, BTreeSet<String>> {
    let Some(claims) = splitter.world.named("", references::CLAIM) else { return BTreeMap::new() };
    let there = |name: &String| {
        let key = Key { name: name.clone(), ..subject.key.clone() };
        let copies =
            mailbox_objects::of(&splitter.world, &claims, &Subject { kind: claims.name.clone(), key });
        let present = copies.iter().filter(|copy| copy.is_meant && copy.object.is_some());
        present.map(|copy| copy.name().to_owned()).collect()
    };
    references::claims(object).into_iter().map(|name| (name.clone(), there(&name))).collect()
}

/// The most an autoscaler makes of an object. None if none scales it.
pub(crate) fn scaled_to(splitter: &Splitter, subject: &Subject, object: &Value) -> Option<u32> {
    let autoscalers = splitter.world.named("autoscaling", "HorizontalPodAutoscaler")?;
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

/// What each place gets of it.
fn planned(followed: &Followed, subject: &Subject, object: &Value, places: &Places, copies: &[Copy]) -> Plan {
    let key = format!("{}/{}", subject.key.namespace, subject.key.name);
    let pods = |target: &Target| target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or(1);
    // What is about something that is whole everywhere is whole everywhere, too.
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
    let rule = division::rule(&followed.kind.group, &followed.kind.name, false);
    let recorded: Vec<Target> = copies
        .iter()
        .filter(|copy| copy.is_meant && copy.object.is_some())
        .map(|copy| steady(copy.name()))
        .collect();
    let replicas_at = division::REPLICAS;
    let dividend = Dividend { object, rule, replicas_at, division, key: &key, scaled: None };
    match rule {
        Rule::Autoscaler if places.values().any(|target| target.role != Role::Steady) => {
            let stays = |pick: &Pick| places[&pick.cluster].role != Role::Leaving;
            let staying: Vec<Pick> = picks.into_iter().filter(stays).collect();
            let is_place = |copy: &&Copy| copy.is_meant && places.contains_key(copy.name());
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
        // Whatever holds data stays where it is, also while nobody needs it: only who deletes it deletes its data.
        Rule::One if !recorded.is_empty() => {
            let kept = |target: Target| (target.cluster, Part::default());
            Plan { parts: recorded.into_iter().map(kept).collect(), ..Plan::default() }
        }
        _ => division::plan(&dividend, &picks, &recorded),
    }
}

impl Splitter {
    /// Whether everything in a namespace that could need something has been entered.
    pub(crate) fn is_entered(&self, cluster: api::cluster::Id, namespace: &str) -> bool {
        let works = |followed: &Followed| matches!(followed.class, Class::Work | Class::Custom);
        self.world.kinds().iter().filter(|followed| works(followed)).all(|followed| {
            followed.view.synced()
                && followed.view.keys_within(cluster, Some(namespace)).into_iter().all(|key| {
                    let subject = Subject { kind: followed.name.clone(), key };
                    let known = lock(&self.book).get(&subject).is_some();
                    known
                        || followed.get(&subject.key).is_none_or(|object| {
                            !crate::reconcile::is_decided(self, followed, &subject, &object)
                        })
                })
        })
    }

    /// Everything of a kind in a namespace is looked after.
    pub(crate) fn add_kind_in(&self, kind: &str, cluster: api::cluster::Id, namespace: &str) {
        let Some(followed) = self.world.kind(kind) else { return };
        for key in followed.view.keys_within(cluster, Some(namespace)) {
            self.queue.add(Item::Object(Subject { kind: followed.name.clone(), key }));
        }
    }
}
