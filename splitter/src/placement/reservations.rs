//! The capacity of physical clusters that decisions have reserved.
//!
//! A decision and its reservation are made under one lock, before anything is sent: two concurrent decisions cannot use
//! the same capacity.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Target;
use api::meta::quantity::{self, Amounts};

use crate::snapshot::{MemberCluster, ObjectRef};

/// A physical cluster by owning logical cluster and name.
pub(crate) type ClusterName = (Id, String);

/// The requests of targets with this many pods each. An unknown number counts as one.
pub(crate) fn target_requests(
    each: &Amounts,
    targets: &[Target],
    members: &[Arc<MemberCluster>],
    pods: &BTreeMap<String, u32>,
) -> Vec<(ClusterName, Amounts)> {
    let request = |target: &Target| {
        let owner = members.iter().find(|member| member.name() == target.cluster)?.owner;
        let mut amounts = Amounts::new();
        quantity::add(&mut amounts, each, pods.get(&target.cluster).copied().unwrap_or(1));
        Some(((owner, target.cluster.clone()), amounts))
    };
    if each.is_empty() { Vec::new() } else { targets.iter().filter_map(request).collect() }
}

#[derive(Debug, Default)]
pub(crate) struct CapacityReservations {
    totals: HashMap<ClusterName, Amounts>,
    of: HashMap<ObjectRef, Vec<(ClusterName, Amounts)>>,
    /// Which objects mount which claims on which clusters, by namespace. A claim is where the first of them is placed.
    mounts: HashMap<(Id, String), BTreeMap<ObjectRef, ClaimMounts>>,
    /// The cluster of each namespace that is placed by default.
    defaults: HashMap<(Id, String), String>,
    /// Whether all recorded placements have been loaded.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct ClaimMounts {
    claims: BTreeSet<String>,
    clusters: BTreeSet<String>,
}

impl CapacityReservations {
    /// Replaces the reservations of an object. Returns whether capacity was released.
    pub(crate) fn set(&mut self, subject: &ObjectRef, requests: Vec<(ClusterName, Amounts)>) -> bool {
        let before = match requests.is_empty() {
            true => self.of.remove(subject),
            false => self.of.insert(subject.clone(), requests.clone()),
        };
        let before = before.unwrap_or_default();
        let now = |at: &ClusterName| requests.iter().find(|(name, _)| name == at).map(|(_, amounts)| amounts);
        let is_freed = before.iter().any(|(name, amounts)| {
            let now = |resource: &String| now(name).and_then(|amounts| amounts.get(resource).copied());
            amounts.iter().any(|(resource, amount)| now(resource).unwrap_or_default() < *amount)
        });
        for (name, amounts) in before {
            let total = self.totals.entry(name).or_default();
            for (resource, amount) in amounts {
                *total.entry(resource).or_default() -= amount;
            }
        }
        for (name, amounts) in requests {
            quantity::add(self.totals.entry(name).or_default(), &amounts, 1);
        }
        is_freed
    }

    /// The reservations of all other objects on a cluster. An object's own reservation does not count against itself.
    pub(crate) fn taken_from(&self, subject: &ObjectRef, name: &ClusterName) -> Amounts {
        let total = self.totals.get(name).cloned().unwrap_or_default();
        let own = self.of.get(subject).into_iter().flatten().filter(|(at, _)| at == name);
        own.fold(total, |left, (_, requested)| quantity::minus(&left, requested))
    }

    /// Records that an object mounts these claims on its targets.
    pub(crate) fn mount(&mut self, subject: &ObjectRef, claims: &[String], targets: &[Target]) {
        let clusters: BTreeSet<String> = targets.iter().map(|target| target.cluster.clone()).collect();
        let namespace_key = (subject.cluster(), subject.key.namespace.clone());
        if claims.is_empty() || clusters.is_empty() {
            let Some(here) = self.mounts.get_mut(&namespace_key) else { return };
            here.remove(subject);
            if here.is_empty() {
                self.mounts.remove(&namespace_key);
            }
            return;
        }
        let mounts = ClaimMounts { claims: claims.iter().cloned().collect(), clusters };
        self.mounts.entry(namespace_key).or_default().insert(subject.clone(), mounts);
    }

    /// The clusters of other objects that mount a claim.
    pub(crate) fn mounted(&self, subject: &ObjectRef, claim: &str) -> BTreeSet<String> {
        let here = self.mounts.get(&(subject.cluster(), subject.key.namespace.clone()));
        let others = here
            .into_iter()
            .flatten()
            .filter(|(other, mounts)| *other != subject && mounts.claims.contains(claim));
        others.flat_map(|(_, mounts)| mounts.clusters.iter().cloned()).collect()
    }

    /// Removes the reservations of an object. Returns whether capacity was released.
    pub(crate) fn forget(&mut self, subject: &ObjectRef) -> bool {
        self.mount(subject, &[], &[]);
        self.set(subject, Vec::new())
    }

    pub(crate) fn default_of(&self, cluster: Id, namespace: &str) -> Option<String> {
        self.defaults.get(&(cluster, namespace.to_owned())).cloned()
    }

    pub(crate) fn set_default(&mut self, cluster: Id, namespace: &str, target: &str) {
        self.defaults.insert((cluster, namespace.to_owned()), target.to_owned());
    }

    pub(crate) fn forget_default(&mut self, cluster: Id, namespace: &str) {
        self.defaults.remove(&(cluster, namespace.to_owned()));
    }
}
