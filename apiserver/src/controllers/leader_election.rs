//! Which of several servers runs the controllers: the one that holds a Lease.
//!
//! ```text
//!   read ─► no holder, or one that has not renewed it while we watched ─► take it ─► renew …  ─► lost, or released
//! ```
//!
//! It saves work and nothing else: controllers name the revision of everything they write, so two that believe to
//! lead do no harm. Clocks of different machines are not compared: a lease has run out when it has not changed for as
//! long as it lasts by our own clock.

use std::time::Duration;

use api::cluster::Id;
use serde_json::Value;
use storage::{Change, Entry, Expect, Revision, Store};
use tokio::time::Instant;

use crate::controllers::write::ReconcileError;
use crate::keys::Collection;
use crate::objects::{metadata, stored};

/// How long a lease lasts without being renewed.
const LASTS: Duration = Duration::from_secs(15);
/// How often it is renewed, or looked at by those who wait for it.
const EVERY: Duration = Duration::from_secs(3);
/// A holder that has not managed to renew it for this long stops: well before another server begins.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

const LEASES: Collection<'static> = Collection { group: "coordination.k8s.io", plural: "leases" };
const NAMESPACE: &str = "kube-system";
const NAME: &str = "holon-controllers";

/// What one server knows of the lease.
#[derive(Debug)]
pub(super) struct LeaderElection<'a> {
    store: &'a dyn Store,
    /// Tells this server from all others.
    name: String,
    /// The revision of the lease, and since when it has been that.
    seen: Option<(Revision, Instant)>,
}

/// What to do about the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Take,
    Renew,
    Wait,
}

impl<'a> LeaderElection<'a> {
    pub(super) fn new(store: &'a dyn Store) -> LeaderElection<'a> {
        LeaderElection { store, name: uuid::Uuid::new_v4().to_string(), seen: None }
    }

    /// Returns once we lead.
    pub(super) async fn won(&mut self) {
        loop {
            match self.turn().await {
                Ok(true) => return tracing::info!(holder = self.name, "this server runs the controllers"),
                Ok(false) | Err(ReconcileError::Conflict) => {}
                Err(error) => tracing::warn!(%error, "cannot read the lease of the controllers"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Renews the lease; returns once another server holds it, or it could not be renewed for too long.
    pub(super) async fn lost(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < GIVES_UP_AFTER {
            tokio::time::sleep(EVERY).await;
            match self.turn().await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => break,
                Err(error) => tracing::warn!(%error, "cannot renew the lease of the controllers"),
            }
        }
        tracing::warn!(holder = self.name, "another server may run the controllers now");
    }

    /// Lets the next one begin at once.
    pub(super) async fn leave(&mut self) {
        let Ok(Some(entry)) = self.store.get(&key()).await.map(|found| found.value) else { return };
        let lease = stored::tree(&entry).unwrap_or_default();
        if holder(&lease) == self.name {
            let _ = self.write(Some(&entry), lease, "").await;
        }
    }

    /// Whether we hold the lease now.
    async fn turn(&mut self) -> Result<bool, ReconcileError> {
        let found = self.store.get(&key()).await?.value;
        let lease = found.as_ref().map(|entry| stored::tree(entry).unwrap_or_default());
        let revision = found.as_ref().map_or(Revision::ZERO, Entry::revision);
        match self.seen {
            Some((seen, _)) if seen == revision => {}
            _ => self.seen = Some((revision, Instant::now())),
        }
        let unchanged = self.seen.map_or(Duration::ZERO, |(_, since)| since.elapsed());
        match decide(lease.as_ref(), &self.name, unchanged) {
            Turn::Wait => Ok(false),
            Turn::Take | Turn::Renew => {
                let lease = lease.unwrap_or_else(born);
                let name = self.name.clone();
                self.write(found.as_ref(), lease, &name).await?;
                Ok(true)
            }
        }
    }

    async fn write(&self, entry: Option<&Entry>, mut lease: Value, name: &str) -> Result<(), ReconcileError> {
        let now = metadata::micro_now();
        if holder(&lease) != name {
            let changes = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(-1) + 1;
            lease["spec"]["leaseTransitions"] = changes.into();
            lease["spec"]["acquireTime"] = now.clone().into();
        }
        lease["spec"]["holderIdentity"] = name.into();
        lease["spec"]["renewTime"] = now.into();
        lease["spec"]["leaseDurationSeconds"] = LASTS.as_secs().into();
        let expect = entry.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
        self.store.commit(key(), expect, Change::Put(stored::encode(&lease))).await?;
        Ok(())
    }
}

fn key() -> storage::Key {
    LEASES.key(Id::ROOT, Some(NAMESPACE), NAME)
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

fn decide(lease: Option<&Value>, me: &str, unchanged: Duration) -> Turn {
    match lease.map(holder) {
        None | Some("") => Turn::Take,
        Some(holder) if holder == me => Turn::Renew,
        Some(_) if unchanged > LASTS => Turn::Take,
        Some(_) => Turn::Wait,
    }
}

fn born() -> Value {
    metadata::made("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use storage::memory::Memory;

    use super::*;

    #[test]
    fn a_lease_is_taken_when_nobody_renews_it() {
        let held = json!({ "spec": { "holderIdentity": "other" } });
        let free = json!({ "spec": { "holderIdentity": "" } });
        let late = LASTS + Duration::from_secs(1);
        assert_eq!(decide(None, "me", Duration::ZERO), Turn::Take);
        assert_eq!(decide(Some(&free), "me", Duration::ZERO), Turn::Take);
        assert_eq!(decide(Some(&held), "me", LASTS), Turn::Wait);
        assert_eq!(decide(Some(&held), "me", late), Turn::Take);
        assert_eq!(decide(Some(&held), "other", late), Turn::Renew);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_one_leads_when_the_first_stops_renewing_or_leaves() {
        let store = Memory::new();
        let (mut first, mut second) = (LeaderElection::new(&store), LeaderElection::new(&store));
        first.won().await;
        let waited = async |seat: &mut LeaderElection<'_>| {
            let begun = Instant::now();
            seat.won().await;
            begun.elapsed()
        };
        // While the first renews, the second waits; when it stops, not for longer than a lease lasts.
        let while_renewed = tokio::select! {
            () = first.lost() => true,
            () = second.won() => false,
            () = tokio::time::sleep(10 * LASTS) => true,
        };
        assert!(while_renewed, "the second took over from a first that was well");
        assert!(waited(&mut second).await <= LASTS + 2 * EVERY);
        // The first notices that it lost, and gets it at once when the second leaves.
        first.lost().await;
        second.leave().await;
        assert!(waited(&mut first).await <= EVERY);
    }
}
