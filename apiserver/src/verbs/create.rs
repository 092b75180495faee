//! Making an object.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::status::{Grouped, Status};
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Revision, Store};

use crate::admit;
use crate::body;
use crate::call::{Call, unreadable, unwritten};
use crate::clusters;
use crate::metadata;
use crate::render::Style;
use crate::server::Body;
use crate::special::Holder;

/// A generated name that is taken is drawn again this often.
const ATTEMPTS: usize = 8;

pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let sent = body::object(call, bytes)?;
    let generated = metadata::text(&sent.object, "name").is_empty();
    let attempts = if generated { ATTEMPTS } else { 1 };
    let mut taken = String::new();
    for _ in 0..attempts {
        match attempt(store, call, sent.object.clone()).await? {
            Ok(entry) => return Ok(warned(style.answer(StatusCode::CREATED, &entry)?, &sent.warnings)),
            Err(name) => taken = name,
        }
    }
    Err(match generated {
        true => Status::no_free_name(call.grouped(), &taken),
        false => Status::already_exists(call.grouped(), &taken),
    })
}

/// Makes an object once: it, or the name that is taken.
pub(crate) async fn attempt(
    store: &dyn Store,
    call: &Call,
    mut object: Value,
) -> Result<Result<Entry, String>, Status> {
    let namespace = live_namespace(store, call).await?;
    let (name, claims) = admit::create(store, call, &mut object).await?;
    let made = match commit(store, call, &name, &object).await {
        Ok(Some(entry)) => still_live(store, call, &namespace, &entry).await.map(|()| Some(entry)),
        other => other,
    };
    match &made {
        Ok(Some(_)) => claims.done(store).await,
        Ok(None) | Err(_) => claims.undo(store).await,
    }
    Ok(made?.ok_or(name))
}

async fn live_namespace(store: &dyn Store, call: &Call) -> Result<Option<String>, Status> {
    match &call.namespace {
        Some(namespace) => clusters::live_namespace(store, call.cluster, namespace).await.map(Some),
        None => Ok(None),
    }
}

/// The namespace may have begun to go while the object was written, and whoever empties it may have looked
/// before. One of the two sees the other: the namespace is marked first and emptied then, the object is written
/// first and the namespace looked at then.
async fn still_live(
    store: &dyn Store,
    call: &Call,
    before: &Option<String>,
    entry: &Entry,
) -> Result<(), Status> {
    let refused = match live_namespace(store, call).await {
        Ok(now) if now == *before || call.query.dry_run()? => return Ok(()),
        Ok(_) => {
            Status::not_found(Grouped::new("", "namespaces"), call.namespace.as_deref().unwrap_or_default())
        }
        Err(status) => status,
    };
    // If this fails, somebody else has changed or removed it, and it is theirs to delete.
    let _ = store.commit(entry.key().clone(), Expect::Revision(entry.revision()), Change::Delete).await;
    Err(refused)
}

/// Stores a new object. None if the name is taken.
async fn commit(store: &dyn Store, call: &Call, name: &str, object: &Value) -> Result<Option<Entry>, Status> {
    let (key, value) = (call.key(name), call.encode(object));
    let id = clusters::id(object).filter(|_| Holder::of(&call.row) == Some(Holder::LogicalCluster));
    if call.query.dry_run()? || id.is_some() {
        let found = store.get(&key).await.map_err(unreadable)?;
        if found.value.is_some() {
            return Ok(None);
        }
    }
    if call.query.dry_run()? {
        return Ok(Some(Entry::new(key, Revision::ZERO, value)));
    }
    // A logical cluster has what it is born with before anybody can find it.
    if let Some(id) = id {
        clusters::fill(store, id).await.map_err(|error| unwritten(call, name, error))?;
    }
    match store.commit(key, Expect::Absent, Change::Put(value)).await {
        Ok(event) => Ok(event.current),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
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
