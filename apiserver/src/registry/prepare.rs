//! What happens to an object between what a client sent and what is stored.
//!
//! ```text
//!   decoded ─► defaults ─► owners ─► what the server says (metadata) ─► validation ─► guard ─► addresses ─► commit
//! ```
//!
//! What depends on the object alone is decided in `openapi`; here it is put in order, for creating and for replacing.
//! Addresses come last, because they are the one thing that has to be given back if the write fails.

use jiff::Timestamp;
use openapi::meta::field::FieldError;
use openapi::meta::status::Status;
use openapi::{defaulting, validation};
use serde_json::Value;
use storage::Store;

use crate::registry::allocation;
use crate::registry::allocation::Claims;
use crate::registry::call::Call;
use crate::registry::managed_fields;
use crate::registry::managed_fields::Owners;
use crate::registry::metadata;
use crate::registry::strategy;
use crate::registry::{escalation, signers};

/// Makes what was sent into a new object. Its name, and what it has claimed.
pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    object: &mut Value,
    owners: Owners,
) -> Result<(String, Claims), Status> {
    metadata::uncondemned(object);
    defaulting::apply_defaults(&call.row, object);
    let owners = owners.of_new(call, object);
    escalation::check(call, None, object)?;
    let name = metadata::born(call, object)?;
    defaulting::prepare_create(&call.row, object, Timestamp::now());
    strategy::requested(call, object);
    managed_fields::put(object, owners);
    let mut errors = validation::validate_create(&call.row, object);
    errors.extend(strategy::misnamed(&call.row, &name));
    errors.extend(strategy::check(&call.row, object));
    refuse(call, &name, &errors)?;
    signers::check(call, None, object)?;
    call.check_guard(&name, None, Some(object)).await?;
    let claims = assign(store, call, None, object).await?;
    Ok((name, claims))
}

/// Makes what was sent, and filled, into the successor of `old`, as far as it may be one. What it has claimed.
pub(crate) async fn update(
    store: &dyn Store,
    call: &Call,
    old: &Value,
    new: &mut Value,
) -> Result<Claims, Status> {
    let (row, now) = (&call.row, Timestamp::now());
    escalation::check(call, Some(old), new)?;
    match call.subresource.as_deref() {
        None => defaulting::prepare_update(row, old, new, now),
        Some("status") => defaulting::prepare_status(row, old, new, now),
        Some("approval") => defaulting::prepare_approval(old, new, now),
        Some(_) => {}
    }
    let mut errors = metadata::condemned(old, new);
    metadata::carried(call, old, new)?;
    let (name, _) = call.named()?;
    errors.extend(match call.subresource.as_deref() {
        None => {
            let mut wrong = strategy::check(row, new);
            wrong.extend(validation::validate_update(row, old, new));
            wrong
        }
        Some("status") => validation::validate_status(&call.row, old, new),
        Some(part) => validation::validate_subresource(row, part, old, new),
    });
    refuse(call, name, &errors)?;
    signers::check(call, Some(old), new)?;
    call.check_guard(name, Some(old), Some(new)).await?;
    assign(store, call, Some(old), new).await
}

fn refuse(call: &Call, name: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(call.group_kind(), name, errors)) }
}

async fn assign(
    store: &dyn Store,
    call: &Call,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<Claims, Status> {
    match allocation::concern(&call.row) && call.subresource.is_none() {
        true => allocation::assign(store, call.cluster, call.query.dry_run(), old, object).await,
        false => Ok(Claims::default()),
    }
}
