//! Releases addresses and ports that no Service holds any more.
//!
//! An allocation is reconciled when its Service changed or was deleted, and once after every start: a server that died
//! between allocating and writing leaves an allocation without a Service.
//!
//! A Service of the same name may be in the making meanwhile, and allocates before it is written. So only allocations that
//! are older than what made us look are dropped.

use std::time::Duration;

use controller::queue::Outcome;
use storage::{Change, Expect, Key, Revision};

use crate::controllers::Controllers;
use crate::controllers::write::ReconcileError;
use crate::keys::ObjectKey;
use crate::objects::stored;
use crate::registry::allocation::{Allocation, SERVICES, held, holder};

/// An allocation from before the start may be another server's, whose Service is about to be written.
pub(super) const SETTLES: Duration = Duration::from_secs(90);

/// Reconciles an allocation after an event at a revision.
pub(super) async fn reconcile(
    controllers: &Controllers,
    (key, since): (Key, Revision),
) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.seen;
    let Some((place, entry)) = ObjectKey::of(&key).zip(store.get(&key).await?.value) else {
        return Ok(Outcome::Done);
    };
    let (Some(allocation), Ok(tree)) = (Allocation::at(&place), stored::tree(&entry)) else {
        return Ok(Outcome::Done);
    };
    let Some((namespace, name)) = holder(&tree) else { return Ok(Outcome::Done) };
    let service = store.get(&SERVICES.key(place.cluster, Some(namespace), name)).await?.value;
    let service = service.and_then(|service| stored::tree(&service).ok()).unwrap_or_default();
    if entry.revision() <= since && !held(&service).contains(&allocation) {
        store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await?;
    }
    Ok(Outcome::Done)
}
