//! Replacing an object, and what replacing and patching have in common.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::field::FieldError;
use openapi::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Store};

use super::create::warned;
use super::get;
use crate::admit;
use crate::body;
use crate::call::{Call, unwritten};
use crate::deletion;
use crate::metadata;
use crate::render::Style;
use crate::server::Body;

const ATTEMPTS: usize = 5;

pub(crate) async fn update(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let sent = body::object(call, bytes)?;
    let (name, _) = call.named()?;
    let said = metadata::text(&sent.object, "name");
    if !said.is_empty() && said != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        )));
    }
    // Who names a version loses at once if it is another by now; who names none replaces whatever is there.
    for _ in 0..ATTEMPTS {
        let entry = get::find(store, call).await?;
        expected(call, name, &sent.object, &entry)?;
        if let Some(entry) = replace(store, call, &entry, sent.object.clone()).await? {
            return Ok(warned(style.answer(StatusCode::OK, &entry)?, &sent.warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// The client may say which version it replaces; some kinds insist.
fn expected(call: &Call, name: &str, object: &Value, entry: &Entry) -> Result<(), Status> {
    let old = call.tree(entry)?;
    let (said, is) = (metadata::text(object, "uid"), metadata::text(&old, "uid"));
    if !said.is_empty() && said != is {
        let why = format!("Precondition failed: UID in precondition: {said}, UID in object meta: {is}");
        return Err(Status::conflict(call.grouped(), name, &why));
    }
    match metadata::text(object, "resourceVersion") {
        "" if call.row.update_needs_version => {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            Err(Status::invalid(call.grouped_kind(), name, &[error]))
        }
        version if !version.is_empty() && version != entry.revision().to_string() => {
            Err(Status::modified(call.grouped(), name))
        }
        _ => Ok(()),
    }
}

/// Puts `new` in the place of `entry`, less what this request may not change. None if somebody was faster.
pub(crate) async fn replace(
    store: &dyn Store,
    call: &Call,
    entry: &Entry,
    mut new: Value,
) -> Result<Option<Entry>, Status> {
    let old = call.tree(entry)?;
    metadata::place(call, &mut new)?;
    confine(call, &old, &mut new);
    let claims = admit::update(store, call, &old, &mut new).await?;
    let replaced = commit(store, call, entry, &old, &new).await;
    match &replaced {
        Ok(Some(_)) => claims.done(store).await,
        Ok(None) | Err(_) => claims.undo(store).await,
    }
    replaced
}

async fn commit(
    store: &dyn Store,
    call: &Call,
    entry: &Entry,
    old: &Value,
    new: &Value,
) -> Result<Option<Entry>, Status> {
    let (name, key) = call.named()?;
    let value = call.encode(new);
    // What changes nothing is no write: no revision, no event.
    if value == *entry.value() {
        return Ok(Some(entry.clone()));
    }
    let finished = deletion::ends_with(&call.row, old, new);
    if call.query.dry_run()? {
        return Ok(Some(Entry::new(key, entry.revision(), value)));
    }
    // An object that waits for its finalizers goes with the last of them.
    let change = if finished { Change::Delete } else { Change::Put(value.clone()) };
    match store.commit(key.clone(), Expect::Revision(entry.revision()), change).await {
        Ok(event) => Ok(Some(event.current.unwrap_or_else(|| Entry::new(key, event.revision, value)))),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
}

/// The main path leaves the status alone, and the status path everything else.
fn confine(call: &Call, old: &Value, new: &mut Value) {
    let keep = |new: &mut Value, field: &str| match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => drop(new.as_object_mut().and_then(|fields| fields.remove(field))),
    };
    match call.subresource.as_deref() {
        Some("status") => {
            let (status, managed) = (new.get("status").cloned(), old.clone());
            *new = managed;
            match status {
                Some(status) => new["status"] = status,
                None => drop(new.as_object_mut().and_then(|fields| fields.remove("status"))),
            }
        }
        _ if call.row.has_status() => keep(new, "status"),
        _ => {}
    }
}
