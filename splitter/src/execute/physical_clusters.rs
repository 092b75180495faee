//! Protects a physical cluster that is used with a finalizer: it is not removed before its workloads have moved, nor
//! while its mailbox has claims with data. A forgotten one (annotated and deleted) is removed at once.

use std::collections::BTreeSet;

use api::cluster::Id;
use api::fleet::Condition;
use api::meta::is_being_deleted;
use api::names::{FORGET, SPLITTER, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::json;

use crate::context::{Splitter, WorkItem, lock};
use crate::placement::targets::Rejection;
use crate::snapshot::CIRCULAR;
use crate::snapshot::PlacementMarks;
use crate::snapshot::placement_index::PlacementEntry;
use crate::transform::references::CLAIM;

/// Writes the splitter's part of a physical cluster: the finalizer while it is used, and the condition
/// Circular.
pub(crate) async fn reconcile(splitter: &Splitter, owner: Id, name: &str) -> Result<Outcome, CallError> {
    report_cycle(splitter, owner, name).await?;
    mark_used(splitter, owner, name).await
}

/// Writes the condition [`CIRCULAR`] if it changed.
async fn report_cycle(splitter: &Splitter, owner: Id, name: &str) -> Result<(), CallError> {
    let caches = &splitter.caches;
    if caches.is_mailbox(owner) {
        return Ok(());
    }
    // A statement of its own: the lock of `members` is released before `cycle_through` takes that of `clusters`.
    let member = caches.members().get(owner, name);
    let Some(member) = member else { return Ok(()) };
    let before = member.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let message = caches.cycle_through(&member).map(|path| Rejection::Circular { is: Some(path) }.evidence());
    let condition = before.iter().find(|condition| condition.r#type == CIRCULAR);
    if condition.map(|condition| &condition.message) == message.as_ref() {
        return Ok(());
    }
    let mut conditions: Vec<Condition> =
        before.iter().filter(|condition| condition.r#type != CIRCULAR).cloned().collect();
    if let Some(message) = &message {
        conditions.push(Condition::since(
            before,
            (CIRCULAR, "True", CIRCULAR, message),
            &api::meta::time::now(),
        ));
        tracing::warn!(
            physical_cluster = name,
            reason = message,
            "the physical cluster closes a cycle; nothing is placed on it"
        );
    }
    let metadata = &member.object.metadata;
    let change = json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": { "conditions": conditions },
    });
    let place = ObjectPath::new(&caches.config.physical.kind, "", name).part("status");
    caches.server.within(owner).patch(place, Patch::Merge, &change).await.map(drop)
}

/// Sets the finalizer while the physical cluster is used, and removes it afterwards.
async fn mark_used(splitter: &Splitter, owner: Id, name: &str) -> Result<Outcome, CallError> {
    let view = &splitter.caches.config.physical;
    let key = Key { cluster: Some(owner), namespace: String::new(), name: name.to_owned() };
    let Some(object) = view.get(&key).filter(|_| !splitter.caches.is_mailbox(owner)) else {
        return Ok(Outcome::Done);
    };
    let object = object.read(&view.kind);
    let metadata = &object["metadata"];
    let mut finalizers: Vec<String> = metadata["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|finalizer| finalizer.as_str().map(str::to_owned))
        .collect();
    let is_marked = finalizers.iter().any(|finalizer| finalizer == SPLITTER);
    // Objects cannot be moved away from a cluster that stopped answering for good, so a forgotten one does not wait
    // for that.
    let is_forgotten = is_being_deleted(&object) && metadata["annotations"][FORGET] == TRUE;
    let is_used = !is_forgotten && splitter.is_used(owner, name);
    match (is_marked, is_used) {
        (false, true) if !is_being_deleted(&object) => finalizers.push(SPLITTER.to_owned()),
        (true, false) => finalizers.retain(|finalizer| finalizer != SPLITTER),
        _ => return Ok(Outcome::Done),
    }
    let change = json!({ "metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": finalizers,
    } });
    splitter
        .caches
        .server
        .within(owner)
        .patch(ObjectPath::new(&view.kind, "", name), Patch::Merge, &change)
        .await?;
    Ok(Outcome::Done)
}

impl Splitter {
    /// Whether a record has it as a target, or its mailbox has a claim with data.
    fn is_used(&self, owner: Id, name: &str) -> bool {
        if self.has_claims(owner, name) {
            return true;
        }
        let users: Vec<Id> = {
            let placement_index = lock(&self.placement_index);
            let uses = |cluster: &Id| placement_index.of(*cluster).any(|entry| entry.needs_cluster(name));
            placement_index.clusters().into_iter().filter(uses).collect()
        };
        users.into_iter().any(|cluster| self.owner_of(cluster, name) == Some(owner))
    }

    fn has_claims(&self, owner: Id, name: &str) -> bool {
        let Some(claims) = self.caches.by_group_kind("", CLAIM) else { return false };
        let mailbox = self.caches.members().get(owner, name).and_then(|member| member.mailbox());
        mailbox.is_some_and(|mailbox| {
            let keys = claims.view.keys_within(mailbox, None);
            let has_data = |claim: &PlacementMarks| claim.is_placed || claim.is_projected;
            keys.iter()
                .filter_map(|key| claims.view.get(key))
                .any(|claim| has_data(&PlacementMarks::of(&claim)))
        })
    }

    /// A claim in a mailbox was created or deleted.
    pub(crate) fn handle_claim(&self, mailbox: Id) {
        let member = self.caches.members().by_mailbox(mailbox);
        member
            .into_iter()
            .for_each(|one| self.queue.add(WorkItem::PhysicalCluster(one.owner, one.name().to_owned())));
    }

    /// The logical cluster that owns the physical cluster which a logical cluster means by this name.
    fn owner_of(&self, cluster: Id, name: &str) -> Option<Id> {
        self.visible_from(cluster).iter().find(|member| member.name() == name).map(|member| member.owner)
    }

    /// Queues the physical clusters that became targets, or are targets no more.
    pub(crate) fn enqueue_changed_targets(
        &self,
        cluster: Id,
        before: Option<&PlacementEntry>,
        now: Option<&PlacementEntry>,
    ) {
        let targets = |entry: Option<&PlacementEntry>| -> BTreeSet<String> {
            let needed = entry.filter(|entry| !entry.is_completed).map_or(&[][..], |entry| &entry.targets);
            needed.iter().map(|target| target.cluster.clone()).collect()
        };
        for name in targets(before).symmetric_difference(&targets(now)) {
            if let Some(owner) = self.owner_of(cluster, name) {
                self.queue.add(WorkItem::PhysicalCluster(owner, name.clone()));
            }
        }
    }
}
