//! The part of an object that controllers need for every event.
//!
//! It is parsed from the stored bytes without a tree of the object; other fields are skipped.

use serde::Deserialize;
use storage::Entry;

use crate::objects::stored;
use crate::registry::deletion::FOREGROUND;

/// The uid, owners, finalizers and deletion timestamp of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectHead {
    pub(super) uid: String,
    pub(super) owner_references: Option<Vec<Owner>>,
    pub(super) finalizers: Option<Vec<String>>,
    pub(super) deletion_timestamp: Option<String>,
}

/// An owner reference.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) block_owner_deletion: Option<bool>,
}

impl Owner {
    pub(super) fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Reports whether a foreground deletion of the owner waits for this object.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

impl ObjectHead {
    /// Parses the metadata of an entry. None if it is not an object. This runs for every write, so it reads nothing
    /// else.
    pub(super) fn of(entry: &Entry) -> Option<ObjectHead> {
        let metadata = stored::metadata_of(entry.value())?;
        ObjectHead::deserialize(&mut serde_json::Deserializer::from_slice(metadata)).ok()
    }

    pub(super) fn owners(&self) -> &[Owner] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(super) fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Reports whether the object was deleted in the foreground and waits for its dependents.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_being_deleted() && self.has_finalizer(FOREGROUND)
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }
}
