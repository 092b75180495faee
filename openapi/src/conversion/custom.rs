//! Converts stored custom objects between the versions of their kind.
//!
//! Without a conversion webhook, versions differ only in their schemas. A stored object is pruned and defaulted by the
//! current schema of its stored version, then pruned by the schema of the requested version. The defaults of the
//! requested version are not applied: they are for objects written in it. Migration to another storage version means to
//! read and write each object.

use serde_json::Value;

use crate::catalog::resource_info::{CustomResourceInfo, ResourceInfo, api_version};
use crate::codec::unstructured::decode_unstructured;
use crate::defaulting::structural::apply_structural_defaults;
use crate::schema::Schema;

/// Converts a stored object to this version and returns whether anything changed. Objects stored in this version with
/// this very schema need no conversion: see [`ResourceInfo::reads_as_stored`].
pub fn from_stored(resource: &ResourceInfo, object: &mut Value) -> bool {
    let (Some(custom), Some(schema)) = (&resource.custom, &resource.schema) else { return false };
    let before = object.clone();
    let requested = resource.api_version();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    if version != requested {
        // A version that was removed from the definition has no schema.
        if let Some(stored) = version.rsplit('/').next().and_then(|version| custom.versions.get(version)) {
            settle(object, stored, Defaults::Yes);
        }
        object["apiVersion"] = requested.into();
        settle(object, schema, Defaults::No);
    } else {
        settle(object, schema, Defaults::Yes);
    }
    *object != before
}

/// Converts an object of this version to the storage version.
pub fn to_stored(resource: &ResourceInfo, object: &mut Value) {
    let (Some(custom), Some((group, version))) = (&resource.custom, &resource.stored_as) else { return };
    object["apiVersion"] = api_version(group, version).into();
    if let Some(schema) = stored(custom, version) {
        settle(object, schema, Defaults::Yes);
    }
}

fn stored<'c>(custom: &'c CustomResourceInfo, version: &str) -> Option<&'c Schema> {
    custom.versions.get(version).map(|schema| &**schema)
}

#[derive(PartialEq)]
enum Defaults {
    Yes,
    No,
}

/// Prunes an object by a schema and applies its defaults. A stored object that can no longer be decoded stays as it is.
fn settle(object: &mut Value, schema: &Schema, with_defaults: Defaults) {
    if let Ok(read) = decode_unstructured(object.clone(), schema) {
        *object = read.value;
        if with_defaults == Defaults::Yes {
            apply_structural_defaults(object, schema);
        }
    }
}
