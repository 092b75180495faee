//! What stands between a stand-in and those who come from outside: nothing, or whatever a test asks for.
//!
//! Two places, because they fail differently. The link carries bytes: it can be cut, or go silent while both ends
//! believe it is there. Requests are answered by a server: slowly, with errors, or with nonsense.
//! The stand-in's own controllers are inside and notice nothing.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

/// Whether bytes pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    #[default]
    Up,
    /// Connections are closed, new ones refused.
    Cut,
    /// Connections stay open, and nothing passes.
    Silent,
}

/// How a server answers that has trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// 429, with a second to wait.
    TooManyRequests,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 200, and a body that is no object.
    Garbage,
    /// What was asked for is done, and the answer is 500.
    LostAnswer,
}

/// Faults, switched on and off while everything runs.
#[derive(Debug, Default)]
pub struct Faults {
    link: watch::Sender<Link>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    delay: Duration,
    /// The trouble, and how many of a hundred requests have it.
    trouble: Option<(Trouble, u32)>,
    asked: u64,
}

impl Faults {
    /// Changes the link: a partition, and its end.
    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Answers every request so much later.
    pub fn slow(&self, delay: Duration) {
        self.requests().delay = delay;
    }

    /// Answers so many of a hundred requests like this. Which ones is the same in every run.
    pub fn trouble(&self, trouble: Trouble, percent: u32) {
        self.requests().trouble = Some((trouble, percent));
    }

    /// Everything works again.
    pub fn heal(&self) {
        *self.requests() = Requests::default();
        self.set_link(Link::Up);
    }

    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// What happens to the next request.
    pub(crate) fn next(&self) -> (Duration, Option<Trouble>) {
        let mut requests = self.requests();
        requests.asked += 1;
        let drawn = xxhash_rust::xxh3::xxh3_64(&requests.asked.to_le_bytes()) % 100;
        let trouble = requests.trouble.filter(|(_, percent)| drawn < u64::from(*percent));
        (requests.delay, trouble.map(|(trouble, _)| trouble))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_requests_has_trouble() {
        let check = |percent: u32, expected: std::ops::RangeInclusive<usize>| {
            let faults = Faults::default();
            faults.trouble(Trouble::Internal, percent);
            let troubled = (0..1000).filter(|_| faults.next().1.is_some()).count();
            assert!(expected.contains(&troubled), "{troubled} of 1000 at {percent} %");
        };
        check(0, 0..=0);
        check(30, 250..=350);
        check(100, 1000..=1000);
    }
}
