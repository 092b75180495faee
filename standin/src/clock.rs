//! What time it is in a stand-in.
//!
//! Everything simulated takes its time from here: when a container is ready, when a back-off ends, when a CronJob is due.
//! A test that holds the clock moves hours on at once, and nothing happens that it did not wait for.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

/// A clock that runs by itself, or one that somebody holds. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Option<watch::Sender<Timestamp>>);

impl Default for Clock {
    fn default() -> Self {
        Clock::running()
    }
}

impl Clock {
    /// The machine's own clock.
    pub fn running() -> Clock {
        Clock(None)
    }

    /// Stands still until it is moved. It begins at this moment, because the API server dates objects by the machine's.
    pub fn held() -> Clock {
        Clock(Some(watch::Sender::new(Timestamp::now())))
    }

    pub fn now(&self) -> Timestamp {
        self.0.as_ref().map_or_else(Timestamp::now, |held| *held.borrow())
    }

    /// Moves a clock that is held. One that runs by itself goes on as it does.
    pub fn advance(&self, by: Duration) {
        if let Some(held) = &self.0 {
            held.send_modify(|now| *now = later(*now, by));
        }
    }

    /// Returns once it is that late. Cancel-safe.
    pub(crate) async fn until(&self, due: Timestamp) {
        match &self.0 {
            None => tokio::time::sleep(between(Timestamp::now(), due)).await,
            // It fails only once the clock is gone, and this holds it.
            Some(held) => drop(held.subscribe().wait_for(|now| *now >= due).await),
        }
    }
}

/// A moment so much later. The end of time stays the end of time.
pub(crate) fn later(moment: Timestamp, by: Duration) -> Timestamp {
    moment.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// How long it is from one moment to another; nothing, if the other is over.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_held_clock_moves_when_it_is_moved() {
        let clock = Clock::held();
        let begun = clock.now();
        let due = later(begun, Duration::from_secs(3600));
        let waiting = clock.until(due);
        let moving = async {
            clock.advance(Duration::from_secs(1800));
            clock.advance(Duration::from_secs(1800));
        };
        tokio::join!(waiting, moving);
        assert_eq!(clock.now(), due);
        assert_eq!(between(due, begun), Duration::ZERO);
    }
}
