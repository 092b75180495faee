//! Snapshots that unfinished paged lists still need.
//!
//! The View can also compute any revision of its history by undoing events, so a dropped pin costs time but never a
//! result. That is why the limits here can be small.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Snapshot;
use crate::store::Revision;

/// A pin keeps values in memory that were overwritten since. This many lists can be in progress at full speed.
const PINS_MAX: usize = 64;
/// Kubernetes clients expect a continue token to work for about five minutes.
const UNUSED_MAX: Duration = Duration::from_secs(300);

/// Least recently used first.
#[derive(Default)]
pub(super) struct Pins(VecDeque<(Instant, Snapshot)>);

impl Pins {
    pub(super) fn pin(&mut self, snapshot: Snapshot) {
        self.0.retain(|(used, pinned)| pinned.revision != snapshot.revision && used.elapsed() < UNUSED_MAX);
        if self.0.len() == PINS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((Instant::now(), snapshot));
    }

    pub(super) fn get(&mut self, revision: Revision) -> Option<Snapshot> {
        let place = self.0.iter().position(|(_, pinned)| pinned.revision == revision)?;
        let (_, snapshot) = self.0.remove(place)?;
        self.0.push_back((Instant::now(), snapshot.clone()));
        Some(snapshot)
    }

    /// Removes old pins and returns them, so that the caller drops them without the lock: dropping one can take a
    /// while.
    pub(super) fn forget(&mut self, through: Revision) -> Vec<Snapshot> {
        let kept =
            |(used, pinned): &(Instant, Snapshot)| pinned.revision >= through && used.elapsed() < UNUSED_MAX;
        let (kept, gone): (VecDeque<_>, VecDeque<_>) = self.0.drain(..).partition(kept);
        self.0 = kept;
        gone.into_iter().map(|(_, snapshot)| snapshot).collect()
    }
}
