//! Reading one object.

use bytes::BytesMut;
use http::{Response, StatusCode};
use openapi::status::Status;
use openapi::table::Heading;
use storage::{Entry, Store};

use crate::call::{Call, unreadable};
use crate::render::{self, Style};
use crate::server::Body;

pub(crate) async fn get(store: &dyn Store, call: &Call, style: &Style<'_>) -> Result<Response<Body>, Status> {
    let entry = find(store, call).await?;
    let mut out = BytesMut::new();
    style.object(&entry, entry.revision(), Heading::Shown, &mut out);
    Ok(render::json(StatusCode::OK, out))
}

/// The object named in the path, as it is now.
pub(crate) async fn find(store: &dyn Store, call: &Call) -> Result<Entry, Status> {
    let (name, key) = call.named()?;
    let found = store.get(&key).await.map_err(unreadable)?;
    found.value.ok_or_else(|| call.not_found(name))
}
