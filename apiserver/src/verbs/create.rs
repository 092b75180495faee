//! Making an object.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::field::FieldError;
use openapi::names;
use openapi::status::Status;
use openapi::table::Heading;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Store};

use crate::body;
use crate::call::{Call, unwritten};
use crate::metadata;
use crate::render::{self, Style};
use crate::server::Body;
use crate::stored;

/// A generated name that is taken is drawn again this often.
const ATTEMPTS: usize = 8;

pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    style: &Style<'_>,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let sent = body::object(call, bytes)?;
    let generated = metadata::text(&sent.object, "name").is_empty();
    let attempts = if generated { ATTEMPTS } else { 1 };
    let mut taken = String::new();
    for _ in 0..attempts {
        let mut object = sent.object.clone();
        let name = metadata::born(call, &mut object)?;
        check_name(call, &name)?;
        match commit(store, call, &name, &object).await? {
            Some(entry) => return Ok(warned(written(style, StatusCode::CREATED, &entry), &sent.warnings)),
            None => taken = name,
        }
    }
    Err(match generated {
        true => Status::no_free_name(call.grouped(), &taken),
        false => Status::already_exists(call.grouped(), &taken),
    })
}

/// Stores a new object. None if the name is taken.
async fn commit(store: &dyn Store, call: &Call, name: &str, object: &Value) -> Result<Option<Entry>, Status> {
    let (key, value) = (call.key(name), stored::encode(object));
    if call.query.dry_run() {
        let found = store.get(&key).await.map_err(crate::call::unreadable)?;
        return Ok(found.value.is_none().then(|| Entry::new(key, found.revision, value)));
    }
    match store.commit(key, Expect::Absent, Change::Put(value)).await {
        Ok(event) => Ok(event.current),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
}

fn check_name(call: &Call, name: &str) -> Result<(), Status> {
    let errors: Vec<FieldError> = match name {
        "" => vec![FieldError::required("metadata.name", "name or generateName is required")],
        // Every name must at least be part of a path; most kinds ask for more.
        _ => names::path_segment(name).into_iter().map(|why| FieldError::invalid("metadata.name", name, why)).collect(),
    };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(call.grouped_kind(), name, &errors)) }
}

/// The object as it was written.
pub(crate) fn written(style: &Style<'_>, code: StatusCode, entry: &Entry) -> Response<Body> {
    let mut out = bytes::BytesMut::new();
    style.object(entry, entry.revision(), Heading::Shown, &mut out);
    render::json(code, out)
}

/// Adds what clients print but do not fail on.
pub(crate) fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = format!("299 - \"{quoted}\"").parse() {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}
