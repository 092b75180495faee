//! Releases addresses and node ports that no Service uses.
//!
//! An allocation is reconciled when its Service changes or is deleted, and once after every start: a server that
//! stopped between the allocation and the write of the Service leaves an allocation without a Service.
//!
//! A new Service of the same name may allocate the same address before it is written. So only allocations that are not
//! newer than the event are released.

use std::time::Duration;

use controller::queue::Outcome;
use storage::{Change, Expect, Key, Revision};

use crate::controllers::write::ReconcileError;
use crate::controllers::{Controllers, record_revision};
use crate::keys::ObjectKey;
use crate::objects::stored;
use crate::registry::allocation::{Allocation, SERVICES, allocations_of, service_of};

/// After a start, another server may still be about to write the Service of an existing allocation.
pub(super) const SETTLES: Duration = Duration::from_secs(90);

/// Reconciles an allocation after an event. Releases it only if it is not newer than the event's revision.
pub(super) async fn reconcile(
    controllers: &Controllers,
    (key, since): (Key, Revision),
) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    let Some((place, entry)) = ObjectKey::of(&key).zip(store.get(&key).await?.value) else {
        return Ok(Outcome::Done);
    };
    record_revision(entry.revision());
    let (Some(allocation), Ok(tree)) = (Allocation::at(&place), stored::tree(&entry)) else {
        return Ok(Outcome::Done);
    };
    let Some((namespace, name)) = service_of(&tree) else { return Ok(Outcome::Done) };
    let service = store.get(&SERVICES.key(place.cluster, Some(namespace), name)).await?.value;
    let service = service.and_then(|service| stored::tree(&service).ok()).unwrap_or_default();
    if entry.revision() <= since && !allocations_of(&service).contains(&allocation) {
        store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await?;
    }
    Ok(Outcome::Done)
}
