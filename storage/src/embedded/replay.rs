//! Start-up: replays the log into a snapshot, and detects lost records.

use std::path::Path;
use std::time::{Duration, Instant};

use super::journal::{Journal, Tail};
use super::layout::{Base, Record};
use super::log::{Log, LogError};
use super::{Damage, Progress};
use crate::store::{ByKey, Entry, Revision};
use crate::view::Snapshot;

/// How often start-up reports progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Why a log cannot be replayed.
#[derive(Debug)]
pub(super) enum ReplayError {
    /// Records are missing or corrupt.
    Damage(Damage),
    /// The files cannot be read; they may be intact.
    Unreadable(String),
}

impl From<Damage> for ReplayError {
    fn from(damage: Damage) -> ReplayError {
        ReplayError::Damage(damage)
    }
}

impl From<LogError> for ReplayError {
    fn from(error: LogError) -> ReplayError {
        match error.is_io() || error.is_locked() {
            true => ReplayError::Unreadable(error.to_string()),
            false => ReplayError::Damage(Damage::new(error.to_string())),
        }
    }
}

/// Reads the journals before fjall opens (and truncates) them. A torn tail is fine: nothing in it was acknowledged,
/// which the mark confirms. Anything else that is unreadable is damage.
pub(super) fn inspect(log: &Path, mark: Revision) -> Result<(), ReplayError> {
    let unreadable =
        |error: std::io::Error| ReplayError::Unreadable(format!("the journals cannot be read: {error}"));
    let mut journals = Journal::read_all(log).map_err(unreadable)?;
    if journals.iter().any(|journal| journal.exceeds(mark)) {
        // There is a write that was not acknowledged. If its sync failed, the page cache may have bytes that the disk
        // does not, so the journals are read again from the disk.
        journals.iter().try_for_each(Journal::forget_cached).map_err(unreadable)?;
        journals = Journal::read_all(log).map_err(unreadable)?;
    }
    let newest = journals.iter().filter_map(Journal::newest).max();
    for (index, journal) in journals.iter().enumerate() {
        let name = journal.path.file_name().unwrap_or_default().display();
        let later = journals[index + 1..].iter().any(|later| later.newest().is_some());
        match &journal.tail {
            Tail::Clean => {}
            Tail::Damaged { at, behind } => {
                let behind = behind.len();
                return Err(Damage::new(format!(
                    "journal {name} is unreadable at byte {at}, with {behind} readable batches behind it"
                ))
                .into());
            }
            // A failed write is the last one; fjall may have created another journal, but an empty one.
            Tail::Torn { at } if later => {
                return Err(Damage::new(format!(
                    "journal {name} ends in an unreadable batch at byte {at}, but later journals have batches"
                ))
                .into());
            }
            Tail::Torn { at } if newest.is_some_and(|newest| newest < mark) => {
                return Err(Damage::new(format!(
                    "journal {name} is unreadable from byte {at}; revisions up to {mark} were acknowledged"
                ))
                .into());
            }
            Tail::Torn { at } => {
                let bytes = journal.bytes.len() - at;
                tracing::warn!(journal = %name, at, bytes, "cutting a write torn by a crash; it was never acknowledged");
            }
        }
    }
    Ok(())
}

pub(super) struct Replayed {
    pub(super) snapshot: Snapshot,
    pub(super) base: Base,
    /// The size of the records after the base.
    pub(super) history_bytes: u64,
}

/// Replays all records, and checks that none is missing: see [`super::layout`].
pub(super) fn replay(
    log: &Log,
    mark: Revision,
    progress: &dyn Fn(Progress),
) -> Result<Replayed, ReplayError> {
    let base = log.base()?;
    let found = Base::at(base.compacted);
    let mut replaying = Replaying { snapshot: Snapshot::default(), base, found, history_bytes: 0 };
    let of = log.len_estimate();
    let mut reported = Instant::now();
    for (read, item) in log.records().enumerate() {
        let (revision, record) = item?;
        replaying.record(revision, record)?;
        if read % 1024 == 0 && reported.elapsed() >= PROGRESS_EVERY {
            reported = Instant::now();
            progress(Progress { records: read, of: of.max(read) });
        }
    }
    Ok(replaying.finish(mark)?)
}

struct Replaying {
    snapshot: Snapshot,
    base: Base,
    /// The base as computed from the records at or before its revision.
    found: Base,
    history_bytes: u64,
}

impl Replaying {
    fn record(&mut self, revision: Revision, record: Record) -> Result<(), Damage> {
        if revision <= self.base.compacted {
            self.found.add(revision);
            self.snapshot.revision = revision;
        } else {
            self.after_base(revision, &record)?;
            let value_bytes = record.value.as_ref().map_or(0, |value| value.len());
            self.history_bytes += (record.key.as_bytes().len() + value_bytes) as u64;
        }
        match record.value {
            Some(value) => self.snapshot.entries.insert(ByKey(Entry::new(record.key, revision, value))),
            None => self.snapshot.entries.remove(record.key.as_bytes()),
        };
        Ok(())
    }

    fn after_base(&mut self, revision: Revision, record: &Record) -> Result<(), Damage> {
        let newest = self.snapshot.revision.max(self.base.compacted);
        if revision != newest.next() {
            return Err(Damage::new(format!("revisions between {newest} and {revision} are missing")));
        }
        let current = self.snapshot.get(record.key.as_bytes()).map_or(Revision::ZERO, Entry::revision);
        if current != record.previous {
            return Err(Damage::new(format!(
                "revision {revision} of {:?} replaces revision {}, but the log has {current}",
                record.key, record.previous
            )));
        }
        self.snapshot.revision = revision;
        Ok(())
    }

    fn finish(mut self, mark: Revision) -> Result<Replayed, Damage> {
        if self.found != self.base {
            let found = self.found.count();
            return Err(Damage::new(format!(
                "expected {} entries at revision {}, found {found}, or {found} others",
                self.base.count(),
                self.base.compacted
            )));
        }
        self.snapshot.revision = self.snapshot.revision.max(self.base.compacted);
        if self.snapshot.revision < mark {
            return Err(Damage::new(format!(
                "revisions after {} are missing; {mark} was acknowledged",
                self.snapshot.revision
            )));
        }
        Ok(Replayed { snapshot: self.snapshot, base: self.base, history_bytes: self.history_bytes })
    }
}
