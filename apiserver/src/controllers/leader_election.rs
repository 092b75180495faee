//! Leader election: the server that holds a Lease runs the controllers.
//!
//! ```text
//!   read ─► no holder, or not renewed while this server watched ─► acquire ─► renew … ─► lost, or released
//! ```
//!
//! The election only saves work: controllers name the revision of everything they replace, so two leaders at once do no
//! harm. Clocks of different servers are not compared: a Lease has expired if it has not changed for its duration by
//! the local clock.

use std::time::Duration;

use api::cluster::Id;
use serde_json::Value;
use storage::{Change, Entry, Expect, Revision, Store};
use tokio::time::Instant;

use crate::controllers::write::ReconcileError;
use crate::keys::Collection;
use crate::objects::{metadata, stored};

/// The duration of the Lease.
const LASTS: Duration = Duration::from_secs(15);
/// How often the leader renews the Lease and the others check it.
const EVERY: Duration = Duration::from_secs(3);
/// A leader that has not renewed the Lease for this long stops: well before another server acquires it.
const GIVES_UP_AFTER: Duration = Duration::from_secs(10);

const LEASES: Collection<'static> = Collection { group: "coordination.k8s.io", plural: "leases" };
const NAMESPACE: &str = "kube-system";
const NAME: &str = "holon-controllers";

/// The state of the election on one server.
#[derive(Debug)]
pub(super) struct LeaderElection<'a> {
    store: &'a dyn Store,
    /// The identity of this server in the Lease.
    name: String,
    /// The revision of the Lease, and the time at which this server first saw it.
    observed: Option<(Revision, Instant)>,
}

/// The next step in the election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseStep {
    Take,
    Renew,
    Wait,
}

impl<'a> LeaderElection<'a> {
    pub(super) fn new(store: &'a dyn Store) -> LeaderElection<'a> {
        LeaderElection { store, name: uuid::Uuid::new_v4().to_string(), observed: None }
    }

    /// Returns once this server leads.
    pub(super) async fn acquired(&mut self) {
        loop {
            match self.try_renew().await {
                Ok(true) => return tracing::info!(holder = self.name, "acquired the controller lease"),
                Ok(false) | Err(ReconcileError::Conflict) => {}
                Err(error) => tracing::warn!(%error, "cannot read the lease of the controllers"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Renews the Lease. Returns once another server holds it, or once renewing has failed for too long.
    pub(super) async fn lost(&mut self) {
        let mut renewed = Instant::now();
        while renewed.elapsed() < GIVES_UP_AFTER {
            tokio::time::sleep(EVERY).await;
            match self.try_renew().await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => break,
                Err(error) => tracing::warn!(%error, "cannot renew the lease of the controllers"),
            }
        }
        tracing::warn!(holder = self.name, "lost the controller lease; stopping the controllers");
    }

    /// Releases the Lease, so that another server can acquire it at once.
    pub(super) async fn release(&mut self) {
        let Ok(Some(entry)) = self.store.get(&key()).await.map(|found| found.value) else { return };
        let lease = stored::tree(&entry).unwrap_or_default();
        if holder(&lease) == self.name {
            let _ = self.write(Some(&entry), lease, "").await;
        }
    }

    /// Takes one step. Returns whether this server leads.
    async fn try_renew(&mut self) -> Result<bool, ReconcileError> {
        let found = self.store.get(&key()).await?.value;
        let lease = found.as_ref().map(|entry| stored::tree(entry).unwrap_or_default());
        let revision = found.as_ref().map_or(Revision::ZERO, Entry::revision);
        match self.observed {
            Some((observed, _)) if observed == revision => {}
            _ => self.observed = Some((revision, Instant::now())),
        }
        let unchanged = self.observed.map_or(Duration::ZERO, |(_, since)| since.elapsed());
        match decide(lease.as_ref(), &self.name, unchanged) {
            LeaseStep::Wait => Ok(false),
            LeaseStep::Take | LeaseStep::Renew => {
                let lease = lease.unwrap_or_else(new_lease);
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

fn decide(lease: Option<&Value>, me: &str, unchanged: Duration) -> LeaseStep {
    match lease.map(holder) {
        None | Some("") => LeaseStep::Take,
        Some(holder) if holder == me => LeaseStep::Renew,
        Some(_) if unchanged > LASTS => LeaseStep::Take,
        Some(_) => LeaseStep::Wait,
    }
}

fn new_lease() -> Value {
    metadata::made("coordination.k8s.io/v1", "Lease", Some(NAMESPACE), NAME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use storage::memory::Memory;

    use super::*;

    #[test]
    fn a_free_or_expired_lease_is_taken() {
        let held = json!({ "spec": { "holderIdentity": "other" } });
        let free = json!({ "spec": { "holderIdentity": "" } });
        let expired = LASTS + Duration::from_secs(1);
        assert_eq!(decide(None, "me", Duration::ZERO), LeaseStep::Take);
        assert_eq!(decide(Some(&free), "me", Duration::ZERO), LeaseStep::Take);
        assert_eq!(decide(Some(&held), "me", LASTS), LeaseStep::Wait);
        assert_eq!(decide(Some(&held), "me", expired), LeaseStep::Take);
        assert_eq!(decide(Some(&held), "other", expired), LeaseStep::Renew);
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_leads_when_the_first_stops_renewing_or_releases_the_lease() {
        let store = Memory::new();
        let (mut first, mut second) = (LeaderElection::new(&store), LeaderElection::new(&store));
        first.acquired().await;
        let waited = async |election: &mut LeaderElection<'_>| {
            let begun = Instant::now();
            election.acquired().await;
            begun.elapsed()
        };
        // While the first renews, the second waits. After it stops, the second waits no longer than the Lease lasts.
        let while_renewed = tokio::select! {
            () = first.lost() => true,
            () = second.acquired() => false,
            () = tokio::time::sleep(10 * LASTS) => true,
        };
        assert!(while_renewed, "the second acquired the lease of a healthy first");
        assert!(waited(&mut second).await <= LASTS + 2 * EVERY);
        // The first notices that it lost, and acquires the Lease at once when the second releases it.
        first.lost().await;
        second.release().await;
        assert!(waited(&mut first).await <= EVERY);
    }
}
