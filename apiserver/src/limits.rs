//! How many requests are worked on at once.
//!
//! Each costs memory for as long as it lasts, so there is room for so many that read and so many that write; whoever
//! comes when it is full is told to come back. A watch counts only while it starts. Probes always get in, and so do
//! administrators: somebody has to be able to look.

use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use openapi::status::Status;

use crate::asked::Asked;
use crate::identity::Identity;
use crate::request::Target;

/// As for Kubernetes. At 3 MiB a body, writers hold some 600 MiB at worst.
const READS_MAX: usize = 400;
const WRITES_MAX: usize = 200;
/// Signatures that are checked at the same time: a tenth of a millisecond each. Whoever is known already does not wait for
/// that.
const STRANGERS_MAX: usize = 32;
/// After so many seconds a client comes back.
const RETRY_SECONDS: u32 = 1;

/// The room there is.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) reads: Lane,
    pub(crate) writes: Lane,
    /// Those who brought a token that nobody has seen yet.
    strangers: Lane,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reads: Lane::new(READS_MAX),
            writes: Lane::new(WRITES_MAX),
            strangers: Lane::new(STRANGERS_MAX),
        }
    }
}

impl Limits {
    /// Takes a place, which is free again when the returned value is dropped.
    pub(crate) fn enter(&self, identity: &Identity, asked: &Asked) -> Result<Place<'_>, Status> {
        let lane = match asked.method {
            Method::GET | Method::HEAD | Method::OPTIONS => &self.reads,
            _ => &self.writes,
        };
        let place = lane.enter();
        let exempt =
            matches!(asked.target(), Some(Target::Health { .. })) || identity.is_at_home_everywhere();
        match place.number <= lane.max || exempt {
            true => Ok(place),
            false => Err(full()),
        }
    }

    /// Takes a place for finding out who somebody is: that costs something, and anybody can ask for it.
    pub(crate) fn meet(&self) -> Result<Place<'_>, Status> {
        let place = self.strangers.enter();
        if place.number <= self.strangers.max { Ok(place) } else { Err(full()) }
    }
}

fn full() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", RETRY_SECONDS)
}

/// Requests of one sort.
#[derive(Debug)]
pub(crate) struct Lane {
    now: AtomicUsize,
    max: usize,
}

impl Lane {
    fn new(max: usize) -> Lane {
        Lane { now: AtomicUsize::new(0), max }
    }

    /// How many are worked on.
    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    fn enter(&self) -> Place<'_> {
        Place { lane: self, number: self.now.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// A request's place among those worked on.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lane: &'a Lane,
    number: usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lane.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_when_it_is_full_is_told_to_come_back() {
        let limits = Limits { reads: Lane::new(2), writes: Lane::new(1), strangers: Lane::new(1) };
        let somebody = Identity::user("bob", &["dev"]);
        let [read, write, probe] =
            ["GET /api/v1/pods", "POST /api/v1/namespaces", "GET /readyz"].map(Asked::line);
        let first = limits.enter(&somebody, &read).unwrap();
        let second = limits.enter(&somebody, &read).unwrap();
        let refused = limits.enter(&somebody, &read).unwrap_err();
        assert_eq!((refused.code, refused.details.unwrap().retry_after_seconds), (429, 1));
        // Who has to be found out first has room of their own, and so have those who are known.
        let met = limits.meet().unwrap();
        assert_eq!(limits.meet().unwrap_err().code, 429);
        drop(met);
        assert!(limits.meet().is_ok());
        // Writers have room of their own, and some are never turned away.
        let third = limits.enter(&somebody, &write).unwrap();
        assert!(limits.enter(&somebody, &write).is_err());
        assert!(limits.enter(&somebody, &probe).is_ok());
        assert!(limits.enter(&Identity::user("admin", &["system:masters"]), &write).is_ok());
        assert_eq!((limits.reads.now(), limits.writes.now()), (2, 1));
        drop((first, second, third));
        assert_eq!((limits.reads.now(), limits.writes.now()), (0, 0));
        assert!(limits.enter(&somebody, &read).is_ok());
    }
}
