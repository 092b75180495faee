//! Detects joins that lead back to where they started.
//!
//! ```text
//!   root:a  ──may use──►  PhysicalCluster loop, which is the logical cluster root:a:b  ──may use──►  loop  ──► …
//! ```
//!
//! A logical cluster can be a physical cluster. If its own objects could be placed on that physical cluster again,
//! every namespace would be sent there again and again. Of the joins that close a cycle together the newest is not
//! used, so a tenant cannot disable an older join by closing a cycle through it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use api::cluster::Id;

use super::{LogicalClusters, MemberCluster};
use crate::snapshot::CIRCULAR;

/// The logical cluster of this server that a physical cluster is, if its own objects could be placed there again.
pub(super) fn closed_by(
    member: &MemberCluster,
    members: &[Arc<MemberCluster>],
    clusters: &LogicalClusters,
) -> Option<Id> {
    let first = clusters.with_identity(member.identity()?)?;
    let (mut seen, mut queue) = (BTreeSet::from([first]), VecDeque::from([first]));
    while let Some(at) = queue.pop_front() {
        if can_use(at, member, clusters) {
            return Some(first);
        }
        let usable =
            members.iter().filter(|other| other.age() < member.age() && can_use(at, other, clusters));
        let next = usable.filter_map(|other| clusters.with_identity(other.identity()?));
        queue.extend(next.filter(|id| seen.insert(*id)).collect::<Vec<_>>());
    }
    None
}

/// Whether objects of a logical cluster could be placed on a physical cluster: it is visible from there, and not
/// dedicated to another one. Grants are not considered, because they may be given later.
fn can_use(cluster: Id, member: &MemberCluster, clusters: &LogicalClusters) -> bool {
    let is_for = |to: &String| clusters.path(cluster).is_some_and(|path| path.as_str() == to);
    clusters.lineage(cluster).contains(&member.owner)
        && member.object.spec.dedicated_to.as_ref().is_none_or(is_for)
}

impl MemberCluster {
    /// The uid of its namespace `kube-system`, which identifies a cluster.
    pub(super) fn identity(&self) -> Option<&str> {
        self.object.status.as_ref()?.uid.as_deref()
    }

    /// Whether it is a logical cluster of this server, or was reported to be one.
    pub(crate) fn may_be_circular(&self, clusters: &LogicalClusters) -> bool {
        let conditions = self.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        conditions.iter().any(|condition| condition.r#type == CIRCULAR)
            || self.identity().is_some_and(|uid| clusters.with_identity(uid).is_some())
    }

    /// Sorts physical clusters by when they were created.
    fn age(&self) -> (&str, Id, &str) {
        let created = self.object.metadata.rest.get("creationTimestamp").and_then(|time| time.as_str());
        (created.unwrap_or_default(), self.owner, self.name())
    }
}

#[cfg(test)]
mod tests {
    use api::fleet::PhysicalCluster;
    use serde_json::json;

    use super::*;

    const fn id(number: u64) -> Id {
        Id::new(number)
    }

    /// root ─ 1 ─ 11, root ─ 2. The identity of a logical cluster is `uid-` and its number.
    fn clusters() -> LogicalClusters {
        let mut clusters = LogicalClusters::default();
        for (cluster, parent) in [(1, Id::ROOT), (11, id(1)), (2, Id::ROOT)] {
            clusters.add(id(cluster), parent, &format!("c{cluster}"));
            clusters.set_identity(&format!("uid-{cluster}"), Some(id(cluster)));
        }
        clusters
    }

    fn member(owner: Id, name: &str, created: &str, uid: &str) -> Arc<MemberCluster> {
        let object: PhysicalCluster = serde_json::from_value(json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
            "metadata": { "name": name, "creationTimestamp": created }, "spec": {}, "status": { "uid": uid },
        }))
        .unwrap();
        Arc::new(MemberCluster { owner, object, mailbox: None })
    }

    /// A logical cluster that joined itself had 24,000 namespaces after 80 seconds.
    #[test]
    fn the_newest_join_that_closes_a_cycle_is_not_used() {
        let clusters = clusters();
        let check = |members: &[Arc<MemberCluster>], expected: &[Option<Id>]| {
            let found: Vec<Option<Id>> =
                members.iter().map(|member| closed_by(member, members, &clusters)).collect();
            assert_eq!(found, expected, "{members:?}");
        };
        // A real cluster, or one of another server.
        check(&[member(Id::ROOT, "east", "t1", "real")], &[None]);
        // The cluster itself, a descendant, and a cluster that sees it because its owner is an ancestor of both.
        check(&[member(id(1), "self", "t1", "uid-1")], &[Some(id(1))]);
        check(&[member(id(1), "below", "t1", "uid-11")], &[Some(id(11))]);
        check(&[member(Id::ROOT, "any", "t1", "uid-2")], &[Some(id(2))]);
        // A sibling and the parent: neither sees the physical clusters of this logical cluster.
        check(&[member(id(1), "beside", "t1", "uid-2")], &[None]);
        check(&[member(id(11), "above", "t1", "uid-1")], &[None]);
        // Visible from there, but dedicated to another one.
        let mut other = member(Id::ROOT, "other", "t1", "uid-2");
        Arc::make_mut(&mut other).object.spec.dedicated_to = Some("root:c1".into());
        check(&[other], &[None]);
        // A cycle over two joins: the later one is not used.
        let (forth, back) = (member(id(1), "there", "t1", "uid-2"), member(id(2), "back", "t2", "uid-11"));
        check(&[forth.clone(), back], &[None, Some(id(11))]);
        let earlier = member(id(2), "back", "t0", "uid-11");
        check(&[forth, earlier], &[Some(id(2)), None]);
    }
}
