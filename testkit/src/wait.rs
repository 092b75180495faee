//! Waiting for a condition.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a wait may take. Everything takes moments; a busy machine takes longer.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until a condition holds. Panics if it does not within [`PATIENCE`].
#[track_caller]
pub fn until(condition: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {condition}");
        sleep(Duration::from_millis(50));
    }
}
