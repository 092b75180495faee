//! The metadata that the server sets, regardless of the request.

use api::meta::field::FieldError;
use openapi::meta::status::Status;
use rand::RngExt;
use serde_json::Value;

use crate::objects::metadata::{now, of, text};
use crate::registry::call::Call;
use crate::registry::strategy;

/// Characters of generated names: no look-alikes, and no vowels, so that no words occur.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_CHARS: usize = 5;
/// A generated name fits a DNS label: 63 characters with its suffix.
const PREFIX_CHARS_MAX: usize = 58;

/// Sets the metadata that a new object gets from the server. Returns the name of the object.
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
    // A kind without generations keeps the generation that the client sent.
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

/// Sets the namespace of the path. Refuses another namespace in the body.
pub(crate) fn set_namespace(call: &Call, object: &mut Value) -> Result<(), Status> {
    check_namespace(call, object)?;
    let metadata = of(object)?;
    match &call.namespace {
        Some(namespace) => drop(metadata.insert("namespace".to_owned(), namespace.as_str().into())),
        // A cluster-scoped object: the namespace of the body is dropped.
        None => drop(metadata.remove("namespace")),
    }
    Ok(())
}

/// Refuses an object of another namespace than that of the path.
pub(crate) fn check_namespace(call: &Call, object: &Value) -> Result<(), Status> {
    let sent_namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if call
        .namespace
        .as_ref()
        .is_none_or(|namespace| sent_namespace.is_empty() || sent_namespace == namespace)
    {
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Status::bad_request(why))
}

fn generated(prefix: &str) -> String {
    let mut rng = rand::rng();
    let suffix = (0..SUFFIX_CHARS).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]));
    prefix.chars().take(PREFIX_CHARS_MAX).chain(suffix).collect()
}

/// Removes the deletion fields of a new object: it is not terminating, whatever the client sent.
pub(crate) fn remove_deletion_fields(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
        metadata.remove("deletionGracePeriodSeconds");
    }
}

/// The error message for a change of an immutable field.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Refuses deletion fields that the client adds: only the server marks an object as terminating. A set deletion
/// timestamp stays, whatever the client sends.
pub(crate) fn validate_deletion_fields(old: &Value, new: &Value) -> Vec<FieldError> {
    let fields = ["deletionTimestamp", "deletionGracePeriodSeconds"].into_iter();
    let set_fields =
        fields.filter(|field| old["metadata"][field].is_null() && !new["metadata"][field].is_null());
    set_fields
        .map(|field| {
            FieldError::invalid(format!("metadata.{field}"), new["metadata"][field].clone(), IMMUTABLE)
        })
        .collect()
}

/// Carries over the metadata that an update cannot change, and increments the generation.
pub(crate) fn prepare_for_update(call: &Call, old: &Value, new: &mut Value) -> Result<(), Status> {
    let resource = &call.resource;
    new["apiVersion"] = resource.api_version().into();
    new["kind"] = (*resource.kind).into();
    let (stored, metadata) = (&old["metadata"], of(new)?);
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
        match stored.get(field) {
            Some(value) => drop(metadata.insert(field.to_owned(), value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
    metadata.remove("selfLink");
    metadata.remove("resourceVersion");
    // The finalizers of a namespace's spec change only through `finalize`.
    if call.subresource.as_deref() != Some("finalize") {
        strategy::prepare_for_update(resource, old, new);
    }
    // A status update does not increment the generation.
    if call.subresource.as_deref() != Some("status") && resource.generation.grows(old, new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        new["metadata"]["generation"] = generation.into();
    }
    Ok(())
}
