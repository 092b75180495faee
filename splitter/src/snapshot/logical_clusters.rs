//! Logical clusters: their tree, and which of them are mailboxes.

use std::collections::{BTreeSet, HashMap};

use api::cluster::{Id, Path};
use api::names::{MAILBOX_OF, PLACEMENT, mailbox, owner_of_mailbox};
use controller::informer::{CachedObject, Key};
use serde::Deserialize;

/// The logical clusters by id.
#[derive(Debug, Default)]
pub struct LogicalClusters {
    by_id: HashMap<Id, LogicalClusterEntry>,
    mailboxes: HashMap<(Id, String), Id>,
    /// The children of each.
    children: HashMap<Id, BTreeSet<Id>>,
    /// By the uid of their namespace `kube-system`.
    identities: HashMap<String, Id>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct LogicalClusterEntry {
    parent: Id,
    name: String,
    /// The value of its placement annotation.
    placement: Option<String>,
    is_mailbox: bool,
}

#[derive(Deserialize)]
struct LogicalClusterObject {
    metadata: super::LabelsAndAnnotations,
    status: Option<LogicalClusterStatus>,
}

#[derive(Deserialize)]
struct LogicalClusterStatus {
    id: Option<String>,
}

impl LogicalClusters {
    /// Adds or updates a logical cluster. Returns its id if anything changed.
    pub fn put(&mut self, object: &CachedObject) -> Option<Id> {
        let read: LogicalClusterObject = object.parse()?;
        let id: Id = read.status?.id?.parse().ok()?;
        let (parent, name) = (object.key.cluster?, object.key.name.clone());
        let owner = read.metadata.labels.get(MAILBOX_OF);
        let is_mailbox = owner.is_some_and(|owner| mailbox(owner) == name);
        self.forget_mailbox(id);
        if let Some(owner) = owner.filter(|_| is_mailbox) {
            self.mailboxes.insert((parent, owner.clone()), id);
        }
        let entry = LogicalClusterEntry {
            parent,
            name,
            placement: read.metadata.annotations.get(PLACEMENT).cloned(),
            is_mailbox,
        };
        self.children.entry(parent).or_default().insert(id);
        (self.by_id.insert(id, entry.clone()) != Some(entry)).then_some(id)
    }

    pub fn remove(&mut self, object: &CachedObject) -> Option<Id> {
        let id: Id = object.parse::<LogicalClusterObject>()?.status?.id?.parse().ok()?;
        self.forget_mailbox(id);
        if let Some(entry) = self.by_id.remove(&id)
            && let Some(children) = self.children.get_mut(&entry.parent)
        {
            children.remove(&id);
            if children.is_empty() {
                self.children.remove(&entry.parent);
            }
        }
        Some(id)
    }

    fn forget_mailbox(&mut self, id: Id) {
        let Some(entry) = self.by_id.get(&id) else { return };
        if let Some(owner) = owner_of_mailbox(&entry.name) {
            self.mailboxes.remove(&(entry.parent, owner.to_owned()));
        }
    }

    /// A logical cluster and its descendants.
    pub fn subtree(&self, id: Id) -> Vec<Id> {
        let mut all = vec![id];
        let mut at = 0;
        while let Some(next) = all.get(at) {
            all.extend(self.children.get(next).into_iter().flatten());
            at += 1;
        }
        all
    }

    /// The owning logical cluster and the name of the physical cluster that a mailbox of this key belongs to.
    pub fn mailbox_owner(key: &Key) -> Option<(Id, &str)> {
        Some((key.cluster?, owner_of_mailbox(&key.name)?))
    }

    pub fn is_mailbox(&self, id: Id) -> bool {
        self.by_id.get(&id).is_some_and(|entry| entry.is_mailbox)
    }

    /// Records the uid of the namespace `kube-system` of a logical cluster. None removes it.
    pub(crate) fn set_identity(&mut self, uid: &str, cluster: Option<Id>) {
        match cluster {
            Some(cluster) => drop(self.identities.insert(uid.to_owned(), cluster)),
            None => drop(self.identities.remove(uid)),
        }
    }

    /// The logical cluster whose namespace `kube-system` has this uid.
    pub(crate) fn with_identity(&self, uid: &str) -> Option<Id> {
        self.identities.get(uid).copied()
    }

    #[cfg(test)]
    pub(super) fn add(&mut self, id: Id, parent: Id, name: &str) {
        let entry = LogicalClusterEntry { parent, name: name.to_owned(), placement: None, is_mailbox: false };
        self.children.entry(parent).or_default().insert(id);
        self.by_id.insert(id, entry);
    }

    /// The mailbox of a physical cluster.
    pub fn mailbox_of(&self, owner: Id, name: &str) -> Option<Id> {
        self.mailboxes.get(&(owner, name.to_owned())).copied()
    }

    pub fn placement(&self, id: Id) -> Option<&str> {
        self.by_id.get(&id)?.placement.as_deref()
    }

    /// The logical cluster and its ancestors, nearest first. Empty if it is unknown.
    pub fn lineage(&self, id: Id) -> Vec<Id> {
        let mut line = vec![id];
        while let Some(last) = line.last().filter(|last| **last != Id::ROOT) {
            let Some(entry) = self.by_id.get(last) else { return Vec::new() };
            line.push(entry.parent);
        }
        line
    }

    pub fn path(&self, id: Id) -> Option<Path> {
        let mut names = Vec::new();
        let mut at = id;
        while at != Id::ROOT {
            let entry = self.by_id.get(&at)?;
            names.push(entry.name.as_str());
            at = entry.parent;
        }
        names.iter().rev().try_fold(Path::root(), |path, name| path.child(name).ok())
    }
}
