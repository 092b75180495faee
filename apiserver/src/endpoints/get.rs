//! Reads one object.

use std::time::Duration;

use http::{Response, StatusCode};
use openapi::meta::status::Status;
use storage::{At, Entry, Key, Revision, Store};
use tokio::time::{Instant, sleep};

use crate::http::body::Body;
use crate::objects::store_errors::unreadable;
use crate::registry::call::Call;
use crate::response::render::Style;

/// How long a reader waits for a version it has heard of elsewhere.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) async fn get(store: &dyn Store, call: &Call, style: &Style) -> Result<Response<Body>, Status> {
    let (name, key) = call.named()?;
    let version = call.query.version().map_err(|bad| bad.of_other())?;
    let found = not_older(store, &key, version).await?;
    style.answer(StatusCode::OK, &found.value.ok_or_else(|| call.not_found(name))?)
}

/// The object named in the path, as it is now.
pub(crate) async fn find(store: &dyn Store, call: &Call) -> Result<Entry, Status> {
    let (name, key) = call.named()?;
    let found = store.get(&key).await.map_err(unreadable)?;
    found.value.ok_or_else(|| call.not_found(name))
}

/// What is under a key, in a state no older than a version. A client that has seen a version must not be shown an
/// older one; the store may be about to learn of it.
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
        sleep(LOOK_EVERY).await;
    }
}
