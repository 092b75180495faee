//! Logical clusters: their tree, and which of them are mailboxes.

use std::collections::{BTreeSet, HashMap};

use api::cluster::{Id, Path};
use api::names::{MAILBOX_OF, PLACEMENT, mailbox, owner_of_mailbox};
use controller::informer::{Key, Object};
use serde::Deserialize;

/// The logical clusters by id.
#[derive(Debug, Default)]
pub struct LogicalClusters {
    by_id: HashMap<Id, Known>,
    mailboxes: HashMap<(Id, String), Id>,
    /// The children of each.
    children: HashMap<Id, BTreeSet<Id>>,
    /// By the uid of their namespace `kube-system`.
    identities: HashMap<String, Id>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    parent: Id,
    name: String,
    /// The value of its placement annotation.
    placement: Option<String>,
    is_mailbox: bool,
}

#[derive(Deserialize)]
struct Read {
    metadata: super::LabelsAndAnnotations,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    id: Option<String>,
}

impl LogicalClusters {
    /// Adds or updates a logical cluster. Returns its id if anything changed.
    pub fn put(&mut self, object: &Object) -> Option<Id> {
        let read: Read = object.parse()?;
        let id: Id = read.status?.id?.parse().ok()?;
        let (parent, name) = (object.key.cluster?, object.key.name.clone());
        let owner = read.metadata.labels.get(MAILBOX_OF);
        let is_mailbox = owner.is_some_and(|owner| mailbox(owner) == name);
        self.forget_mailbox(id);
        if let Some(owner) = owner.filter(|_| is_mailbox) {
            self.mailboxes.insert((parent, owner.clone()), id);
        }
        let known =
            Known { parent, name, placement: read.metadata.annotations.get(PLACEMENT).cloned(), is_mailbox };
        self.children.entry(parent).or_default().insert(id);
        (self.by_id.insert(id, known.clone()) != Some(known)).then_some(id)
    }

    pub fn remove(&mut self, object: &Object) -> Option<Id> {
        let id: Id = object.parse::<Read>()?.status?.id?.parse().ok()?;
        self.forget_mailbox(id);
        if let Some(known) = self.by_id.remove(&id)
            && let Some(children) = self.children.get_mut(&known.parent)
        {
            children.remove(&id);
            if children.is_empty() {
                self.children.remove(&known.parent);
            }
        }
        Some(id)
    }

    fn forget_mailbox(&mut self, id: Id) {
        let Some(known) = self.by_id.get(&id) else { return };
        if let Some(owner) = owner_of_mailbox(&known.name) {
            self.mailboxes.remove(&(known.parent, owner.to_owned()));
        }
    }

    /// A logical cluster and all below it.
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
        self.by_id.get(&id).is_some_and(|known| known.is_mailbox)
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
    pub(super) fn know(&mut self, id: Id, parent: Id, name: &str) {
        let known = Known { parent, name: name.to_owned(), placement: None, is_mailbox: false };
        self.children.entry(parent).or_default().insert(id);
        self.by_id.insert(id, known);
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
            let Some(known) = self.by_id.get(last) else { return Vec::new() };
            line.push(known.parent);
        }
        line
    }

    pub fn path(&self, id: Id) -> Option<Path> {
        let mut names = Vec::new();
        let mut at = id;
        while at != Id::ROOT {
            let known = self.by_id.get(&at)?;
            names.push(known.name.as_str());
            at = known.parent;
        }
        names.iter().rev().try_fold(Path::root(), |path, name| path.child(name).ok())
    }
}
