//! A physical cluster that is used is marked so: it cannot leave before what runs there has another place, nor while it has
//! data that nobody has deleted. One that is forgotten (annotated, and deleted) leaves at once, with all that.

use std::collections::BTreeSet;

use api::cluster::Id;
use api::fleet::Condition;
use api::meta::is_being_deleted;
use api::names::{FORGET, SPLITTER, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, Patch, Place};
use serde_json::json;

use crate::controller::{Splitter, WorkItem, lock};
use crate::fleet::CIRCULAR;
use crate::placement::targets::Rejection;
use crate::snapshot::PlacementMarks;
use crate::snapshot::placement_index::PlacementEntry;
use crate::transform::references::CLAIM;

/// Looks after what the splitter says about a physical cluster: that it is used, and that nothing may be placed there because
/// that would close a circle.
pub(crate) async fn reconcile(splitter: &Splitter, owner: Id, name: &str) -> Result<Outcome, CallError> {
    report_circle(splitter, owner, name).await?;
    mark_used(splitter, owner, name).await
}

/// Writes the condition [`CIRCULAR`] if it is another than before.
async fn report_circle(splitter: &Splitter, owner: Id, name: &str) -> Result<(), CallError> {
    let caches = &splitter.caches;
    if caches.is_mailbox(owner) {
        return Ok(());
    }
    // In a statement of its own: `members` is not held while `circle` looks at `clusters`.
    let member = caches.members().get(owner, name);
    let Some(member) = member else { return Ok(()) };
    let before = member.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is = caches.cycle_through(&member).map(|path| Rejection::Circular { is: Some(path) }.evidence());
    let said = before.iter().find(|said| said.r#type == CIRCULAR);
    if said.map(|said| &said.message) == is.as_ref() {
        return Ok(());
    }
    let mut conditions: Vec<Condition> =
        before.iter().filter(|said| said.r#type != CIRCULAR).cloned().collect();
    if let Some(message) = &is {
        conditions.push(Condition::since(
            before,
            (CIRCULAR, "True", CIRCULAR, message),
            &api::meta::time::now(),
        ));
        tracing::warn!(physical_cluster = name, %message, "the physical cluster closes a cycle; nothing is placed on it");
    }
    let metadata = &member.object.metadata;
    let change = json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": { "conditions": conditions },
    });
    let place = Place::new(&caches.config.physical.kind, "", name).part("status");
    caches.server.within(owner).patch(place, Patch::Merge, &change).await.map(drop)
}

/// Puts the mark on, or takes it off.
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
    // Nothing is moved away from a cluster that will never answer again, so waiting for that would keep it for ever.
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
        .patch(Place::new(&view.kind, "", name), Patch::Merge, &change)
        .await?;
    Ok(Outcome::Done)
}

impl Splitter {
    /// Whether any record has it as a target, or it has the data of a claim.
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

    /// A claim came to a mailbox, or left it.
    pub(crate) fn handle_claim(&self, mailbox: Id) {
        let member = self.caches.members().by_mailbox(mailbox);
        member
            .into_iter()
            .for_each(|one| self.queue.add(WorkItem::PhysicalCluster(one.owner, one.name().to_owned())));
    }

    /// Where the object of a physical cluster is that a logical cluster calls by this name.
    fn owner_of(&self, cluster: Id, name: &str) -> Option<Id> {
        self.visible_from(cluster).iter().find(|member| member.name() == name).map(|member| member.owner)
    }

    /// Looks after the physical clusters that something needs since a moment ago, or does not need any more.
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
