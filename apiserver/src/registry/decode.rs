//! The body of a write, decoded as an object of the kind that its path names.

use api::meta::field::FieldError;
use openapi::codec;
use openapi::codec::FieldValidation;
use openapi::codec::protobuf;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;

use crate::objects::metadata;
use crate::registry::call::Call;
use crate::request::negotiation;
use crate::request::negotiation::Written;

/// A decoded object and the warnings about it.
pub(crate) struct Sent {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Decodes a body as an object of the kind that the path names.
pub(crate) fn object(call: &Call, body: &[u8]) -> Result<Sent, Status> {
    let kind = (&*call.resource.kind, &*call.resource.version);
    let (value, strict_errors) = match negotiation::body(&call.headers)? {
        Written::Protobuf => {
            let decoded = protobuf::decode_as(body, &call.resource.api_version(), &call.resource.kind)
                .map_err(|error| Status::bad_request(error.message(kind, body)))?;
            (decoded.value, Vec::new())
        }
        Written::Text(syntax) => {
            let decoded = match call.resource.schema() {
                Some(schema) => codec::decode_as(body, syntax, schema),
                None => codec::decode(body, syntax),
            };
            let decoded = decoded.map_err(|error| Status::bad_request(error.message(kind, body, syntax)))?;
            (decoded.value, decoded.strict_errors)
        }
    };
    match call.resource.custom {
        Some(_) => recognize(call, &value, body)?,
        None => check_kind(call, &value)?,
    }
    let (kind, version) = (&*call.resource.kind, &*call.resource.version);
    let refused = |why: String| Status::bad_request(codec::mismatch_message(kind, (kind, version), &why));
    let warnings = validation(call).enforce(&strict_errors).map_err(refused)?;
    Ok(Sent { object: value, warnings })
}

/// Returns the `fieldValidation` of the query, which [`options`](crate::request::options) has validated.
pub(crate) fn validation(call: &Call) -> FieldValidation {
    FieldValidation::parse(call.query.text("fieldValidation")).unwrap_or_default()
}

/// Checks that `kind` and `apiVersion` of the body are those of the path, or missing.
pub(crate) fn check_kind(call: &Call, object: &Value) -> Result<(), Status> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let resource = &call.resource;
    let agrees = |sent: &str, expected: &str| sent.is_empty() || sent == expected;
    if agrees(&version, &resource.api_version()) && agrees(&kind, &resource.kind) {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}",
        resource.kind
    )))
}

/// Checks `kind` and `apiVersion` of a custom object, which must have both.
fn recognize(call: &Call, object: &Value, body: &[u8]) -> Result<(), Status> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (kind, expected) = (&*call.resource.kind, call.resource.api_version());
    if text("kind").is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(Status::bad_request(codec::unrecognized_message(kind, &why, body)));
    }
    if text("apiVersion") != expected {
        let version = text("apiVersion");
        return Err(Status::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    same_kind(call, object)
}

/// Checks that a patch has not changed `kind` or `apiVersion` of a custom object.
pub(crate) fn same_kind(call: &Call, object: &Value) -> Result<(), Status> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (kind, version) = (&*call.resource.kind, call.resource.api_version());
    let other = |field: &str, expected: &str| {
        (text(field) != expected)
            .then(|| FieldError::invalid(field, text(field), format!("must be {expected}")))
    };
    let errors: Vec<FieldError> =
        [other("kind", kind), other("apiVersion", &version)].into_iter().flatten().collect();
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let grouped = GroupResource::new(&call.resource.group, text("kind"));
            Err(Status::invalid(grouped, metadata::text(object, "name"), &errors))
        }
    }
}
