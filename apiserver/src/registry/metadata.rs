//! The metadata that the server sets on an object, whatever the client sends.

use openapi::meta::field::FieldError;
use openapi::meta::status::Status;
use rand::RngExt;
use serde_json::Value;

use crate::objects::metadata::{now, of, text};
use crate::registry::call::Call;
use crate::registry::strategy;

/// Letters and digits of generated names: none that look alike, no vowels to make words of.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_CHARS: usize = 5;
/// A generated name is a label at most: 63 characters with its suffix.
const PREFIX_CHARS_MAX: usize = 58;

/// Fills in what a new object gets from the server, and returns its name.
pub(crate) fn prepare_for_create(call: &Call, object: &mut Value) -> Result<String, Status> {
    let resource = &call.resource;
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = (*resource.kind).into();
    set_namespace(call, object)?;
    if !text(object, "resourceVersion").is_empty() {
        return Err(Status::version_on_create());
    }
    let metadata = of(object)?;
    let name = match (
        metadata.get("name").and_then(Value::as_str),
        metadata.get("generateName").and_then(Value::as_str),
    ) {
        (Some(name), _) if !name.is_empty() => name.to_owned(),
        (_, Some(prefix)) if !prefix.is_empty() => generated(prefix),
        _ => String::new(),
    };
    metadata.insert("name".to_owned(), name.clone().into());
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), now().into());
    for never in ["selfLink", "resourceVersion"] {
        metadata.remove(never);
    }
    // A kind without generations keeps the one that was sent.
    if let Some(first) = resource.generation.first() {
        metadata.insert("generation".to_owned(), first.into());
    }
    // A status is written through its subresource, not by a create.
    if resource.has_status() {
        object.as_object_mut().and_then(|fields| fields.remove("status"));
    }
    strategy::prepare_for_create(resource, &name, object);
    Ok(name)
}

/// The namespace of the path and that of the body must be one and the same.
pub(crate) fn set_namespace(call: &Call, object: &mut Value) -> Result<(), Status> {
    let metadata = of(object)?;
    let said = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    match &call.namespace {
        Some(namespace) if said.is_empty() || said == namespace => {
            metadata.insert("namespace".to_owned(), namespace.as_str().into());
            Ok(())
        }
        // What is in no namespace cannot be in a wrong one.
        None => {
            metadata.remove("namespace");
            Ok(())
        }
        Some(_) => Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
    }
}

fn generated(prefix: &str) -> String {
    let mut rng = rand::rng();
    let suffix = (0..SUFFIX_CHARS).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    prefix.chars().take(PREFIX_CHARS_MAX).chain(suffix).collect()
}

/// A new object is not on its way out, whatever it says.
pub(crate) fn remove_deletion_fields(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
    }
}

/// What clients are told about a field that no update changes.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Only the server marks an object as deleted. A mark that is set stays, whatever is sent.
pub(crate) fn validate_deletion_fields(old: &Value, new: &Value) -> Vec<FieldError> {
    let fields = ["deletionTimestamp", "deletionGracePeriodSeconds"].into_iter();
    let said = fields.filter(|field| old["metadata"][field].is_null() && !new["metadata"][field].is_null());
    said.map(|field| {
        FieldError::invalid(format!("metadata.{field}"), new["metadata"][field].clone(), IMMUTABLE)
    })
    .collect()
}

/// Carries over what an update cannot change, and counts the generation.
pub(crate) fn prepare_for_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), Status> {
    let resource = &call.resource;
    new["apiVersion"] = resource.api_version().into();
    new["kind"] = (*resource.kind).into();
    let (kept, metadata) = (&old["metadata"], of(new)?);
    let fixed = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ];
    for field in fixed {
        match kept.get(field) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    metadata.remove("selfLink");
    metadata.remove("resourceVersion");
    // The finalizers in a spec change only through `finalize`.
    if call.subresource.as_deref() != Some("finalize") {
        strategy::prepare_for_update(resource, old, new);
    }
    // A write of the status does not make another generation.
    if call.subresource.as_deref() != Some("status") && resource.generation.grows(old, new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = generation.into();
    }
    Ok(())
}
