//! The current sync errors, by object.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard};

use controller::remote::CallError;

use crate::mirror::HoldReason;
use crate::state::context::ObjectId;

/// How many errors are kept with their message. Of further ones only a hash of eight bytes is kept.
const STORED_MAX: usize = 1000;
/// How many are listed in a report.
const LISTED_MAX: usize = 20;
/// The limit for the message of a server.
const MESSAGE_BYTES_MAX: usize = 512;

/// Reason: the physical cluster refused an object as invalid, for example because its node port is taken.
pub(crate) const REFUSED: &str = "Refused";
/// Reason: the physical cluster refused to resize a claim.
pub(crate) const CANNOT_RESIZE: &str = "CannotResize";

/// Why an object is not in sync.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SyncError {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) retry: Retry,
}

/// When to reconcile an object again after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    /// With backoff.
    Backoff,
    /// With backoff, and without a report: another writer was faster.
    Conflict,
    /// When an event requeues it.
    OnEvent,
    /// Periodically: no event announces that the cause was removed.
    Periodically,
}

impl SyncError {
    pub(crate) fn failed(reason: &'static str) -> impl Fn(CallError) -> SyncError {
        move |error| {
            let retry = if error.is_conflict() { Retry::Conflict } else { Retry::Backoff };
            SyncError { reason, message: shortened(error.to_string()), retry }
        }
    }

    /// Returns the error of a patch with a test operation: if the test fails, the object has changed since it was
    /// planned.
    pub(crate) fn stale(reason: &'static str) -> impl Fn(CallError) -> SyncError {
        move |error| {
            let retry = if matches!(error.code(), 409 | 422) { Retry::Conflict } else { Retry::Backoff };
            SyncError { retry, ..SyncError::failed(reason)(error) }
        }
    }

    /// Returns whether the physical cluster rejected a value that the user can change.
    pub(crate) fn is_for_user(&self) -> bool {
        [REFUSED, CANNOT_RESIZE].contains(&self.reason)
    }

    /// Returns whether it concerns this object rather than all of them.
    pub(crate) fn is_about_object(&self) -> bool {
        const OF_THE_CLUSTER: &[HoldReason] = &[
            HoldReason::MailboxNotSynced,
            HoldReason::DownstreamNotSynced,
            HoldReason::NotLeading,
            HoldReason::OtherCluster,
            HoldReason::UnknownCluster,
        ];
        !OF_THE_CLUSTER.iter().any(|hold| hold.reason() == self.reason)
    }
}

impl From<HoldReason> for SyncError {
    fn from(hold: HoldReason) -> SyncError {
        let retry = match hold {
            HoldReason::NotOurs
            | HoldReason::OtherMailbox
            | HoldReason::OriginMismatch
            | HoldReason::NoTombstone => Retry::Periodically,
            _ => Retry::OnEvent,
        };
        SyncError { reason: hold.reason(), message: hold.to_string(), retry }
    }
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().find(|(place, _)| *place >= MESSAGE_BYTES_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The current sync errors.
#[derive(Debug, Default)]
pub(crate) struct SyncErrors {
    stored: Mutex<StoredErrors>,
    hashes: RandomState,
}

#[derive(Debug, Default)]
struct StoredErrors {
    by_id: BTreeMap<ObjectId, SyncError>,
    /// Hashes of the objects with further errors.
    overflow: HashSet<u64>,
}

impl SyncErrors {
    fn stored(&self) -> MutexGuard<'_, StoredErrors> {
        self.stored.lock().expect("no holder of this lock panics")
    }

    /// Sets the error of an object. Returns whether it is a new one.
    pub(crate) fn set(&self, id: &ObjectId, error: &SyncError) -> bool {
        let mut stored = self.stored();
        let hash = self.hashes.hash_one(id);
        if stored.by_id.len() >= STORED_MAX && !stored.by_id.contains_key(id) {
            stored.overflow.insert(hash);
            return false;
        }
        stored.overflow.remove(&hash);
        let before = stored.by_id.insert(id.clone(), error.clone());
        // The messages of most errors vary between attempts; a message for the user changes only with the user's
        // object.
        before.is_none_or(|before| {
            before.reason != error.reason || error.is_for_user() && before.message != error.message
        })
    }

    /// Returns whether an object has an error.
    pub(crate) fn has(&self, id: &ObjectId) -> bool {
        let stored = self.stored();
        stored.by_id.contains_key(id) || stored.overflow.contains(&self.hashes.hash_one(id))
    }

    /// Clears the error of an object. Returns whether it had one.
    pub(crate) fn clear(&self, id: &ObjectId) -> bool {
        let mut stored = self.stored();
        stored.by_id.remove(id).is_some() || stored.overflow.remove(&self.hashes.hash_one(id))
    }

    /// Returns the number of errors, and a line for each of the first ones.
    pub(crate) fn summary(&self) -> (usize, String) {
        let stored = self.stored();
        let line = |(id, error): (&ObjectId, &SyncError)| {
            format!("{} {}: {}: {}", id.kind.plural, id.key, error.reason, error.message)
        };
        let count = stored.by_id.len() + stored.overflow.len();
        let mut lines: Vec<_> = stored.by_id.iter().take(LISTED_MAX).map(line).collect();
        if count > lines.len() {
            lines.push(format!("and {} more", count - lines.len()));
        }
        (count, lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::kinds::KindName;
    use controller::informer::Key;

    #[test]
    fn an_error_is_new_once_and_errors_are_bounded() {
        let errors = SyncErrors::default();
        let id =
            |n: usize| ObjectId::new(&KindName::new("", "configmaps"), Key::new("shop", &format!("m{n:05}")));
        let error = SyncError::from(HoldReason::NotOurs);
        assert!(errors.set(&id(0), &error));
        assert!(!errors.set(&id(0), &error));
        assert!(errors.set(&id(0), &HoldReason::OtherMailbox.into()));
        let (count, summary) = errors.summary();
        assert_eq!(count, 1);
        assert!(summary.starts_with("configmaps shop/m00000: OtherMailbox: "), "{summary}");
        for n in 0..2 * STORED_MAX {
            errors.set(&id(n), &error);
        }
        let (count, summary) = errors.summary();
        assert_eq!((count, summary.lines().count()), (2 * STORED_MAX, LISTED_MAX + 1));
        assert!(summary.ends_with(&format!("and {} more", 2 * STORED_MAX - LISTED_MAX)), "{summary}");
        // After one is cleared, a hashed error gets a message; it is still counted once.
        assert!(errors.clear(&id(0)));
        assert!(errors.set(&id(2 * STORED_MAX - 1), &error));
        assert_eq!(errors.summary().0, 2 * STORED_MAX - 1);
        assert!(!errors.has(&id(0)) && (1..2 * STORED_MAX).all(|n| errors.has(&id(n))));
        assert_eq!((0..2 * STORED_MAX).filter(|n| errors.clear(&id(*n))).count(), 2 * STORED_MAX - 1);
        assert_eq!(errors.summary(), (0, String::new()));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        assert!(shortened("ä".repeat(1000)).len() <= MESSAGE_BYTES_MAX + 5);
    }
}
