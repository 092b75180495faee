//! From the log to a snapshot: what start-up does, and where it finds loss.

use std::path::Path;
use std::time::{Duration, Instant};

use super::journal::{Journal, Tail};
use super::layout::{Base, Record};
use super::log::{Log, LogError};
use super::{Damage, Progress};
use crate::store::{ByKey, Entry, Revision};
use crate::view::Snapshot;

/// How often start-up says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Reads the journals as they are on disk, before fjall opens (and cuts) them. A torn tail is fine: nothing
/// in it was acknowledged, which the mark confirms. Anything else unreadable is damage.
pub(super) fn inspect(log: &Path, mark: Revision) -> Result<(), Damage> {
    let journals = Journal::read_all(log)
        .map_err(|error| Damage::new(format!("the journals cannot be read: {error}")))?;
    let newest = journals.iter().filter_map(Journal::newest).max();
    let count = journals.len();
    for (place, journal) in journals.iter().enumerate() {
        let name = journal.path.file_name().unwrap_or_default().display();
        match &journal.tail {
            Tail::Clean => {}
            Tail::Damaged { at, behind } => {
                let behind = behind.len();
                return Err(Damage::new(format!(
                    "journal {name} is unreadable at byte {at}, with {behind} readable batches behind it"
                )));
            }
            // A journal is complete before the next one begins.
            Tail::Torn { at } if place + 1 < count => {
                return Err(Damage::new(format!(
                    "journal {name} ends in an unreadable batch at byte {at}, and is not the last one"
                )));
            }
            Tail::Torn { at } if newest.is_some_and(|newest| newest < mark) => {
                return Err(Damage::new(format!(
                    "journal {name} is unreadable from byte {at}; revisions up to {mark} were acknowledged"
                )));
            }
            Tail::Torn { at } => {
                tracing::warn!(journal = %name, at, bytes = journal.bytes.len() - at, "cutting a write torn by a crash; it was never acknowledged");
            }
        }
    }
    Ok(())
}

pub(super) struct Replayed {
    pub(super) snapshot: Snapshot,
    pub(super) base: Base,
}

/// Replays every record, and checks that none is missing: see [`super::layout`].
pub(super) fn replay(log: &Log, mark: Revision, progress: &dyn Fn(Progress)) -> Result<Replayed, Damage> {
    let base = log.base().map_err(Damage::of)?;
    let mut replaying = Replaying { snapshot: Snapshot::default(), base, found: Base::at(base.compacted) };
    let of = log.len_estimate();
    let mut told = Instant::now();
    for (read, item) in log.records().enumerate() {
        let (revision, record) = item.map_err(Damage::of)?;
        replaying.record(revision, record)?;
        if read % 1024 == 0 && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            progress(Progress { records: read, of: of.max(read) });
        }
    }
    replaying.finish(mark)
}

struct Replaying {
    snapshot: Snapshot,
    base: Base,
    /// What was found at or before the base's revision.
    found: Base,
}

impl Replaying {
    fn record(&mut self, revision: Revision, record: Record) -> Result<(), Damage> {
        if revision <= self.base.compacted {
            self.found.add(revision);
            self.snapshot.revision = revision;
        } else {
            self.after_base(revision, &record)?;
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
                "revision {revision} of {:?} follows {}, but {current} was found",
                record.key, record.previous
            )));
        }
        self.snapshot.revision = revision;
        Ok(())
    }

    fn finish(mut self, mark: Revision) -> Result<Replayed, Damage> {
        if self.found != self.base {
            return Err(Damage::new(format!(
                "at revision {} there were {} entries; {} were found, or others",
                self.base.compacted,
                self.base.count(),
                self.found.count()
            )));
        }
        self.snapshot.revision = self.snapshot.revision.max(self.base.compacted);
        if self.snapshot.revision < mark {
            return Err(Damage::new(format!(
                "revisions after {} are missing; {mark} was acknowledged",
                self.snapshot.revision
            )));
        }
        Ok(Replayed { snapshot: self.snapshot, base: self.base })
    }
}

impl Damage {
    fn of(error: LogError) -> Damage {
        Damage::new(error.to_string())
    }
}
