//! Reads one object.

use std::time::Duration;

use http::{Response, StatusCode};
use openapi::meta::status::Status;
use storage::{At, Entry, Key, Revision, Store};
use tokio::time::{Instant, sleep};

use crate::http::body::Body;
use crate::objects::store_errors::unreadable;
use crate::registry::call::{Call, CurrentObject};
use crate::response::render::Style;

/// How long a read waits for a resource version that the store has not reached yet.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn get(store: &dyn Store, call: &Call, style: &Style) -> Result<Response<Body>, Status> {
    let (name, key) = call.name_and_key()?;
    let version = call.query.version().map_err(|bad| bad.of_other())?;
    let found = not_older(store, &key, version).await?;
    style.answer(StatusCode::OK, &found.value.ok_or_else(|| call.not_found(name))?)
}

/// Returns the current object of the path.
pub(crate) async fn find(store: &dyn Store, call: &Call) -> Result<Entry, Status> {
    let (name, key) = call.name_and_key()?;
    let found = store.get(&key).await.map_err(unreadable)?;
    found.value.ok_or_else(|| call.not_found(name))
}

/// Returns the current object of the path, for a write that replaces it.
pub(crate) async fn find_current(store: &dyn Store, call: &Call) -> Result<CurrentObject, Status> {
    call.current(find(store, call).await?)
}

/// Reads a key at a revision no older than `version`. The client may have read that version from another server, and
/// must not see an older one; the store may be about to receive it.
pub(crate) async fn not_older(
    store: &dyn Store,
    key: &Key,
    version: Revision,
) -> Result<At<Option<Entry>>, Status> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = store.get(key).await.map_err(unreadable)?;
        if found.revision >= version {
            return Ok(found);
        }
        if Instant::now() >= until {
            return Err(Status::version_too_large(version.0, found.revision.0));
        }
        sleep(POLL_EVERY).await;
    }
}
