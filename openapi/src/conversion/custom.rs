//! A stored custom object, as another version of its kind.
//!
//! Without a webhook the versions of a kind differ in their schemas alone. What is stored is pruned and filled by the
//! schema of the version it is stored in, as that is now, and then pruned by the schema of the version it is read in:
//! the defaults of that one are for what is written in it. There is no migration but to read and to write.

use serde_json::Value;

use crate::catalog::resource_info::{Custom, Resource, api_version};
use crate::codec::unstructured::read;
use crate::defaulting::structural::fill;
use crate::schema::Schema;

/// Makes what is stored an object of this row, and says whether anything changed. An object that was stored in this
/// version under this very schema is one already: see [`Resource::reads_as_stored`].
pub fn from_stored(row: &Resource, object: &mut Value) -> bool {
    let (Some(custom), Some(schema)) = (&row.custom, &row.schema) else { return false };
    let before = object.clone();
    let wanted = row.api_version();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if version != wanted {
        // A version that is gone from the definition says nothing any more.
        if let Some(stored) = version.rsplit('/').next().and_then(|version| custom.versions.get(version)) {
            settle(object, stored, Fill::Yes);
        }
        object["apiVersion"] = wanted.into();
        settle(object, schema, Fill::No);
    } else {
        settle(object, schema, Fill::Yes);
    }
    *object != before
}

/// Makes an object of this row one of the version it is stored in.
pub fn to_stored(row: &Resource, object: &mut Value) {
    let (Some(custom), Some((group, version))) = (&row.custom, &row.stored_as) else { return };
    object["apiVersion"] = api_version(group, version).into();
    if let Some(schema) = stored(custom, version) {
        settle(object, schema, Fill::Yes);
    }
}

fn stored<'c>(custom: &'c Custom, version: &str) -> Option<&'c Schema> {
    custom.versions.get(version).map(|schema| &**schema)
}

#[derive(PartialEq)]
enum Fill {
    Yes,
    No,
}

/// Takes out what a schema does not know and puts in what it fills in. What was stored was read once; if it cannot be
/// any more it is left as it is, for whoever asked to see.
fn settle(object: &mut Value, schema: &Schema, with_defaults: Fill) {
    if let Ok(read) = read(object.clone(), schema) {
        *object = read.value;
        if with_defaults == Fill::Yes {
            fill(object, schema);
        }
    }
}
