//! Physical clusters, and from which logical clusters they are visible.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use api::fleet::PhysicalCluster;
use api::names::{FORGET, TRUE};
use controller::informer::{CachedObject, Key};

use super::LogicalClusters;

/// A PhysicalCluster object and its mailbox.
#[derive(Clone, PartialEq, Debug)]
pub struct MemberCluster {
    /// The logical cluster that the PhysicalCluster object is in.
    pub owner: Id,
    pub object: PhysicalCluster,
    /// The child of `owner` with the mailbox's name. `status.mailbox` is only for display: tenants have written another
    /// cluster's mailbox there, and ran pods on that cluster.
    pub(crate) mailbox: Option<Id>,
}

impl MemberCluster {
    pub fn name(&self) -> &str {
        &self.object.metadata.name
    }

    /// Whether its condition Ready is True.
    pub fn is_ready(&self) -> bool {
        let conditions = self.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        conditions.iter().any(|condition| condition.r#type == "Ready" && condition.status == "True")
    }

    pub fn mailbox(&self) -> Option<Id> {
        self.mailbox
    }
}

/// Condition of a physical cluster that is a logical cluster whose own objects could be placed there again.
pub(crate) const CIRCULAR: &str = "Circular";

/// Whether the removal leaves the objects on the physical cluster in place.
pub fn is_forgotten(object: &PhysicalCluster) -> bool {
    object.metadata.is_being_deleted()
        && object.metadata.annotations.get(FORGET).is_some_and(|value| value == TRUE)
}

/// How a physical cluster changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ClusterChange {
    Unchanged,
    /// Its capacity, requests or quotas changed.
    Capacity,
    /// Its spec, labels, readiness, mailbox or served kinds changed.
    Properties,
}

/// All physical clusters.
#[derive(Debug, Default)]
pub struct MemberClusters {
    all: BTreeMap<(Id, String), Arc<MemberCluster>>,
}

impl MemberClusters {
    pub fn put(&mut self, object: &CachedObject, clusters: &LogicalClusters) -> ClusterChange {
        let Some(owner) = object.key.cluster else { return ClusterChange::Unchanged };
        let Some(read) = object.parse::<PhysicalCluster>() else { return ClusterChange::Unchanged };
        let name = (owner, object.key.name.clone());
        let mailbox = clusters.mailbox_of(owner, &name.1);
        let member = Arc::new(MemberCluster { owner, object: read, mailbox });
        match self.all.insert(name, member.clone()) {
            Some(before) => changed(&before, &member),
            None => ClusterChange::Properties,
        }
    }

    /// Sets the mailbox of a physical cluster, or removes it.
    pub fn set_mailbox(&mut self, owner: Id, name: &str, mailbox: Option<Id>) -> ClusterChange {
        match self.all.get_mut(&(owner, name.to_owned())) {
            Some(member) if member.mailbox != mailbox => {
                Arc::make_mut(member).mailbox = mailbox;
                ClusterChange::Properties
            }
            _ => ClusterChange::Unchanged,
        }
    }

    pub fn remove(&mut self, key: &Key) {
        if let Some(owner) = key.cluster {
            self.all.remove(&(owner, key.name.clone()));
        }
    }

    fn within(&self, owner: Id) -> impl Iterator<Item = (&str, &Arc<MemberCluster>)> {
        let from = self.all.range((owner, String::new())..).take_while(move |((at, _), _)| *at == owner);
        from.map(|((_, name), member)| (name.as_str(), member))
    }

    /// The physical clusters of a logical cluster and its ancestors. Of several with one name, the nearest.
    pub fn visible_from(&self, cluster: Id, clusters: &LogicalClusters) -> Vec<Arc<MemberCluster>> {
        let mut seen: BTreeMap<&str, &Arc<MemberCluster>> = BTreeMap::new();
        for owner in clusters.lineage(cluster) {
            for (name, member) in self.within(owner) {
                seen.entry(name).or_insert(member);
            }
        }
        seen.into_values().cloned().collect()
    }

    /// All physical clusters, without the reports that syncers write into mailboxes.
    pub fn all(&self, clusters: &LogicalClusters) -> Vec<Arc<MemberCluster>> {
        let members = self.all.values().filter(|member| !clusters.is_mailbox(member.owner));
        members.cloned().collect()
    }

    pub fn get(&self, owner: Id, name: &str) -> Option<Arc<MemberCluster>> {
        self.all.get(&(owner, name.to_owned())).cloned()
    }

    pub fn by_mailbox(&self, mailbox: Id) -> Option<Arc<MemberCluster>> {
        self.all.values().find(|member| member.mailbox() == Some(mailbox)).cloned()
    }
}

fn changed(before: &MemberCluster, now: &MemberCluster) -> ClusterChange {
    let properties = |member: &MemberCluster| {
        let status = member.object.status.clone().unwrap_or_default();
        let metadata = &member.object.metadata;
        (
            metadata.labels.clone(),
            (metadata.is_being_deleted(), is_forgotten(&member.object)),
            member.mailbox,
            member.is_ready(),
            status.kinds.clone(),
            (status.uid.clone(), status.classes.clone()),
        )
    };
    let capacity = |member: &MemberCluster| {
        let status = member.object.status.clone().unwrap_or_default();
        (status.allocatable, status.requested, status.quotas, status.capacity)
    };
    if before.object.spec != now.object.spec || properties(before) != properties(now) {
        ClusterChange::Properties
    } else if capacity(before) != capacity(now) {
        ClusterChange::Capacity
    } else {
        ClusterChange::Unchanged
    }
}
