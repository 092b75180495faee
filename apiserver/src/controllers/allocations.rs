//! Freeing addresses and ports that no Service holds any more.
//!
//! A claim is looked at when the Service that held it changed or went, and once after every start: a server that died
//! between claiming and writing leaves a claim for nobody.
//!
//! A Service of the same name may be in the making meanwhile, and claims before it is written. So only claims that
//! are older than what made us look are dropped.

use std::time::Duration;

use controller::queue::Outcome;
use storage::{Change, Expect, Key, Revision};

use crate::controllers::Controllers;
use crate::controllers::write::Trouble;
use crate::keys::Place;
use crate::objects::stored;
use crate::registry::allocation::{Claim, SERVICES, held, holder};

/// A claim that is there when we begin may be another server's, whose Service is about to be written.
pub(super) const SETTLES: Duration = Duration::from_secs(90);

/// Looks at a claim because of what happened at a revision.
pub(super) async fn look(
    controllers: &Controllers,
    (key, since): (Key, Revision),
) -> Result<Outcome, Trouble> {
    let store = &*controllers.seen;
    let Some((place, entry)) = Place::of(&key).zip(store.get(&key).await?.value) else {
        return Ok(Outcome::Done);
    };
    let (Some(claim), Ok(tree)) = (Claim::at(&place), stored::tree(&entry)) else {
        return Ok(Outcome::Done);
    };
    let Some((namespace, name)) = holder(&tree) else { return Ok(Outcome::Done) };
    let service = store.get(&SERVICES.key(place.cluster, Some(namespace), name)).await?.value;
    let service = service.and_then(|service| stored::tree(&service).ok()).unwrap_or_default();
    if entry.revision() <= since && !held(&service).contains(&claim) {
        store.commit(key, Expect::Revision(entry.revision()), Change::Delete).await?;
    }
    Ok(Outcome::Done)
}
