//! Waiting for a condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a wait may take. Everything takes moments; a busy machine takes longer.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until a condition holds. Panics if it does not within [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(50));
    }
}
