//! Server-side apply, for existing and for new objects.

use api::meta::field::FieldError;
use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::codec;
use openapi::codec::typed;
use openapi::codec::typed::Mismatch;
use openapi::codec::{DecodeError, Decoded, Syntax};
use openapi::defaulting;
use openapi::meta::status::Status;
use openapi::patch::{self, apply::Applied};
use openapi::schema::Origin;
use serde_json::{Value, json};
use storage::{Entry, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::create::warned;
use crate::endpoints::update;
use crate::endpoints::update::Version;
use crate::endpoints::{create, get};
use crate::http::body::Body;
use crate::objects::metadata;
use crate::registry::call::{Call, CurrentObject};
use crate::registry::decode;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;
use crate::registry::metadata::IMMUTABLE;
use crate::response::render::Style;

pub(crate) async fn apply(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let (name, _) = call.name_and_key()?;
    let (config, config_warnings) = config(call, bytes)?;
    for _ in 0..ATTEMPTS {
        let mut warnings = config_warnings.clone();
        let (code, written) = match get::find_current(store, call).await {
            Err(status) if status.code == 404 && call.subresource.is_none() => {
                (StatusCode::CREATED, make(store, call, name, &config, &mut warnings).await?)
            }
            found => (StatusCode::OK, change(store, call, name, &config, &found?, &mut warnings).await?),
        };
        if let Some(entry) = written {
            return Ok(warned(style.answer(code, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Decodes the body, which is YAML or JSON, and returns it with warnings about it.
pub(crate) fn config(call: &Call, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let undecoded = |why: &str| Status::bad_request(format!("error decoding YAML: {why}"));
    let unread = |error: DecodeError| undecoded(&format!("error converting YAML to JSON: {error}"));
    let Decoded { value, strict_errors } = read(bytes).map_err(unread)?;
    let parsed = match value {
        Value::Object(_) => None,
        Value::Null => Some(json!({})),
        Value::Array(_) => return Err(undecoded(&mismatch("array"))),
        Value::String(_) => return Err(undecoded(&mismatch("string"))),
        Value::Number(_) => return Err(undecoded(&mismatch("number"))),
        Value::Bool(_) => return Err(undecoded(&mismatch("bool"))),
    };
    let mut config = parsed.unwrap_or(value);
    managed_fields::remove_cluster_annotation(&mut config);
    of_kind(call, &config)?;
    let strict = |why: String| {
        let why = why.trim_start_matches("strict decoding error: ");
        Status::bad_request(format!("error strict decoding YAML: error converting YAML to JSON: {why}"))
    };
    let warnings = decode::validation(call).enforce(&strict_errors).map_err(strict)?;
    Ok((config, warnings))
}

/// Decodes JSON as JSON, because that is faster and most clients send it. Anything else is decoded as YAML, also JSON
/// with strict errors.
fn read(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    match codec::decode(bytes, Syntax::Json) {
        Ok(decoded) if decoded.strict_errors.is_empty() => Ok(decoded),
        _ => codec::decode(bytes, Syntax::Yaml),
    }
}

fn mismatch(found: &str) -> String {
    let into = "Go value of type map[string]interface {}";
    format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into {into}")
}

/// Checks that the body has the `apiVersion` and `kind` of the path.
fn of_kind(call: &Call, config: &Value) -> Result<(), Status> {
    let text = |field: &str| config[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == call.resource.api_version() && kind == &*call.resource.kind {
        return Ok(());
    }
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    Err(Status::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
}

/// Creates a missing object. Returns None if another client creates it first.
async fn make(
    store: &dyn Store,
    call: &Call,
    name: &str,
    config: &Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Entry>, Status> {
    call.authorization.authorize_create()?;
    let blank = defaulting::empty_object(&call.resource);
    let (mut object, managed) = settled(call, &blank, config, &blank)?;
    update::check_name(call, name, &object)?;
    let uid = metadata::text(&object, "uid");
    if !uid.is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        );
        return Err(Status::conflict(call.grouped(), name, &why));
    }
    metadata::of(&mut object)?.remove("resourceVersion");
    warnings.extend(update::about(call, None, &object));
    Ok(create::attempt(store, call, object, managed).await?.ok())
}

/// Updates an existing object. Returns None on a conflict.
async fn change(
    store: &dyn Store,
    call: &Call,
    name: &str,
    config: &Value,
    current: &CurrentObject,
    warnings: &mut Vec<String>,
) -> Result<Option<Entry>, Status> {
    let old = &current.object;
    let (new, managed) = settled(call, old, config, &defaulting::empty_object(&call.resource))?;
    update::check_name(call, name, &new)?;
    same_uid(call, name, old, &new)?;
    update::expected(call, name, &new, current, Version::May)?;
    warnings.extend(update::about(call, Some(old), &new));
    update::replace(store, call, current, new, managed).await
}

/// Refuses a patch that changes the uid.
pub(crate) fn same_uid(call: &Call, name: &str, old: &Value, new: &Value) -> Result<(), Status> {
    let (uid, is) = (metadata::text(new, "uid"), metadata::text(old, "uid"));
    if uid.is_empty() || uid == is {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, IMMUTABLE);
    Err(Status::invalid(call.group_kind(), name, &[error]))
}

/// Returns the merged object, decoded as its kind, and its managed fields.
pub(crate) fn settled(
    call: &Call,
    live: &Value,
    config: &Value,
    blank: &Value,
) -> Result<(Value, ManagedFields), Status> {
    let Applied { object, managed_fields } = managed_fields::applied(call, live, config, blank)?;
    let object = match call.resource.schema() {
        Some(schema) if call.resource.origin == Origin::BuiltIn => {
            let unreadable = |why: Mismatch| patch::unreadable(&config.to_string(), &why.to_string());
            typed::decode_tree(object, schema).map_err(unreadable)?.value
        }
        _ => object,
    };
    Ok((object, ManagedFields::Known(managed_fields)))
}
