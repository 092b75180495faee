//! A stored custom object, as another version of its kind.
//!
//! Without a webhook the versions of a kind differ in their schemas alone: the same tree is pruned and filled by the
//! schema of the version it is read in. So is one that was stored before the schema became what it is; there is no
//! migration but to read and to write.

use serde_json::Value;

use super::{fill, read};
use crate::resource::{Origin, Resource, api_version};

/// Makes what is stored an object of this row, and says whether anything changed. An object that was stored in this
/// version under this very schema is one already: see [`Resource::reads_as_stored`].
pub fn from_stored(row: &Resource, object: &mut Value) -> bool {
    let Some(schema) = row.schema.as_ref().filter(|_| is_defined(row)) else { return false };
    let before = object.clone();
    object["apiVersion"] = row.api_version().into();
    // What was stored was read once; if it cannot be any more it is left as it is, for whoever asked to see.
    if let Ok(read) = read(object.take(), schema) {
        *object = read.value;
        fill(object, schema);
    } else {
        *object = before.clone();
        object["apiVersion"] = row.api_version().into();
    }
    *object != before
}

/// Makes an object of this row one of the version it is stored in.
pub fn to_stored(row: &Resource, object: &mut Value) {
    let (Some(custom), Some((group, version))) = (&row.custom, &row.stored_as) else { return };
    let before = object.clone();
    object["apiVersion"] = api_version(group, version).into();
    match read(object.take(), &custom.stored) {
        Ok(read) => *object = read.value,
        Err(_) => {
            *object = before;
            object["apiVersion"] = api_version(group, version).into();
        }
    }
}

/// Whether the row is one of a kind that a definition describes.
fn is_defined(row: &Resource) -> bool {
    row.origin == Origin::Custom && row.custom.is_some()
}
