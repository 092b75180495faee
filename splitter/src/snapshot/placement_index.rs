//! The targets and dependencies of every placed object, by namespace.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::cluster::Id;
use api::fleet::{Distribution, Role, Target};
use serde_json::Value;

use crate::policy::Labels;
use crate::snapshot::ObjectRef;
use crate::transform::api_access::PodApiAccess;
use crate::transform::references::{self, DependencyRef};

/// An object with a placement of its own.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct PlacementEntry {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) dependencies: BTreeSet<DependencyRef>,
    /// The labels of the pods it creates. None if it creates none.
    pub(crate) pod_labels: Option<Labels>,
    /// The service account with which its pods call the API, if they do.
    pub(crate) api_access: Option<PodApiAccess>,
    pub(crate) targets: Vec<Target>,
    /// The number of pods by target, where it is known.
    pub(crate) pod_counts: BTreeMap<String, u32>,
    /// Whether it is a completed Job.
    pub(crate) is_completed: bool,
    /// Whether it was placed without a policy.
    pub(crate) by_default: bool,
    /// The targets where it is ready, during a migration.
    pub(crate) ready: BTreeSet<String>,
    /// The policies with which it was decided.
    pub(crate) policies: PolicyVersion,
}

/// Identifies the policies that apply to all objects of a namespace. Zero before the first decision.
pub(crate) type PolicyVersion = u64;

impl PlacementEntry {
    pub(crate) fn of(object: &Value, record: Option<&Distribution>) -> PlacementEntry {
        let (group, kind) = crate::transform::group_kind(object);
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str().unwrap_or("").to_owned()));
        let pod_labels =
            references::makes_pods(object).then(|| references::pod_labels(object).into_iter().flatten());
        PlacementEntry {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            dependencies: references::dependencies(object),
            pod_labels: pod_labels.map(|labels| labels.filter_map(text).collect()),
            api_access: PodApiAccess::of(object),
            targets: record.map(|record| record.spec.targets.clone()).unwrap_or_default(),
            pod_counts: BTreeMap::new(),
            is_completed: crate::status::completed::is_completed(object),
            by_default: record
                .is_some_and(|record| record.spec.chosen_by.source == api::fleet::Source::Default),
            ready: BTreeSet::new(),
            policies: 0,
        }
    }

    /// Its targets, with the number of their pods as share. An undivided object has no share.
    pub(crate) fn counted(&self) -> impl Iterator<Item = Target> {
        self.targets.iter().map(|target| {
            let pods = self.pod_counts.get(&target.cluster).map(|pods| i64::from(*pods));
            Target { share: target.share.map(|share| pods.unwrap_or(share)), ..target.clone() }
        })
    }

    /// Whether it uses a cluster.
    pub(crate) fn needs_cluster(&self, cluster: &str) -> bool {
        !self.is_completed && self.targets.iter().any(|target| target.cluster == cluster)
    }

    /// Whether it is arriving at a cluster and not ready there.
    pub(crate) fn is_unready_at(&self, cluster: &str) -> bool {
        let is_arriving = |target: &Target| target.cluster == cluster && target.role == Role::Arriving;
        self.targets.iter().any(is_arriving) && !self.ready.contains(cluster)
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.targets.iter().any(|target| target.role != Role::Steady)
    }
}

type Namespace = (Id, String);

/// All entries, by namespace.
#[derive(Debug, Default)]
pub(crate) struct PlacementIndex {
    namespaces: HashMap<Namespace, BTreeMap<ObjectRef, PlacementEntry>>,
}

impl PlacementIndex {
    fn namespace_of(subject: &ObjectRef) -> Namespace {
        (subject.cluster(), subject.key.namespace.clone())
    }

    /// Returns the entry it replaces.
    pub(crate) fn put(&mut self, subject: &ObjectRef, entry: PlacementEntry) -> Option<PlacementEntry> {
        self.namespaces.entry(Self::namespace_of(subject)).or_default().insert(subject.clone(), entry)
    }

    pub(crate) fn remove(&mut self, subject: &ObjectRef) -> Option<PlacementEntry> {
        let namespace = Self::namespace_of(subject);
        let entries = self.namespaces.get_mut(&namespace)?;
        let removed = entries.remove(subject);
        if entries.is_empty() {
            self.namespaces.remove(&namespace);
        }
        removed
    }

    /// Records that an object was reconciled with these policies and keeps its targets.
    pub(crate) fn set_policies(&mut self, subject: &ObjectRef, policies: PolicyVersion) {
        let namespace = self.namespaces.get_mut(&Self::namespace_of(subject));
        if let Some(entry) = namespace.and_then(|entries| entries.get_mut(subject)) {
            entry.policies = policies;
        }
    }

    /// Returns what prevents the end of an object's migration: another object of its namespace that is not ready on a
    /// target that both arrive at, or that runs on a cluster that the object leaves and was not decided with the same
    /// policies yet.
    pub(crate) fn blocks_migration(
        &self,
        subject: &ObjectRef,
        targets: &[Target],
        policies: PolicyVersion,
    ) -> Option<String> {
        let with = |role: Role| targets.iter().filter(move |target| target.role == role);
        let others = self.within(subject.cluster(), &subject.key.namespace);
        others.filter(|(other, _)| *other != subject).find_map(|(_, entry)| {
            let PlacementEntry { kind, name, .. } = entry;
            if let Some(at) = with(Role::Arriving).find(|target| entry.is_unready_at(&target.cluster)) {
                return Some(format!("{}: {kind} {name} is not ready there", at.cluster));
            }
            let left = with(Role::Leaving).find(|target| entry.needs_cluster(&target.cluster))?;
            (entry.policies != policies)
                .then(|| format!("{}: {kind} {name} is not decided yet", left.cluster))
        })
    }

    pub(crate) fn get(&self, subject: &ObjectRef) -> Option<&PlacementEntry> {
        self.namespaces.get(&Self::namespace_of(subject))?.get(subject)
    }

    pub(crate) fn within(
        &self,
        cluster: Id,
        namespace: &str,
    ) -> impl Iterator<Item = (&ObjectRef, &PlacementEntry)> {
        self.namespaces.get(&(cluster, namespace.to_owned())).into_iter().flatten()
    }

    /// Namespaces with entries.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = (Id, &str)> {
        self.namespaces.keys().map(|(cluster, name)| (*cluster, name.as_str()))
    }

    /// Logical clusters with entries.
    pub(crate) fn clusters(&self) -> BTreeSet<Id> {
        self.namespaces.keys().map(|(cluster, _)| *cluster).collect()
    }

    /// All entries of a logical cluster.
    pub(crate) fn of(&self, cluster: Id) -> impl Iterator<Item = &PlacementEntry> {
        let here = self.namespaces.iter().filter(move |((at, _), _)| *at == cluster);
        here.flat_map(|(_, entries)| entries.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace was moved by one annotation. A CronJob was decided first and left the old cluster before the Deployment
    /// beside it had been decided at all.
    #[test]
    fn a_migration_ends_after_all_objects_of_the_namespace_are_decided_and_ready() {
        let target = |cluster: &str, role| Target { cluster: cluster.into(), role, share: None };
        let subject = |name: &str| ObjectRef {
            kind: "deployments.apps".into(),
            key: controller::informer::Key {
                cluster: Some(Id::ROOT),
                namespace: "shop".into(),
                name: name.into(),
            },
        };
        let moving = [target("west", Role::Arriving), target("east", Role::Leaving)];
        let check = |entry: PlacementEntry, expected: Option<&str>| {
            let mut index = PlacementIndex::default();
            let entry = PlacementEntry { kind: "Deployment".into(), name: "web".into(), ..entry };
            index.put(&subject("web"), entry);
            index.put(
                &subject("cron"),
                PlacementEntry { targets: moving.to_vec(), ..PlacementEntry::default() },
            );
            let blocks = index.blocks_migration(&subject("cron"), &moving, 2);
            assert_eq!(blocks.as_deref(), expected);
        };
        let at = |cluster: &str, role, policies| PlacementEntry {
            targets: vec![target(cluster, role)],
            policies,
            ..PlacementEntry::default()
        };
        let undecided = Some("east: Deployment web is not decided yet");
        check(at("east", Role::Steady, 1), undecided);
        check(at("east", Role::Steady, 0), undecided);
        // It has a placement of its own, or cannot move.
        check(at("east", Role::Steady, 2), None);
        check(at("north", Role::Steady, 1), None);
        check(PlacementEntry { is_completed: true, ..at("east", Role::Steady, 1) }, None);
        let arriving = PlacementEntry { targets: moving.to_vec(), policies: 2, ..PlacementEntry::default() };
        check(arriving.clone(), Some("west: Deployment web is not ready there"));
        check(PlacementEntry { ready: ["west".to_owned()].into(), ..arriving }, None);
    }
}
