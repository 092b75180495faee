//! The body of a write, read and understood.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use openapi::codec;
use openapi::codec::FieldValidation;
use openapi::codec::protobuf;
use openapi::meta::field::FieldError;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;

use crate::call::Call;
use crate::limits::Arrival;
use crate::metadata;
use crate::negotiate::{self, Written};

/// As for Kubernetes.
pub(crate) const BODY_BYTES_MAX: usize = 3 << 20;
/// A client that still sends when the connection closes may never hear why. So of a body that is too large this
/// much is read and thrown away before it is refused.
const HEARD_BYTES_MAX: usize = 16 * BODY_BYTES_MAX;
/// As long as any request that is not a watch may take.
const BODY_LIMIT: Duration = Duration::from_secs(60);

/// An object, and what is odd about it without being wrong.
pub(crate) struct Sent {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// A body on its way here, from a socket or from a test.
pub trait Incoming: http_body::Body<Data = Bytes, Error: Into<BoxError>> {}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>>> Incoming for B {}

/// Why a body could not be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reads a body, as far as it may go, and for as long as nobody else needs its room.
pub(crate) async fn read(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    tokio::select! {
        biased;
        read = collect(body, arrival) => read,
        evicted = arrival.evicted() => Err(evicted),
        () = tokio::time::sleep(BODY_LIMIT) => {
            Err(Status::timeout("the body did not come within the limit", 1))
        }
    }
}

async fn collect(body: impl Incoming, arrival: &Arrival) -> Result<Bytes, Status> {
    let mut body = std::pin::pin!(body);
    let (mut kept, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.as_mut().frame().await {
        let frame = frame
            .map_err(|error| Status::bad_request(format!("the body could not be read: {}", error.into())))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen <= BODY_BYTES_MAX {
            arrival.add(data.len());
            kept.extend_from_slice(&data);
        } else if seen > HEARD_BYTES_MAX {
            break;
        }
    }
    match seen <= BODY_BYTES_MAX {
        true => Ok(kept.freeze()),
        false => Err(Status::too_large(&format!("limit is {BODY_BYTES_MAX}"))),
    }
}

/// Understands a body as an object of the kind the path names.
pub(crate) fn object(call: &Call, body: &[u8]) -> Result<Sent, Status> {
    let kind = (&*call.row.kind, &*call.row.version);
    let (value, findings) = match negotiate::body(&call.headers)? {
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

/// What was asked for; [`options`](crate::options) has seen to it that it is one of the three.
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
