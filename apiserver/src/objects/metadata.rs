//! Access to metadata, and metadata of objects that the server creates.

pub(crate) use api::meta::is_being_deleted;
pub(crate) use api::meta::time::{now, now_micros as micro_now, seconds as time};
use openapi::meta::status::Status;
use serde_json::{Map, Value, json};

/// Returns the metadata of an object as a map. Creates it if it is missing.
pub(crate) fn of(object: &mut Value) -> Result<&mut Map<String, Value>, Status> {
    let fields =
        object.as_object_mut().ok_or_else(|| Status::bad_request("the object is not a JSON object"))?;
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut().ok_or_else(|| Status::bad_request("metadata is not a JSON object"))
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// Returns an object that the server creates.
pub(crate) fn made(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut metadata =
        json!({ "name": name, "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": now() });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata })
}
