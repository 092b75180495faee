//! The body of a write, decoded as an object of the kind that its path names.

use openapi::codec;
use openapi::codec::FieldValidation;
use openapi::codec::protobuf;
use openapi::meta::field::FieldError;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;

use crate::objects::metadata;
use crate::registry::call::Call;
use crate::request::negotiation;
use crate::request::negotiation::Written;

/// An object, and what is odd about it without being wrong.
pub(crate) struct Sent {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Understands a body as an object of the kind the path names.
pub(crate) fn object(call: &Call, body: &[u8]) -> Result<Sent, Status> {
    let kind = (&*call.row.kind, &*call.row.version);
    let (value, findings) = match negotiation::body(&call.headers)? {
        Written::Protobuf => {
            let decoded = protobuf::decode_as(body, &call.row.api_version(), &call.row.kind)
                .map_err(|error| Status::bad_request(error.message(kind, body)))?;
            (decoded.value, Vec::new())
        }
        Written::Text(syntax) => {
            let decoded = match call.row.schema() {
                Some(schema) => codec::decode_as(body, syntax, schema),
                None => codec::decode(body, syntax),
            };
            let decoded = decoded.map_err(|error| Status::bad_request(error.message(kind, body, syntax)))?;
            (decoded.value, decoded.strict_errors)
        }
    };
    match call.row.custom {
        Some(_) => recognize(call, &value, body)?,
        None => check_kind(call, &value)?,
    }
    let (kind, version) = (&*call.row.kind, &*call.row.version);
    let refused = |why: String| Status::bad_request(codec::mismatch_message(kind, (kind, version), &why));
    let warnings = validation(call).enforce(&findings).map_err(refused)?;
    Ok(Sent { object: value, warnings })
}

/// What was asked for; [`options`](crate::request::options) has seen to it that it is one of the three.
pub(crate) fn validation(call: &Call) -> FieldValidation {
    FieldValidation::parse(call.query.text("fieldValidation")).unwrap_or_default()
}

/// What the body calls itself must be what the path calls it; it may also say nothing.
pub(crate) fn check_kind(call: &Call, object: &Value) -> Result<(), Status> {
    let said = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (said("apiVersion"), said("kind"));
    let row = &call.row;
    let agrees = |said: &str, meant: &str| said.is_empty() || said == meant;
    if agrees(&version, &row.api_version()) && agrees(&kind, &row.kind) {
        return Ok(());
    }
    Err(Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}", row.kind)))
}

/// The same for objects of custom kinds, which have to say what they are.
fn recognize(call: &Call, object: &Value, body: &[u8]) -> Result<(), Status> {
    let said = |field: &str| object[field].as_str().unwrap_or_default();
    let (kind, meant) = (&*call.row.kind, call.row.api_version());
    if said("kind").is_empty() {
        let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
        return Err(Status::bad_request(codec::unrecognized_message(kind, &why, body)));
    }
    if said("apiVersion") != meant {
        let said = said("apiVersion");
        return Err(Status::bad_request(format!(
            "the API version in the data ({said}) does not match the expected API version ({meant})"
        )));
    }
    same_kind(call, object)
}

/// A custom object that was changed is still of its kind.
pub(crate) fn same_kind(call: &Call, object: &Value) -> Result<(), Status> {
    let said = |field: &str| object[field].as_str().unwrap_or_default();
    let (kind, version) = (&*call.row.kind, call.row.api_version());
    let other = |field: &str, meant: &str| {
        (said(field) != meant).then(|| FieldError::invalid(field, said(field), format!("must be {meant}")))
    };
    let errors: Vec<FieldError> =
        [other("kind", kind), other("apiVersion", &version)].into_iter().flatten().collect();
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let grouped = GroupResource::new(&call.row.group, said("kind"));
            Err(Status::invalid(grouped, metadata::text(object, "name"), &errors))
        }
    }
}
