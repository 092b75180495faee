//! A physical cluster that is used is marked so: it cannot leave before what runs there has another place, nor while it has
//! data that nobody has deleted. One that is forgotten (annotated, and deleted) leaves at once, with all that.

use std::collections::BTreeSet;

use api::cluster::Id;
use api::fleet::Condition;
use api::names::{FORGET, SPLITTER, TRUE};
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, Patch, Place};
use serde_json::json;

use crate::controller::{Item, Splitter, lock};
use crate::fleet::CIRCULAR;
use crate::placement::targets::Rejection;
use crate::snapshot::Marks;
use crate::snapshot::placement_index::Entry;
use crate::transform::references::CLAIM;

/// Looks after what the splitter says about a physical cluster: that it is used, and that nothing may be placed there because
/// that would close a circle.
pub(crate) async fn look(splitter: &Splitter, home: Id, name: &str) -> Result<Outcome, CallError> {
    report_circle(splitter, home, name).await?;
    mark_used(splitter, home, name).await
}

/// Writes the condition [`CIRCULAR`] if it is another than before.
async fn report_circle(splitter: &Splitter, home: Id, name: &str) -> Result<(), CallError> {
    let world = &splitter.world;
    if world.is_mailbox(home) {
        return Ok(());
    }
    // In a statement of its own: `members` is not held while `circle` looks at `clusters`.
    let member = world.members().get(home, name);
    let Some(member) = member else { return Ok(()) };
    let before = member.object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let is = world.circle(&member).map(|path| Rejection::Circular { is: Some(path) }.evidence());
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
        tracing::warn!(physical_cluster = name, %message, "nothing is placed on a physical cluster that closes a circle");
    }
    let metadata = &member.object.metadata;
    let change = json!({
        "metadata": { "uid": metadata.uid, "resourceVersion": metadata.resource_version },
        "status": { "conditions": conditions },
    });
    let place = Place::new(&world.own.physical.kind, "", name).part("status");
    world.server.within(home).patch(place, Patch::Merge, &change).await.map(drop)
}

/// Puts the mark on, or takes it off.
async fn mark_used(splitter: &Splitter, home: Id, name: &str) -> Result<Outcome, CallError> {
    let view = &splitter.world.own.physical;
    let key = Key { cluster: Some(home), namespace: String::new(), name: name.to_owned() };
    let Some(object) = view.get(&key).filter(|_| !splitter.world.is_mailbox(home)) else {
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
    let is_forgotten = !metadata["deletionTimestamp"].is_null() && metadata["annotations"][FORGET] == TRUE;
    let is_used = !is_forgotten && splitter.is_used(home, name);
    match (is_marked, is_used) {
        (false, true) if metadata["deletionTimestamp"].is_null() => finalizers.push(SPLITTER.to_owned()),
        (true, false) => finalizers.retain(|finalizer| finalizer != SPLITTER),
        _ => return Ok(Outcome::Done),
    }
    let change = json!({ "metadata": {
        "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"], "finalizers": finalizers,
    } });
    splitter.world.server.within(home).patch(Place::new(&view.kind, "", name), Patch::Merge, &change).await?;
    Ok(Outcome::Done)
}

impl Splitter {
    /// Whether any record has it as a target, or it has the data of a claim.
    fn is_used(&self, home: Id, name: &str) -> bool {
        if self.has_claims(home, name) {
            return true;
        }
        let users: Vec<Id> = {
            let book = lock(&self.book);
            let uses = |cluster: &Id| book.of(*cluster).any(|entry| entry.needs_cluster(name));
            book.clusters().into_iter().filter(uses).collect()
        };
        users.into_iter().any(|cluster| self.home_of(cluster, name) == Some(home))
    }

    fn has_claims(&self, home: Id, name: &str) -> bool {
        let Some(claims) = self.world.named("", CLAIM) else { return false };
        let mailbox = self.world.members().get(home, name).and_then(|member| member.mailbox());
        mailbox.is_some_and(|mailbox| {
            let keys = claims.view.keys_within(mailbox, None);
            let has_data = |claim: &Marks| claim.is_placed || claim.is_projected;
            keys.iter().filter_map(|key| claims.view.get(key)).any(|claim| has_data(&Marks::of(&claim)))
        })
    }

    /// A claim came to a mailbox, or left it.
    pub(crate) fn hear_of_claim(&self, mailbox: Id) {
        let member = self.world.members().by_mailbox(mailbox);
        member.into_iter().for_each(|one| self.queue.add(Item::Member(one.home, one.name().to_owned())));
    }

    /// Where the object of a physical cluster is that a logical cluster calls by this name.
    fn home_of(&self, cluster: Id, name: &str) -> Option<Id> {
        self.seen_from(cluster).iter().find(|member| member.name() == name).map(|member| member.home)
    }

    /// Looks after the physical clusters that something needs since a moment ago, or does not need any more.
    pub(crate) fn add_members(&self, cluster: Id, before: Option<&Entry>, now: Option<&Entry>) {
        let targets = |entry: Option<&Entry>| -> BTreeSet<String> {
            let needed = entry.filter(|entry| !entry.is_ended).map_or(&[][..], |entry| &entry.targets);
            needed.iter().map(|target| target.cluster.clone()).collect()
        };
        for name in targets(before).symmetric_difference(&targets(now)) {
            if let Some(home) = self.home_of(cluster, name) {
                self.queue.add(Item::Member(home, name.clone()));
            }
        }
    }
}
