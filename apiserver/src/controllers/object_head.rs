//! The small part of an object that controllers go by.
//!
//! Read straight from the stored bytes: the rest of the object is skipped, not built.

use serde::Deserialize;
use storage::Entry;

use crate::objects::stored;
use crate::registry::deletion::FOREGROUND;

/// Who an object is, whose it is, and whether it is leaving.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ObjectHead {
    pub(super) uid: String,
    pub(super) owner_references: Option<Vec<Owner>>,
    pub(super) finalizers: Option<Vec<String>>,
    pub(super) deletion_timestamp: Option<String>,
}

/// One of the objects another one belongs to.
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

    /// Whether the owner, deleted in the foreground, waits for this object.
    pub(super) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }
}

impl ObjectHead {
    /// None for what is no object. Only the metadata is read: this is done for every write there is.
    pub(super) fn of(entry: &Entry) -> Option<ObjectHead> {
        let metadata = stored::metadata_of(entry.value())?;
        ObjectHead::deserialize(&mut serde_json::Deserializer::from_slice(metadata)).ok()
    }

    pub(super) fn owners(&self) -> &[Owner] {
        self.owner_references.as_deref().unwrap_or_default()
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it was deleted in the foreground: it goes after its dependents.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.is_leaving() && self.has_finalizer(FOREGROUND)
    }

    pub(super) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }
}
