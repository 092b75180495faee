//! What happens to an object between what a client sent and what is stored.
//!
//! ```text
//!   decoded ─► defaults ─► what the server says (metadata) ─► validation ─► addresses ─► commit
//! ```
//!
//! What depends on the object alone is decided in `openapi`; here it is put in order, for creating and for replacing.
//! Addresses come last, because they are the one thing that has to be given back if the write fails.

use jiff::Timestamp;
use openapi::fill;
use openapi::status::Status;
use serde_json::Value;
use storage::Store;

use crate::addresses::{self, Claims};
use crate::call::Call;
use crate::metadata;

/// Makes what was sent into a new object. Its name, and what it has claimed.
pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    object: &mut Value,
) -> Result<(String, Claims), Status> {
    fill::fill(&call.row, object);
    let name = metadata::born(call, object)?;
    fill::prepare_create(&call.row, object, Timestamp::now());
    metadata::check(call, &name, object)?;
    let claims = assign(store, call, None, object).await?;
    Ok((name, claims))
}

/// Makes what was sent into the successor of `old`, as far as it may be one. What it has claimed.
pub(crate) async fn update(
    store: &dyn Store,
    call: &Call,
    old: &Value,
    new: &mut Value,
) -> Result<Claims, Status> {
    fill::fill(&call.row, new);
    if call.subresource.is_none() {
        fill::prepare_update(&call.row, old, new, Timestamp::now());
    }
    metadata::carried(&call.row, old, new)?;
    let (name, _) = call.named()?;
    metadata::check(call, name, new)?;
    metadata::check_leaving(call, name, old, new)?;
    assign(store, call, Some(old), new).await
}

async fn assign(
    store: &dyn Store,
    call: &Call,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<Claims, Status> {
    match addresses::concern(&call.row) && call.subresource.is_none() {
        true => addresses::assign(store, call.cluster, call.query.dry_run()?, old, object).await,
        false => Ok(Claims::default()),
    }
}
