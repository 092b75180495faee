//! Leader election: of several processes, the holder of a Lease may write.
//!
//! ```text
//!   holder    renew ──10 s──► renew ──► …            may write until 20 s after its last successful renewal request
//!   others    read ──► it changed: wait ──► … ──► nothing changed for 30 s: acquire it
//! ```
//!
//! No two clocks are compared. A holder counts from before its request; a waiting process counts from when it observed
//! the lease change, which is later. So a holder stops at least ten seconds before another begins, whatever their times
//! of day. Its last calls have those ten seconds to arrive: they time out [sooner](Terms::patience). The numbers are
//! those of [`Terms::STEADY`]; where waiting costs more than renewing, there are [others](Terms::QUICK).
//!
//! The lease is also a heartbeat: a change shows that its holder is alive.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use api::meta::time;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::kind::ResourceKind;
use crate::remote::{CallError, ObjectPath, PATIENCE, Remote};

/// The durations of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    pub renew: Duration,
    /// From a renewal request until its holder stops writing.
    pub writes: Duration,
    /// From the last change until other processes acquire it.
    pub expires: Duration,
    /// How often other processes read it, and the retry delay of a failed renewal.
    pub poll_interval: Duration,
    /// The timeout of the holder's calls: less than the time between the end of one holder and the beginning of the
    /// next, and short enough that a renewal can be tried twice.
    pub patience: Duration,
}

impl Terms {
    /// For unreliable networks: one write every ten seconds. A failed renewal can be retried for another ten seconds
    /// before the holder must stop writing.
    pub const STEADY: Terms = Terms {
        renew: Duration::from_secs(10),
        writes: Duration::from_secs(20),
        expires: Duration::from_secs(30),
        poll_interval: Duration::from_secs(2),
        patience: PATIENCE,
    };
    /// For processes near the store: a killed holder is replaced within ten seconds.
    pub const QUICK: Terms = Terms {
        renew: Duration::from_secs(2),
        writes: Duration::from_secs(5),
        expires: Duration::from_secs(8),
        poll_interval: Duration::from_secs(1),
        patience: Duration::from_millis(2500),
    };
}

/// A lock that at most one of several processes holds.
#[derive(Debug)]
pub struct Lease {
    remote: Remote,
    kind: ResourceKind,
    namespace: String,
    name: String,
    holder: String,
    terms: Terms,
    state: Mutex<LeaseState>,
}

#[derive(Debug, Default)]
struct LeaseState {
    /// Until when this process may write. None if it does not hold the lease.
    writes_until: Option<Instant>,
    /// Another holder, the version of its lease, and since when it has this version.
    observed: Option<(String, String, Instant)>,
}

/// The next action after reading a lease.
#[derive(PartialEq, Eq, Debug)]
enum LeaseAction {
    Renew,
    Take,
    Wait,
}

impl Lease {
    /// Creates a lease. `holder` must be unique: no other process has it, nor this one after a restart.
    pub fn new(remote: Remote, namespace: &str, name: &str, holder: &str) -> Lease {
        let kind = ResourceKind::new("coordination.k8s.io", "v1", "leases", "Lease", true);
        let [namespace, name, holder] = [namespace, name, holder].map(str::to_owned);
        Lease { remote, kind, namespace, name, holder, terms: Terms::STEADY, state: Mutex::default() }
    }

    /// Changes the terms. All candidates for a lease need the same terms.
    pub fn on(self, terms: Terms) -> Lease {
        let remote = self.remote.with_patience(terms.patience);
        Lease { terms, remote, ..self }
    }

    /// Reports whether this process may write now.
    pub fn leads(&self) -> bool {
        self.state().writes_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns when this process may not write any more, even if the server does not respond.
    pub async fn lost(&self) {
        loop {
            let until = self.state().writes_until;
            match until.filter(|until| Instant::now() < *until) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Returns the other holder at the last attempt.
    pub fn other(&self) -> Option<String> {
        self.state().observed.as_ref().map(|(holder, ..)| holder.clone())
    }

    /// Acquires and renews the lease for as long as it is polled. Calls `report` with the result of each attempt.
    pub async fn hold(&self, report: impl Fn(Result<bool, &CallError>)) -> Infallible {
        loop {
            let attempt = self.attempt().await;
            report(attempt.as_ref().map(|is_held| *is_held));
            match attempt {
                Ok(true) => sleep(self.terms.renew).await,
                Ok(false) | Err(_) => sleep(self.terms.poll_interval).await,
            }
        }
    }

    /// Releases the lease, so that another process can acquire it at once. Returns whether this process held it.
    pub async fn release(&self) -> Result<bool, CallError> {
        if self.state().writes_until.take().is_none() {
            return Ok(false);
        }
        let lease = self.remote.get(self.place()).await?;
        let Some(mut lease) = lease.filter(|lease| lease["spec"]["holderIdentity"] == self.holder) else {
            return Ok(false);
        };
        lease["spec"]["holderIdentity"] = "".into();
        self.remote.replace(self.place(), &lease).await?;
        Ok(true)
    }

    /// Tries to acquire or renew the lease. Returns whether this process holds it now. A conflict means that another
    /// process does.
    async fn attempt(&self) -> Result<bool, CallError> {
        let requested_at = Instant::now();
        let written = match self.remote.get(self.place()).await? {
            None => self.remote.create(&self.kind, &self.namespace, &self.fresh(0)).await,
            Some(lease) => match self.observe(&lease, requested_at) {
                LeaseAction::Wait => return Ok(false),
                LeaseAction::Renew => self.remote.replace(self.place(), &self.renewed(lease)).await,
                LeaseAction::Take => self.remote.replace(self.place(), &self.taken(&lease)).await,
            },
        };
        match written {
            Ok(_) => {
                *self.state() =
                    LeaseState { writes_until: Some(requested_at + self.terms.writes), observed: None };
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observe(&self, lease: &Value, now: Instant) -> LeaseAction {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let holder = text(&lease["spec"]["holderIdentity"]);
        if holder == self.holder {
            return LeaseAction::Renew;
        }
        let mut state = self.state();
        state.writes_until = None;
        if holder.is_empty() {
            return LeaseAction::Take;
        }
        // The holder may have declared a longer duration.
        let declared = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0).min(600);
        let expires = self.terms.expires.max(Duration::from_secs(declared));
        let version = text(&lease["metadata"]["resourceVersion"]);
        match &state.observed {
            Some((_, observed, since)) if *observed == version => match now.duration_since(*since) >= expires
            {
                true => LeaseAction::Take,
                false => LeaseAction::Wait,
            },
            _ => {
                state.observed = Some((holder, version, now));
                LeaseAction::Wait
            }
        }
    }

    fn fresh(&self, transitions: u64) -> Value {
        let now = time::now_micros();
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": {
                "holderIdentity": self.holder, "leaseDurationSeconds": self.terms.expires.as_secs(),
                "acquireTime": now, "renewTime": now, "leaseTransitions": transitions,
            },
        })
    }

    fn renewed(&self, mut lease: Value) -> Value {
        lease["spec"]["renewTime"] = time::now_micros().into();
        lease
    }

    /// Returns the lease with this process as its holder. Keeps the metadata that other clients have set.
    fn taken(&self, lease: &Value) -> Value {
        let transitions = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0) + 1;
        let mut taken = lease.clone();
        taken["spec"] = self.fresh(transitions)["spec"].take();
        taken
    }

    fn place(&self) -> ObjectPath<'_> {
        ObjectPath::new(&self.kind, &self.namespace, &self.name)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LeaseState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests;
