//! Writes a new log from entries: to restore a backup, and to recover a damaged log.
//!
//! The new log is written beside the old one and replaces it by a rename, so a crash leaves either the old or the new
//! one. Its history is empty: clients that watched the old store must list again.

use std::convert::Infallible;
use std::path::Path;

use super::files::{self, Lock, Mark};
use super::layout::Base;
use super::log::{Log, LogError};
use super::{OpenError, replay};
use crate::store::{Entry, Revision};

/// Entries written with one sync.
const BATCH_ENTRIES: usize = 1000;
const NEW: &str = "log.new";

/// How many revisions a rebuilt store skips. It must not reuse a revision that a client may hold: those since the
/// backup was made, or those acknowledged after the last mark that survived. This is a day of 50,000 writes a second.
const SKIPPED_REVISIONS: u64 = 1 << 32;

/// Returns the revision after which a rebuilt store continues, given the newest known one.
pub(super) fn skip_ahead(known: Revision) -> Revision {
    Revision(known.0 + SKIPPED_REVISIONS)
}

/// Creates a store with these entries in `dir`, which must not contain one, and returns the revision after which it
/// continues. That is later than `revision`, the revision of the entries.
pub(crate) fn create<E>(
    dir: &Path,
    revision: Revision,
    entries: impl Iterator<Item = Result<Entry, E>>,
) -> Result<Result<Revision, E>, OpenError> {
    files::create_dir(dir).map_err(|source| OpenError::io("create", dir, source))?;
    let _lock = Lock::take(dir)?;
    finish(dir)?;
    if dir.join("log").exists() {
        return Err(OpenError::NotEmpty { dir: dir.to_owned() });
    }
    files::check_format(dir, false)?;
    let (mut mark, marked) = Mark::open(dir)?;
    let revision = skip_ahead(revision.max(marked));
    if let Err(error) = write(dir, revision, entries)? {
        return Ok(Err(error));
    }
    finish(dir)?;
    set(&mut mark, dir, revision)?;
    Ok(Ok(revision))
}

/// Creates an empty log.
pub(super) fn empty(dir: &Path) -> Result<(), OpenError> {
    let Ok(()) = write(dir, Revision::ZERO, std::iter::empty::<Result<Entry, Infallible>>())?;
    finish(dir)
}

/// Writes `log.new` with the current entries `entries`, and with `revision` as both its newest and its oldest revision.
pub(super) fn write<E>(
    dir: &Path,
    revision: Revision,
    entries: impl Iterator<Item = Result<Entry, E>>,
) -> Result<Result<(), E>, OpenError> {
    let path = dir.join("log.tmp");
    for left_over in [&path, &dir.join(NEW)].into_iter().filter(|path| path.exists()) {
        std::fs::remove_dir_all(left_over).map_err(|source| OpenError::io("remove", left_over, source))?;
    }
    let failed = |error: LogError| OpenError::Log { dir: dir.to_owned(), reason: error.to_string() };
    let log = Log::create(&path).map_err(failed)?;
    let mut base = Base::at(revision);
    let mut entries = entries.peekable();
    while entries.peek().is_some() {
        let mut append = log.append();
        for entry in entries.by_ref().take(BATCH_ENTRIES) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Ok(Err(error)),
            };
            base.add(entry.revision());
            append.entry(&entry);
        }
        append.commit().map_err(failed)?;
    }
    let mut append = log.append();
    append.base(&base);
    append.commit().map_err(failed)?;
    replay::replay(&log, revision, &|_| {})
        .map_err(|error| failed(LogError::Malformed(format!("{error:?}"))))?;
    drop(log);
    rename(&path, &dir.join(NEW))?;
    Ok(Ok(()))
}

/// Renames a complete `log.new` to `log`, if the old log has been moved away.
pub(super) fn finish(dir: &Path) -> Result<(), OpenError> {
    let (new, log) = (dir.join(NEW), dir.join("log"));
    if new.exists() && !log.exists() {
        rename(&new, &log)?;
    }
    Ok(())
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), OpenError> {
    let parent = to.parent().unwrap_or(to);
    std::fs::rename(from, to)
        .and_then(|()| files::sync_dir(parent))
        .map_err(|source| OpenError::io("rename", from, source))
}

pub(super) fn set(mark: &mut Mark, dir: &Path, revision: Revision) -> Result<(), OpenError> {
    mark.set(revision)
        .and_then(|()| mark.sync())
        .map_err(|source| OpenError::io("write", &dir.join("MARK"), source))
}
