//! The health of a physical cluster, by its heartbeat.
//!
//! A syncer renews its lease every ten seconds. Only changes of the lease count, timed by this process, because clocks
//! elsewhere may be wrong. One missing heartbeat is ignored; after forty seconds without one the health is unknown.
//! Then it takes two heartbeats until the cluster counts as alive, so that a flapping cluster is not used.
//!
//! ```text
//!   never reported ─first heartbeat──► alive ──40 s without one──► expired ─two heartbeats──► alive
//! ```

use std::time::Duration;

use api::meta::time;
use jiff::Timestamp;
use tokio::time::Instant;

/// Four heartbeats.
const LEASE_EXPIRY: Duration = Duration::from_secs(40);
/// Heartbeats in a row after which an expired cluster counts as alive.
const RECOVERY_HEARTBEATS: u32 = 2;

/// How often the time of the last heartbeat is written to the status.
const DISPLAY_INTERVAL_SECONDS: i64 = 60;

/// The heartbeat of one physical cluster.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatState {
    /// The version of the lease.
    beat: String,
    observed_at: Instant,
    /// Heartbeats since the lease last expired.
    beats: u32,
}

/// The health in the present status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PreviousHealth {
    Nothing,
    Alive,
    Expired,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeartbeatHealth {
    /// There has never been a heartbeat.
    NeverReported,
    /// Until the lease expires after this long.
    Alive(Duration),
    Expired,
}

impl HeartbeatState {
    /// The first observation of a lease. Its age is unknown.
    fn new(beat: &str, now: Instant) -> HeartbeatState {
        HeartbeatState { beat: beat.to_owned(), observed_at: now, beats: 0 }
    }

    fn record_beat(&mut self, beat: &str, now: Instant) {
        if self.beat == beat {
            return;
        }
        self.beats = if now.duration_since(self.observed_at) > LEASE_EXPIRY { 1 } else { self.beats + 1 };
        (self.beat, self.observed_at) = (beat.to_owned(), now);
    }
}

/// Evaluates the lease as it is now, if it exists.
pub(crate) fn evaluate_heartbeat(
    heartbeat: &mut Option<HeartbeatState>,
    beat: Option<&str>,
    before: PreviousHealth,
    now: Instant,
) -> HeartbeatHealth {
    match (&mut *heartbeat, beat) {
        (Some(heartbeat), Some(beat)) => heartbeat.record_beat(beat, now),
        (None, Some(beat)) => *heartbeat = Some(HeartbeatState::new(beat, now)),
        // A deleted lease is no heartbeat.
        (_, None) => {}
    }
    let Some(heartbeat) = heartbeat else {
        return if before == PreviousHealth::Nothing {
            HeartbeatHealth::NeverReported
        } else {
            HeartbeatHealth::Expired
        };
    };
    let left = LEASE_EXPIRY.saturating_sub(now.duration_since(heartbeat.observed_at));
    match before {
        _ if left.is_zero() => HeartbeatHealth::Expired,
        PreviousHealth::Expired if heartbeat.beats < RECOVERY_HEARTBEATS => HeartbeatHealth::Expired,
        _ => HeartbeatHealth::Alive(left),
    }
}

/// The time of the last heartbeat for the status: updated with other changes, or once a minute, because each is a write.
pub(crate) fn displayed_heartbeat(
    displayed: Option<&str>,
    beat: Option<&str>,
    has_other_changes: bool,
) -> Option<String> {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let since = |displayed: &str, beat: &str| Some(time(beat)?.duration_since(time(displayed)?).as_secs());
    let (Some(beat), Some(displayed)) = (beat, displayed) else { return beat.or(displayed).map(second) };
    // A clock that was set back is a change, too.
    let is_late =
        since(displayed, beat).is_none_or(|seconds| !(0..DISPLAY_INTERVAL_SECONDS).contains(&seconds));
    Some(if has_other_changes || is_late { second(beat) } else { displayed.to_owned() })
}

/// Times in a status have no fractions.
fn second(time: &str) -> String {
    let parsed = time.parse::<Timestamp>();
    parsed.map_or_else(|_| time.to_owned(), time::seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_displayed_heartbeat_changes_once_a_minute_or_with_other_changes() {
        let check = |displayed, beat, has_other_changes, expected: Option<&str>| {
            assert_eq!(
                displayed_heartbeat(displayed, beat, has_other_changes).as_deref(),
                expected,
                "{displayed:?} {beat:?} {has_other_changes}"
            );
        };
        let (first, soon, late) =
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:59.900000Z", "2026-01-01T00:01:00.500000Z");
        check(None, None, true, None);
        check(None, Some("2026-01-01T00:00:00.250000Z"), false, Some(first));
        check(Some(first), None, true, Some(first));
        check(Some(first), Some(soon), false, Some(first));
        check(Some(first), Some(soon), true, Some("2026-01-01T00:00:59Z"));
        check(Some(first), Some(late), false, Some("2026-01-01T00:01:00Z"));
        check(Some("2027-01-01T00:00:00Z"), Some(late), false, Some("2026-01-01T00:01:00Z"));
    }

    /// Each step: seconds since the start, the lease, and the expected health.
    #[track_caller]
    fn story(mut before: PreviousHealth, steps: &[(u64, Option<&str>, PreviousHealth)]) {
        let (mut heartbeat, begun) = (None, Instant::now());
        for (at, beat, expected) in steps {
            let health = evaluate_heartbeat(&mut heartbeat, *beat, before, begun + Duration::from_secs(*at));
            before = match health {
                HeartbeatHealth::NeverReported => PreviousHealth::Nothing,
                HeartbeatHealth::Alive(_) => PreviousHealth::Alive,
                HeartbeatHealth::Expired => PreviousHealth::Expired,
            };
            assert_eq!(before, *expected, "after {at} s");
        }
    }

    use PreviousHealth::{Alive, Expired, Nothing};

    #[test]
    fn the_first_heartbeat_makes_a_new_cluster_alive() {
        story(Nothing, &[(0, None, Nothing), (100, None, Nothing), (101, Some("1"), Alive)]);
    }

    #[test]
    fn one_missing_heartbeat_is_ignored() {
        let beats =
            [(0, Some("1"), Alive), (10, Some("2"), Alive), (39, Some("2"), Alive), (49, Some("3"), Alive)];
        story(Nothing, &beats);
    }

    #[test]
    fn a_lease_expires_after_forty_seconds_and_recovers_after_two_heartbeats() {
        story(
            Alive,
            &[
                (0, Some("1"), Alive),
                (40, Some("1"), Expired),
                (60, Some("2"), Expired),
                (61, Some("2"), Expired),
                (70, Some("3"), Alive),
            ],
        );
    }

    /// A flapping cluster stays expired: one heartbeat a minute is never two in a row.
    #[test]
    fn a_flapping_cluster_stays_expired() {
        let beats = [
            (0, Some("1"), Expired),
            (60, Some("2"), Expired),
            (120, Some("3"), Expired),
            (180, Some("4"), Expired),
        ];
        story(Expired, &beats);
    }

    /// A restarted server has observed no heartbeat yet, and must not conclude that leases have expired.
    #[test]
    fn a_restarted_server_starts_with_the_known_health() {
        story(Alive, &[(0, Some("7"), Alive), (39, Some("7"), Alive), (40, Some("7"), Expired)]);
        story(Expired, &[(0, Some("7"), Expired), (10, Some("8"), Expired), (20, Some("9"), Alive)]);
    }
}
