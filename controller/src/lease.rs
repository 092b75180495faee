//! Who of several may write: the holder of a Lease.
//!
//! ```text
//!   holder    renew ──10 s──► renew ──► …            may write until 20 s after it asked for the last renewal it got
//!   others    look ──► it changed: wait ──► … ──► nothing changed for 30 s: take it
//! ```
//!
//! No two clocks are compared. A holder counts from before it asked; whoever waits counts from when they saw the lease
//! change, which is later. So a holder stops at least ten seconds before another begins, however wrong either's time of
//! day is. What it sent off at the last moment has those ten seconds to arrive: calls end [sooner](Terms::patience).
//! The numbers are those of [`Terms::STEADY`]; where waiting costs more than renewing, there are [others](Terms::QUICK).
//!
//! The lease is also a heartbeat: whoever sees it change knows that its holder is alive.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use api::meta::time;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use crate::kind::Kind;
use crate::remote::{CallError, PATIENCE, Place, Remote};

/// How long everything about a lease takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    pub renew: Duration,
    /// From asking for a renewal until its holder stops writing.
    pub writes: Duration,
    /// From the last change until others take it.
    pub expires: Duration,
    /// How often others look, and how soon a renewal that failed is tried again.
    pub look: Duration,
    /// How long a call of its holder may take: less than the time between the end of one holder and the beginning of the
    /// next, and so little that a renewal can be tried twice.
    pub patience: Duration,
}

impl Terms {
    /// Over networks that come and go: a write every ten seconds, and a minute's trouble costs nothing.
    pub const STEADY: Terms = Terms {
        renew: Duration::from_secs(10),
        writes: Duration::from_secs(20),
        expires: Duration::from_secs(30),
        look: Duration::from_secs(2),
        patience: PATIENCE,
    };
    /// Beside the store: whoever is killed is followed by another within ten seconds.
    pub const QUICK: Terms = Terms {
        renew: Duration::from_secs(2),
        writes: Duration::from_secs(5),
        expires: Duration::from_secs(8),
        look: Duration::from_secs(1),
        patience: Duration::from_millis(2500),
    };
}

/// A lock that one of several holders has.
#[derive(Debug)]
pub struct Lease {
    remote: Remote,
    kind: Kind,
    namespace: String,
    name: String,
    holder: String,
    terms: Terms,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Until when we may write. None: we do not hold it.
    writes_until: Option<Instant>,
    /// The lease of somebody else as we saw it last, and since when it has been like that.
    seen: Option<(String, String, Instant)>,
}

/// What to do about a lease as it was read.
#[derive(PartialEq, Eq, Debug)]
enum Move {
    Renew,
    Take,
    Wait,
}

impl Lease {
    /// `holder` is a name nobody else has: not another process, nor this one after a restart.
    pub fn new(remote: Remote, namespace: &str, name: &str, holder: &str) -> Lease {
        let kind = Kind::new("coordination.k8s.io", "v1", "leases", "Lease", true);
        let [namespace, name, holder] = [namespace, name, holder].map(str::to_owned);
        Lease { remote, kind, namespace, name, holder, terms: Terms::STEADY, state: Mutex::default() }
    }

    /// On other terms than the steady ones. Everybody who wants the same lease has to have the same.
    pub fn on(self, terms: Terms) -> Lease {
        let remote = self.remote.with_patience(terms.patience);
        Lease { terms, remote, ..self }
    }

    /// Whether we may write now.
    pub fn leads(&self) -> bool {
        self.state().writes_until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns when we may not write any more, which needs nobody to tell us: a server that does not answer cannot.
    pub async fn lost(&self) {
        loop {
            let until = self.state().writes_until;
            match until.filter(|until| Instant::now() < *until) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Who held it when we looked last, if that was not us.
    pub fn other(&self) -> Option<String> {
        self.state().seen.as_ref().map(|(holder, ..)| holder.clone())
    }

    /// Gets it when it can be had, and keeps it, for as long as it is polled. `told` learns what came of each attempt.
    pub async fn hold(&self, told: impl Fn(Result<bool, &CallError>)) -> Infallible {
        loop {
            let attempt = self.attempt().await;
            told(attempt.as_ref().map(|held| *held));
            match attempt {
                Ok(true) => sleep(self.terms.renew).await,
                Ok(false) | Err(_) => sleep(self.terms.look).await,
            }
        }
    }

    /// Gives it up, so that another need not wait. Whether it was ours to give.
    pub async fn release(&self) -> Result<bool, CallError> {
        if self.state().writes_until.take().is_none() {
            return Ok(false);
        }
        let found = self.remote.get(self.place()).await?;
        let Some(mut lease) = found.filter(|lease| lease["spec"]["holderIdentity"] == self.holder) else {
            return Ok(false);
        };
        lease["spec"]["holderIdentity"] = "".into();
        self.remote.replace(self.place(), &lease).await?;
        Ok(true)
    }

    /// Whether we hold it now. Who loses a race against another's write does not.
    async fn attempt(&self) -> Result<bool, CallError> {
        let asked = Instant::now();
        let written = match self.remote.get(self.place()).await? {
            None => self.remote.create(&self.kind, &self.namespace, &self.fresh(0)).await,
            Some(lease) => match self.observe(&lease, asked) {
                Move::Wait => return Ok(false),
                Move::Renew => self.remote.replace(self.place(), &self.renewed(lease)).await,
                Move::Take => self.remote.replace(self.place(), &self.taken(&lease)).await,
            },
        };
        match written {
            Ok(_) => {
                *self.state() = State { writes_until: Some(asked + self.terms.writes), seen: None };
                Ok(true)
            }
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn observe(&self, lease: &Value, now: Instant) -> Move {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let holder = text(&lease["spec"]["holderIdentity"]);
        if holder == self.holder {
            return Move::Renew;
        }
        let mut state = self.state();
        state.writes_until = None;
        if holder.is_empty() {
            return Move::Take;
        }
        // Whoever holds it may have asked for longer than we would.
        let declared = lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0).min(600);
        let expires = self.terms.expires.max(Duration::from_secs(declared));
        let version = text(&lease["metadata"]["resourceVersion"]);
        match &state.seen {
            Some((_, seen, since)) if *seen == version => match now.duration_since(*since) >= expires {
                true => Move::Take,
                false => Move::Wait,
            },
            _ => {
                state.seen = Some((holder, version, now));
                Move::Wait
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

    /// What others put on it stays.
    fn taken(&self, lease: &Value) -> Value {
        let transitions = lease["spec"]["leaseTransitions"].as_u64().unwrap_or(0) + 1;
        let mut taken = lease.clone();
        taken["spec"] = self.fresh(transitions)["spec"].take();
        taken
    }

    fn place(&self) -> Place<'_> {
        Place::new(&self.kind, &self.namespace, &self.name)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests;
