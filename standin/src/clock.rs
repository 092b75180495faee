//! The clock of a stand-in.
//!
//! All simulated components use it: for the delay until a container is ready, for back-offs, for CronJobs. A test that
//! uses a held clock can advance it by hours at once.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

/// The system clock, or one that a test advances. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Option<watch::Sender<Timestamp>>);

impl Default for Clock {
    fn default() -> Self {
        Clock::running()
    }
}

impl Clock {
    /// Returns the system clock.
    pub fn running() -> Clock {
        Clock(None)
    }

    /// Returns a clock that stands still until it is advanced. It starts at the system time, because the API server
    /// sets timestamps from that.
    pub fn held() -> Clock {
        Clock(Some(watch::Sender::new(Timestamp::now())))
    }

    pub fn now(&self) -> Timestamp {
        self.0.as_ref().map_or_else(Timestamp::now, |held| *held.borrow())
    }

    /// Advances a held clock. Does nothing to a running one.
    pub fn advance(&self, by: Duration) {
        if let Some(held) = &self.0 {
            held.send_modify(|now| *now = later(*now, by));
        }
    }

    /// Waits until `due`. Cancel-safe.
    pub(crate) async fn until(&self, due: Timestamp) {
        match &self.0 {
            None => tokio::time::sleep(between(Timestamp::now(), due)).await,
            // This fails only after the sender is dropped, and `self` holds the sender.
            Some(held) => drop(held.subscribe().wait_for(|now| *now >= due).await),
        }
    }
}

/// Returns the timestamp `by` later, at most [`Timestamp::MAX`].
pub(crate) fn later(timestamp: Timestamp, by: Duration) -> Timestamp {
    timestamp.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns the time from one timestamp to another; zero if the other is earlier.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_held_clock_advances_only_when_it_is_advanced() {
        let clock = Clock::held();
        let started = clock.now();
        let due = later(started, Duration::from_secs(3600));
        let waiting = clock.until(due);
        let moving = async {
            clock.advance(Duration::from_secs(1800));
            clock.advance(Duration::from_secs(1800));
        };
        tokio::join!(waiting, moving);
        assert_eq!(clock.now(), due);
        assert_eq!(between(due, started), Duration::ZERO);
    }
}
