//! Rate limits on requests, and limits on open watches.
//!
//! A burst of one second's worth of requests is admitted at once; after that the rate applies. The only state per
//! logical cluster is the time at which its next request is due.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use api::cluster::Id;
use openapi::meta::status::Status;

use crate::quota::Limits;

/// The maximum burst, as a duration.
const BURST: Duration = Duration::from_secs(1);
/// Retry-After for a client with too many watches: other watches must end first.
const RETRY_WATCH_SECONDS: u32 = 5;
/// From this many entries on, the state of idle logical clusters is dropped.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct RateLimits(HashMap<Id, RateLimit>);

#[derive(Debug)]
struct RateLimit {
    /// The time at which the next request is due.
    next: Instant,
    watches: i64,
}

impl RateLimits {
    /// Admits a request, if it is within the rates of all of these logical clusters.
    pub(super) fn request(&mut self, line: &[(Id, Limits)]) -> Result<(), Status> {
        self.request_at(line, Instant::now())
    }

    fn request_at(&mut self, line: &[(Id, Limits)], now: Instant) -> Result<(), Status> {
        let paced = || line.iter().filter_map(|(id, limits)| Some((*id, limits.requests_per_second?)));
        for (id, rate) in paced() {
            let next = self.of(id, now).next;
            let early = next.saturating_duration_since(now) + turn(rate);
            // A limit of 0 admits nothing.
            if early > BURST.max(turn(rate)) || rate <= 0 {
                let text = format!(
                    "too many requests for a logical cluster with limits: requestsPerSecond={rate}, please try again later"
                );
                let wait = early.saturating_sub(BURST).as_secs_f64().ceil().clamp(1.0, 60.0);
                return Err(Status::too_many_requests(text, wait as u32));
            }
        }
        for (id, rate) in paced() {
            let pace = self.of(id, now);
            pace.next = pace.next.max(now) + turn(rate);
        }
        self.tidy(now);
        Ok(())
    }

    /// Admits a watch, if it is within the limits of all of these logical clusters.
    pub(super) fn watch(&mut self, line: &[(Id, Limits)]) -> Result<(), Status> {
        let now = Instant::now();
        for (id, limits) in line {
            let watches = self.of(*id, now).watches;
            if let Some(limit) = limits.watches.filter(|limit| watches >= *limit) {
                let text = format!(
                    "too many watches for a logical cluster with limits: watches={limit}, please try again later"
                );
                return Err(Status::too_many_requests(text, RETRY_WATCH_SECONDS));
            }
        }
        line.iter().for_each(|(id, _)| self.of(*id, now).watches += 1);
        Ok(())
    }

    pub(super) fn unwatch(&mut self, line: &[Id]) {
        for id in line {
            if let Some(pace) = self.0.get_mut(id) {
                pace.watches -= 1;
            }
        }
    }

    fn of(&mut self, id: Id, now: Instant) -> &mut RateLimit {
        self.0.entry(id).or_insert(RateLimit { next: now, watches: 0 })
    }

    fn tidy(&mut self, now: Instant) {
        if self.0.len() > REMEMBERED_MAX {
            self.0.retain(|_, pace| pace.watches > 0 || pace.next > now);
        }
    }
}

/// Returns the interval between requests at a rate.
fn turn(rate: i64) -> Duration {
    Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rate: i64, watches: i64) -> Limits {
        Limits { requests_per_second: Some(rate), watches: Some(watches), ..Limits::default() }
    }

    #[test]
    fn a_burst_of_one_second_is_allowed_and_then_the_rate_applies() {
        let (mut paces, now) = (RateLimits::default(), Instant::now());
        let line = [(Id::new(1), limits(10, 0)), (Id::new(2), limits(1000, 0))];
        for _ in 0..10 {
            paces.request_at(&line, now).unwrap();
        }
        let refused = paces.request_at(&line, now).unwrap_err();
        assert_eq!(refused.code, 429);
        assert!(refused.message.contains("requestsPerSecond=10,"), "{}", refused.message);
        // A refused request does not count, and does not affect other logical clusters.
        paces.request_at(&line[1..], now).unwrap();
        paces.request_at(&line, now + Duration::from_millis(100)).unwrap();
        paces.request_at(&line, now + Duration::from_millis(110)).unwrap_err();
        paces.request_at(&[], now).unwrap();
    }

    #[test]
    fn idle_time_does_not_raise_the_burst() {
        let (mut paces, now) = (RateLimits::default(), Instant::now());
        let line = [(Id::new(1), limits(2, 0))];
        paces.request_at(&line, now).unwrap();
        let later = now + Duration::from_secs(100);
        let let_in = (0..10).filter(|_| paces.request_at(&line, later).is_ok()).count();
        assert_eq!(let_in, 2);
        let none = [(Id::new(2), limits(0, 0))];
        paces.request_at(&none, now).unwrap_err();
    }

    #[test]
    fn open_watches_are_limited() {
        let mut paces = RateLimits::default();
        let (inner, outer) = ((Id::new(2), limits(1, 5)), (Id::new(1), limits(1, 2)));
        paces.watch(&[inner, outer]).unwrap();
        paces.watch(&[outer]).unwrap();
        let refused = paces.watch(&[inner, outer]).unwrap_err();
        assert!(refused.code == 429 && refused.message.contains("watches=2,"), "{}", refused.message);
        paces.unwatch(&[inner.0, outer.0]);
        paces.watch(&[inner, outer]).unwrap();
    }
}
