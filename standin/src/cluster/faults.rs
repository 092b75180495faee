//! Faults that tests inject between a stand-in and its clients.
//!
//! The link carries bytes: it can be cut, or go silent while both ends keep the connection open. Responses can be slow,
//! errors or garbage. The stand-in's own controllers are not affected.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

/// Whether the link passes bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    #[default]
    Up,
    /// Connections are closed, new ones refused.
    Cut,
    /// Connections stay open, and nothing passes.
    Silent,
}

/// A fault of the server's response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseFault {
    /// 429, with `Retry-After: 1`.
    TooManyRequests,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 200, with a body that is not JSON.
    Garbage,
    /// The request is executed, and the response is 500.
    LostResponse,
}

/// Faults that can be switched on and off at any time.
#[derive(Debug, Default)]
pub struct Faults {
    link: watch::Sender<Link>,
    requests: Mutex<RequestFaults>,
}

#[derive(Debug, Default)]
struct RequestFaults {
    delay: Duration,
    /// The fault, and the percentage of requests that get it.
    fault: Option<(ResponseFault, u32)>,
    count: u64,
}

impl Faults {
    /// Changes the link: a partition, and its end.
    pub fn set_link(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Delays every response.
    pub fn set_delay(&self, delay: Duration) {
        self.requests().delay = delay;
    }

    /// Injects a fault into this percentage of responses. Every run chooses the same ones.
    pub fn inject(&self, fault: ResponseFault, percent: u32) {
        self.requests().fault = Some((fault, percent));
    }

    /// Removes all faults.
    pub fn clear(&self) {
        *self.requests() = RequestFaults::default();
        self.set_link(Link::Up);
    }

    pub(crate) fn link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// Returns the delay and the fault of the next request.
    pub(crate) fn next_request(&self) -> (Duration, Option<ResponseFault>) {
        let mut requests = self.requests();
        requests.count += 1;
        let drawn = xxhash_rust::xxh3::xxh3_64(&requests.count.to_le_bytes()) % 100;
        let fault = requests.fault.filter(|(_, percent)| drawn < u64::from(*percent));
        (requests.delay, fault.map(|(fault, _)| fault))
    }

    fn requests(&self) -> MutexGuard<'_, RequestFaults> {
        self.requests.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_of_the_requests_gets_the_fault() {
        let check = |percent: u32, expected: std::ops::RangeInclusive<usize>| {
            let faults = Faults::default();
            faults.inject(ResponseFault::Internal, percent);
            let faulty = (0..1000).filter(|_| faults.next_request().1.is_some()).count();
            assert!(expected.contains(&faulty), "{faulty} of 1000 at {percent} %");
        };
        check(0, 0..=0);
        check(30, 250..=350);
        check(100, 1000..=1000);
    }
}
