//! How much is asked of each physical cluster already, so that nothing is promised twice.
//!
//! A decision and what it takes are written down under one lock, before anything is sent: two decisions at the same moment
//! cannot both count on the same room.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Target;
use api::meta::quantity::{self, Amounts};

use crate::snapshot::{MemberCluster, ObjectRef};

/// A physical cluster: where its object is, and its name.
pub(crate) type ClusterName = (Id, String);

/// What targets take that have so many pods each. Of what is not known there is one.
pub(crate) fn asks(
    each: &Amounts,
    targets: &[Target],
    members: &[Arc<MemberCluster>],
    pods: &BTreeMap<String, u32>,
) -> Vec<(ClusterName, Amounts)> {
    let ask = |target: &Target| {
        let owner = members.iter().find(|member| member.name() == target.cluster)?.owner;
        let mut amounts = Amounts::new();
        quantity::add(&mut amounts, each, pods.get(&target.cluster).copied().unwrap_or(1));
        Some(((owner, target.cluster.clone()), amounts))
    };
    if each.is_empty() { Vec::new() } else { targets.iter().filter_map(ask).collect() }
}

#[derive(Debug, Default)]
pub(crate) struct CapacityReservations {
    totals: HashMap<ClusterName, Amounts>,
    of: HashMap<ObjectRef, Vec<(ClusterName, Amounts)>>,
    /// Who mounts claims, which, and where they run, by namespace. A claim is wherever the first of them is.
    mounts: HashMap<(Id, String), BTreeMap<ObjectRef, Mounts>>,
    /// Where a namespace goes if nobody says otherwise.
    defaults: HashMap<(Id, String), String>,
    /// Whether all that was recorded before is in it.
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
struct Mounts {
    claims: BTreeSet<String>,
    clusters: BTreeSet<String>,
}

impl CapacityReservations {
    /// What an object asks for now, instead of what it asked for. Whether there is more room for others somewhere.
    pub(crate) fn set(&mut self, subject: &ObjectRef, asks: Vec<(ClusterName, Amounts)>) -> bool {
        let before = match asks.is_empty() {
            true => self.of.remove(subject),
            false => self.of.insert(subject.clone(), asks.clone()),
        };
        let before = before.unwrap_or_default();
        let now = |at: &ClusterName| asks.iter().find(|(name, _)| name == at).map(|(_, amounts)| amounts);
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
        for (name, amounts) in asks {
            quantity::add(self.totals.entry(name).or_default(), &amounts, 1);
        }
        is_freed
    }

    /// What all others ask for there. What an object asks for itself is not in its own way, whether or not that was
    /// recorded in the end.
    pub(crate) fn taken_from(&self, subject: &ObjectRef, name: &ClusterName) -> Amounts {
        let total = self.totals.get(name).cloned().unwrap_or_default();
        let own = self.of.get(subject).into_iter().flatten().filter(|(at, _)| at == name);
        own.fold(total, |left, (_, asked)| quantity::minus(&left, asked))
    }

    /// An object mounts these claims at its targets from now on.
    pub(crate) fn mount(&mut self, subject: &ObjectRef, claims: &[String], targets: &[Target]) {
        let clusters: BTreeSet<String> = targets.iter().map(|target| target.cluster.clone()).collect();
        let place = (subject.cluster(), subject.key.namespace.clone());
        if claims.is_empty() || clusters.is_empty() {
            let Some(here) = self.mounts.get_mut(&place) else { return };
            here.remove(subject);
            if here.is_empty() {
                self.mounts.remove(&place);
            }
            return;
        }
        let mounts = Mounts { claims: claims.iter().cloned().collect(), clusters };
        self.mounts.entry(place).or_default().insert(subject.clone(), mounts);
    }

    /// Where others are to run that mount a claim.
    pub(crate) fn mounted(&self, subject: &ObjectRef, claim: &str) -> BTreeSet<String> {
        let here = self.mounts.get(&(subject.cluster(), subject.key.namespace.clone()));
        let others = here
            .into_iter()
            .flatten()
            .filter(|(other, mounts)| *other != subject && mounts.claims.contains(claim));
        others.flat_map(|(_, mounts)| mounts.clusters.iter().cloned()).collect()
    }

    /// Nothing is asked for it any more. Whether there is more room for others.
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
