//! A physical cluster that is used is marked so: it cannot leave before what runs there has another place.

use api::cluster::Id;
use api::fleet::Target;
use api::names::SPLITTER;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, Patch, Place};
use serde_json::json;

use crate::flow::{Item, Splitter, lock};

/// Puts the mark on, or takes it off.
pub(crate) async fn look(splitter: &Splitter, home: Id, name: &str) -> Result<Outcome, CallError> {
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
    let is_used = splitter.is_used(home, name);
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
    /// Whether any record has it as a target.
    fn is_used(&self, home: Id, name: &str) -> bool {
        let users: Vec<Id> = {
            let book = lock(&self.book);
            let uses = |cluster: &Id| book.of(*cluster).any(|entry| entry.is_at(name));
            book.clusters().into_iter().filter(uses).collect()
        };
        users.into_iter().any(|cluster| self.home_of(cluster, name) == Some(home))
    }

    /// Where the object of a physical cluster is that a logical cluster calls by this name.
    fn home_of(&self, cluster: Id, name: &str) -> Option<Id> {
        self.seen_from(cluster).iter().find(|member| member.name() == name).map(|member| member.home)
    }

    /// Looks after the physical clusters that something came to or left.
    pub(crate) fn add_members(&self, cluster: Id, before: &[Target], now: &[Target]) {
        let has =
            |targets: &[Target], target: &Target| targets.iter().any(|one| one.cluster == target.cluster);
        let came = now.iter().filter(|target| !has(before, target));
        let left = before.iter().filter(|target| !has(now, target));
        for target in came.chain(left) {
            if let Some(home) = self.home_of(cluster, &target.cluster) {
                self.queue.add(Item::Member(home, target.cluster.clone()));
            }
        }
    }
}
