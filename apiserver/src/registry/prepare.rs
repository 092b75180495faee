//! Prepares an object for storage: every create and update takes these steps.
//!
//! ```text
//!   decoded ─► defaults ─► mutate ─► strategy, metadata ─► validation ─► validate ─► allocation ─► commit
//!                         └──────────────── admission ────────────────────┘
//! ```
//!
//! Steps that depend only on the object are in `openapi`; this module puts them in order, for creates and for updates.
//! Allocation comes last, because a write that fails must release its allocations.

use api::meta::field::FieldError;
use jiff::Timestamp;
use openapi::meta::status::Status;
use openapi::{defaulting, validation};
use serde_json::Value;
use storage::Store;

use crate::registry::allocation;
use crate::registry::allocation::Allocations;
use crate::registry::call::Call;
use crate::registry::escalation;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;
use crate::registry::metadata;
use crate::registry::strategy;

/// Prepares a new object. Returns its name and its allocations.
pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    object: &mut Value,
    managed: ManagedFields,
) -> Result<(String, Allocations), Status> {
    metadata::remove_deletion_fields(object);
    defaulting::apply_defaults(&call.resource, object);
    let managed = managed.of_new(call, object);
    call.mutate(None, object).await?;
    escalation::check(call, None, object)?;
    let name = metadata::prepare_for_create(call, object)?;
    defaulting::prepare_create(&call.resource, object, Timestamp::now());
    strategy::set_requester(call, object);
    managed_fields::put(object, managed);
    let mut errors = validation::validate_create(&call.resource, object);
    errors.extend(strategy::validate_name(&call.resource, &name));
    errors.extend(strategy::validate(&call.resource, object));
    refuse(call, &name, &errors)?;
    call.validate_admission(&name, None, Some(object)).await?;
    let allocations = assign(store, call, None, object).await?;
    Ok((name, allocations))
}

/// Prepares `new`, which has its defaults, to replace `old`. Returns its allocations.
pub(crate) async fn update(
    store: &dyn Store,
    call: &Call,
    old: &Value,
    new: &mut Value,
) -> Result<Allocations, Status> {
    let (resource, now) = (&call.resource, Timestamp::now());
    call.mutate(Some(old), new).await?;
    escalation::check(call, Some(old), new)?;
    match call.subresource.as_deref() {
        None => defaulting::prepare_update(resource, old, new, now),
        Some("status") => defaulting::prepare_status(resource, old, new, now),
        Some("approval") => defaulting::prepare_approval(old, new, now),
        Some(_) => {}
    }
    let mut errors = metadata::validate_deletion_fields(old, new);
    metadata::prepare_for_update(call, old, new)?;
    let (name, _) = call.name_and_key()?;
    errors.extend(match call.subresource.as_deref() {
        None => {
            let mut wrong = strategy::validate(resource, new);
            wrong.extend(validation::validate_update(resource, old, new));
            wrong
        }
        Some("status") => validation::validate_status(&call.resource, old, new),
        Some(subresource) => validation::validate_subresource(resource, subresource, old, new),
    });
    refuse(call, name, &errors)?;
    call.validate_admission(name, Some(old), Some(new)).await?;
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
) -> Result<Allocations, Status> {
    match allocation::concern(&call.resource) && call.subresource.is_none() {
        true => allocation::assign(store, call.cluster, call.query.dry_run(), old, object).await,
        false => Ok(Allocations::default()),
    }
}
