//! Recovers the readable records of a damaged store.
//!
//! Every valid record is collected: through fjall from a copy of the database, and directly from the journals, also
//! behind the damage, where fjall does not read. A new log is created with the newest record of each key. The damaged
//! log is kept.
//!
//! A lost record may have been a deletion, or the newest of several values; then an older entry reappears. Only an
//! operator can accept that, so recovery never runs by itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::files::{self, Lock, Mark};
use super::journal::{Journal, Tail};
use super::layout::Record;
use super::log::Log;
use super::rebuild;
use super::{Damage, OpenError};
use crate::range::Key;
use crate::store::{Entry, Revision};

/// The result of a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    pub entries: usize,
    /// The revision after which the store continues, far beyond any that can have been acknowledged.
    pub revision: Revision,
    /// Revisions without a record. Unknown for the compacted part of history.
    pub lost: Vec<RangeInclusive<u64>>,
    /// The path of the damaged log.
    pub damaged: PathBuf,
}

type Records = BTreeMap<Revision, Record>;

/// Rebuilds the store in `dir` from all readable records.
pub fn recover(dir: &Path) -> Result<Recovery, OpenError> {
    let _lock = Lock::take(dir)?;
    rebuild::finish(dir)?;
    let path = dir.join("log");
    files::check_format(dir, path.exists())?;
    let (mut mark, marked) = Mark::open(dir)?;

    let mut records = Records::new();
    let compacted = from_database(dir, &path, marked, &mut records)?;
    from_journals(&path, &mut records)?;
    if records.is_empty() && marked > Revision::ZERO {
        let damage =
            Damage::new("no record is readable; restore a backup with: holon store import".to_owned());
        return Err(OpenError::Damaged { dir: dir.to_owned(), damage });
    }

    let oldest = records.keys().next().map_or(Revision::ZERO, |first| Revision(first.0 - 1));
    let newest = records.keys().next_back().copied().unwrap_or_default().max(marked);
    let lost = gaps(&records, compacted.unwrap_or(oldest), newest);
    let revision = rebuild::skip_ahead(newest.max(compacted.unwrap_or_default()));
    let entries = newest_of_each_key(records);
    let count = entries.len();
    let Ok(()) = rebuild::write(dir, revision, entries.into_iter().map(Ok::<_, Infallible>))?;

    let damaged = unused_name(dir);
    rebuild::rename(&path, &damaged)?;
    rebuild::finish(dir)?;
    rebuild::set(&mut mark, dir, revision)?;
    Ok(Recovery { entries: count, revision, lost, damaged })
}

/// Collects the records that fjall can read, from a copy, because opening changes the files. Returns up to where
/// history was compacted, if that is still known.
fn from_database(
    dir: &Path,
    path: &Path,
    marked: Revision,
    records: &mut Records,
) -> Result<Option<Revision>, OpenError> {
    let copy = dir.join("salvage.tmp");
    let remove = || std::fs::remove_dir_all(&copy).map_err(|source| OpenError::io("remove", &copy, source));
    if copy.exists() {
        remove()?;
    }
    copy_all(path, &copy).map_err(|source| OpenError::io("copy", path, source))?;
    cut_damage(&copy).map_err(|source| OpenError::io("read the journals of", &copy, source))?;
    let compacted = match Log::check(&copy) {
        Ok(log) => read_all(&log, marked, records),
        Err(error) => {
            tracing::warn!(%error, "cannot open the database; recovering from the journals only");
            None
        }
    };
    remove()?;
    Ok(compacted)
}

fn read_all(log: &Log, marked: Revision, records: &mut Records) -> Option<Revision> {
    let mut damaged = false;
    for item in log.records() {
        match item {
            Ok((revision, record)) => drop(records.insert(revision, record)),
            Err(_) => damaged = true,
        }
    }
    if damaged {
        // An unreadable block can hide the records behind it from a scan, so each revision is also read by itself.
        let newest = records.keys().next_back().copied().unwrap_or_default().max(marked);
        for revision in (1..=newest.0).map(Revision) {
            if let Ok(Some(record)) = log.record(revision) {
                records.insert(revision, record);
            }
        }
    }
    log.base().ok().map(|base| base.compacted)
}

/// Truncates the first damaged journal, as fjall would, and removes those after it, which fjall would not.
fn cut_damage(copy: &Path) -> std::io::Result<()> {
    let mut damaged = false;
    for journal in Journal::read_all(copy)? {
        if damaged {
            std::fs::remove_file(&journal.path)?;
        } else if let Tail::Torn { at } | Tail::Damaged { at, .. } = journal.tail {
            damaged = true;
            std::fs::OpenOptions::new().write(true).open(&journal.path)?.set_len(at as u64)?;
        }
    }
    Ok(())
}

/// Collects all readable records of all journals, before and behind the damage.
fn from_journals(path: &Path, records: &mut Records) -> Result<(), OpenError> {
    let journals = Journal::read_all(path).map_err(|source| OpenError::io("read", path, source))?;
    for journal in &journals {
        let behind = match &journal.tail {
            Tail::Damaged { behind, .. } => behind.as_slice(),
            Tail::Clean | Tail::Torn { .. } => &[],
        };
        for item in journal.batches.iter().chain(behind).flat_map(|batch| &batch.items) {
            if let Some(revision) = item.revision()
                && let Ok(record) = Record::decode(revision, &journal.bytes[item.value.clone()])
            {
                records.insert(revision, record);
            }
        }
    }
    Ok(())
}

fn newest_of_each_key(records: Records) -> Vec<Entry> {
    let mut entries: BTreeMap<Key, Entry> = BTreeMap::new();
    for (revision, record) in records {
        match record.value {
            Some(value) => entries.insert(record.key.clone(), Entry::new(record.key, revision, value)),
            None => entries.remove(&record.key),
        };
    }
    entries.into_values().collect()
}

/// Returns the revisions in (`after`, `until`] without a record.
fn gaps(records: &Records, after: Revision, until: Revision) -> Vec<RangeInclusive<u64>> {
    let mut gaps = Vec::new();
    let mut next = after.0 + 1;
    for Revision(found) in records.range(after.next()..).map(|(revision, _)| *revision) {
        if found > next {
            gaps.push(next..=found - 1);
        }
        next = found + 1;
    }
    if next <= until.0 {
        gaps.push(next..=until.0);
    }
    gaps
}

fn unused_name(dir: &Path) -> PathBuf {
    let names = (1..).map(|number| dir.join(format!("damaged-{number}")));
    names.into_iter().find(|name| !name.exists()).expect("an endless list has an unused name")
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_listed() {
        let check = |found: &[u64], after: u64, until: u64, expected: &[RangeInclusive<u64>]| {
            let record = Record { key: Key::from("k"), value: None, previous: Revision::ZERO };
            let records = found.iter().map(|revision| (Revision(*revision), record.clone())).collect();
            assert_eq!(gaps(&records, Revision(after), Revision(until)), expected, "{found:?}");
        };
        check(&[1, 2, 3], 0, 3, &[]);
        check(&[1, 4, 5, 9], 0, 12, &[2..=3, 6..=8, 10..=12]);
        check(&[2, 7, 8], 6, 8, &[]);
        check(&[], 0, 0, &[]);
        check(&[], 4, 6, &[5..=6]);
    }
}
