//! The fjall database. No other module calls fjall.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::config::{BlockSizePolicy, FilterPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use rustix::io::Errno;

use super::layout::{BASE, Base, HISTORY, Head, Record};
use crate::store::{Entry, Event, Revision};
use crate::view::EventSpan;

/// The memtable size at which it is written to a table. The View has everything in memory already, so it is small.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// An idle memtable of this size is written to a table as well, because the View holds the same entries in memory.
/// After a large deletion the View is small, and the memtable should not stay large.
const FLUSH_IDLE_BYTES: u64 = 1 << 20;
/// The size of a removal in a memtable: its key, and its node in the skip list.
const REMOVAL_BYTES: u64 = 64;
/// Maximum number of full memtables that wait to be written. At four, fjall blocks commits, for ever if its worker has
/// stopped, so a fourth is never created.
const SEALED_MAX: usize = 3;
/// With this many unwritten bytes, the writer waits until tables are written.
const UNWRITTEN_MAX: u64 = 8 * MEMTABLE_BYTES;
/// Merging tables can take seconds. Without progress for this long, fjall's worker has stopped.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// Only start-up, slow watchers and compaction read from disk, all of them in order.
const CACHE_BYTES: u64 = 4 << 20;
const BLOCK_BYTES: u32 = 32 << 10;
/// With more journal than this, tables are written. Bounds what start-up has to replay.
const JOURNAL_BYTES: u64 = 128 << 20;
/// Maximum size of the values that a read of history holds at once.
const SPAN_BYTES: usize = 4 << 20;

#[derive(Clone)]
pub(super) struct Log {
    database: Database,
    history: Keyspace,
    base: Keyspace,
    /// Bytes that start-up read from the journals into a memtable. They are flushed when the log is idle.
    replayed_bytes: Arc<AtomicU64>,
    /// Bytes appended since the last memtable was full.
    unsealed_bytes: Arc<AtomicU64>,
    /// The value of `unsealed_bytes` at the last call of [`Log::flush_idle`].
    idle_bytes: Arc<AtomicU64>,
    /// Whether fjall may still hold a memtable that was written to a table.
    lingers: Arc<AtomicBool>,
}

/// The purpose of opening a database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Create,
    /// Only reading: no background work runs, so nothing but a torn tail changes.
    Check,
    Work,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LogError {
    #[error("{0}")]
    Fjall(#[from] fjall::Error),
    #[error("{0}")]
    Malformed(String),
}

impl LogError {
    /// Reports whether the disk was full. Other errors are not worth a retry.
    pub(super) fn is_full(&self) -> bool {
        self.io().is_some_and(|error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        })
    }

    /// Reports whether background work failed earlier. Then this commit was not even begun.
    pub(super) fn is_poisoned(&self) -> bool {
        matches!(self, LogError::Fjall(fjall::Error::Poisoned))
    }

    /// Reports whether another handle in this process still has the database open.
    pub(super) fn is_locked(&self) -> bool {
        matches!(self, LogError::Fjall(fjall::Error::Locked))
    }

    /// Reports whether this is an error of the operating system, and not of the contents of the files. A missing file
    /// is damage, and so is a failing read of the disk.
    pub(super) fn is_io(&self) -> bool {
        let damage = [Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::IO].map(Errno::raw_os_error);
        self.io().and_then(io::Error::raw_os_error).is_some_and(|number| !damage.contains(&number))
    }

    fn io(&self) -> Option<&io::Error> {
        match self {
            LogError::Fjall(fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error))) => {
                Some(error)
            }
            _ => None,
        }
    }
}

impl Log {
    /// Creates a database in a directory that has none, and syncs everything that fjall leaves unsynced.
    pub(super) fn create(path: &Path) -> Result<Log, LogError> {
        let log = Log::at(path, Purpose::Create)?;
        // fjall does not sync the directory that holds its keyspaces: a loss of power could take them all.
        super::files::sync_tree(path).map_err(fjall::Error::Io)?;
        // Even if the directory around it is not private: the log will contain the Secrets of all users.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(path, private).map_err(fjall::Error::Io)?;
        Ok(log)
    }

    /// Opens a database. Its journals must have been inspected before: fjall truncates what it cannot read.
    pub(super) fn open(path: &Path) -> Result<Log, LogError> {
        Log::at(path, Purpose::Work)
    }

    /// Opens a database only to read it.
    pub(super) fn check(path: &Path) -> Result<Log, LogError> {
        Log::at(path, Purpose::Check)
    }

    fn at(path: &Path, purpose: Purpose) -> Result<Log, LogError> {
        let open = || -> Result<Log, LogError> {
            let database = Database::builder(path)
                .journal_compression(CompressionType::None)
                .max_journaling_size(JOURNAL_BYTES)
                .cache_size(CACHE_BYTES)
                .worker_threads_unchecked(usize::from(purpose != Purpose::Check))
                .open()?;
            let complete = [HISTORY, BASE].iter().all(|name| database.keyspace_exists(name));
            if purpose != Purpose::Create && !complete {
                return Err(LogError::Malformed("the log has lost its keyspaces".to_owned()));
            }
            let history = database.keyspace(HISTORY, || {
                KeyspaceCreateOptions::default()
                    // fjall itself never regards a memtable as full: see `seal`.
                    .max_memtable_size(u64::MAX)
                    .data_block_size_policy(BlockSizePolicy::all(BLOCK_BYTES))
                    .filter_policy(FilterPolicy::disabled())
            })?;
            let base = database.keyspace(BASE, KeyspaceCreateOptions::default)?;
            let replayed_bytes = match purpose {
                Purpose::Work => Arc::new(AtomicU64::new(database.write_buffer_size())),
                Purpose::Create | Purpose::Check => Arc::default(),
            };
            let unsealed_bytes = Arc::default();
            let (idle_bytes, lingers) = Default::default();
            Ok(Log { database, history, base, replayed_bytes, unsealed_bytes, idle_bytes, lingers })
        };
        // A damaged file must result in an error, so a panic inside the library counts as damage.
        catch_unwind(AssertUnwindSafe(open))
            .unwrap_or_else(|_| Err(LogError::Malformed("the database could not be read".to_owned())))
    }

    pub(super) fn base(&self) -> Result<Base, LogError> {
        match self.base.get(BASE)? {
            Some(bytes) => Base::decode(&bytes).map_err(|error| LogError::Malformed(error.to_string())),
            None => Ok(Base::default()),
        }
    }

    /// Has a full memtable written to a table. Returns false if tables are no longer written.
    ///
    /// fjall would do this by itself, with a message per commit to its worker, which also sends messages to itself.
    /// When the queue is full, the worker waits for itself and no table is ever written again. So the writer thread
    /// decides when, and no commit sends a message.
    pub(super) fn seal(&self) -> Result<bool, LogError> {
        let unsealed = self.unsealed_bytes.load(Ordering::Relaxed);
        if unsealed < MEMTABLE_BYTES {
            return Ok(true);
        }
        let since = Instant::now();
        while self.history.sealed_memtable_count() >= SEALED_MAX {
            if unsealed < UNWRITTEN_MAX {
                return Ok(true);
            }
            if since.elapsed() > STUCK_AFTER {
                return Ok(false);
            }
            self.probe()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        self.rotate()?;
        Ok(true)
    }

    fn rotate(&self) -> Result<(), LogError> {
        self.unsealed_bytes.store(0, Ordering::Relaxed);
        self.replayed_bytes.store(0, Ordering::Relaxed);
        self.history.rotate_memtable()?;
        self.lingers.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Flushes the memtable if nothing was appended since the last call. The writer calls this regularly.
    pub(super) fn flush_idle(&self) -> Result<(), LogError> {
        let unsealed = self.unsealed_bytes.load(Ordering::Relaxed);
        let is_quiet = self.idle_bytes.swap(unsealed, Ordering::Relaxed) == unsealed;
        if !is_quiet || self.history.sealed_memtable_count() > 0 {
            return Ok(());
        }
        if unsealed + self.replayed_bytes.load(Ordering::Relaxed) >= FLUSH_IDLE_BYTES {
            return self.rotate();
        }
        if self.lingers.swap(false, Ordering::Relaxed) {
            self.release_memtable()?;
        }
        Ok(())
    }

    /// fjall keeps a flushed memtable until two more writes are older than another sealed memtable of any keyspace. So
    /// this writes the unchanged base twice more, and seals its memtable.
    fn release_memtable(&self) -> Result<(), LogError> {
        if self.base.get(BASE)?.is_none() {
            return Ok(());
        }
        for _ in 0..2 {
            let mut append = self.append();
            append.base(&self.base()?);
            append.commit()?;
        }
        self.base.rotate_memtable()?;
        Ok(())
    }

    /// Fails if background work has failed.
    pub(super) fn probe(&self) -> Result<(), LogError> {
        Ok(self.database.persist(PersistMode::Buffer)?)
    }

    pub(super) fn append(&self) -> Append {
        let batch = self.database.batch().durability(Some(PersistMode::SyncData));
        Append { batch, log: self.clone(), bytes: 0 }
    }

    /// Returns all records with their revisions, oldest first.
    pub(super) fn records(&self) -> impl Iterator<Item = Result<(Revision, Record), LogError>> {
        self.history.iter().map(read)
    }

    /// Returns the approximate number of records.
    pub(super) fn len_estimate(&self) -> usize {
        self.history.approximate_len()
    }

    pub(super) fn newest(&self) -> Result<Option<Revision>, LogError> {
        self.history.last_key_value().map(|guard| revision_of(&guard.key()?)).transpose()
    }

    pub(super) fn record(&self, revision: Revision) -> Result<Option<Record>, LogError> {
        let found = self.history.get(revision.0.to_be_bytes())?;
        found.map(|bytes| decode(revision, &bytes)).transpose()
    }

    /// Returns the records in (`after`, `until`], oldest first.
    pub(super) fn range(
        &self,
        after: Revision,
        until: Revision,
    ) -> impl Iterator<Item = Result<(Revision, Record), LogError>> {
        let (from, to) = (after.next().0.to_be_bytes(), until.0.to_be_bytes());
        self.history.range(from..=to).map(read)
    }

    /// Returns the heads of the records in (`after`, `until`], oldest first. Compaction needs no more, and so copies no
    /// values.
    pub(super) fn heads(
        &self,
        after: Revision,
        until: Revision,
    ) -> impl Iterator<Item = Result<(Revision, Head), LogError>> {
        let (from, to) = (after.next().0.to_be_bytes(), until.0.to_be_bytes());
        self.history.range(from..=to).map(|guard| {
            let (key, value) = guard.into_inner()?;
            let revision = revision_of(&key)?;
            let head = Head::decode(revision, &value);
            Ok((
                revision,
                head.map_err(|error| LogError::Malformed(format!("revision {revision}: {error}")))?,
            ))
        })
    }

    /// Returns the events in (`after`, `until`] with the entries they replaced. `None` if compaction removed part of
    /// them.
    pub(super) fn events(
        &self,
        after: Revision,
        until: Revision,
        limit: usize,
    ) -> Result<Option<EventSpan>, LogError> {
        let mut span = EventSpan { events: Vec::new(), through: after };
        let mut bytes = 0;
        if after >= until {
            return Ok(Some(span));
        }
        for item in self.range(after, until) {
            let (revision, record) = item?;
            if revision != span.through.next() {
                return Ok(None);
            }
            let Some(previous) = self.previous(&record)? else { return Ok(None) };
            bytes += record.value.as_ref().map_or(0, |value| value.len());
            let current = record.value.map(|value| Entry::new(record.key.clone(), revision, value));
            span.events.push(Event { revision, key: record.key, current, previous });
            span.through = revision;
            if span.events.len() == limit || bytes > SPAN_BYTES {
                return Ok(Some(span));
            }
        }
        Ok((span.through == until).then_some(span))
    }

    /// Returns the entry that a record replaced. The outer `None` means that it is compacted.
    fn previous(&self, record: &Record) -> Result<Option<Option<Entry>>, LogError> {
        if record.previous == Revision::ZERO {
            return Ok(Some(None));
        }
        let Some(Record { key, value: Some(value), .. }) = self.record(record.previous)? else {
            return Ok(None);
        };
        Ok(Some(Some(Entry::new(key, record.previous, value))))
    }
}

fn read(guard: fjall::Guard) -> Result<(Revision, Record), LogError> {
    let (key, value) = guard.into_inner()?;
    let revision = revision_of(&key)?;
    Ok((revision, decode(revision, &value)?))
}

fn revision_of(key: &[u8]) -> Result<Revision, LogError> {
    let bytes =
        key.try_into().map_err(|_| LogError::Malformed(format!("unexpected key {}", key.escape_ascii())))?;
    Ok(Revision(u64::from_be_bytes(bytes)))
}

fn decode(revision: Revision, bytes: &[u8]) -> Result<Record, LogError> {
    Record::decode(revision, bytes)
        .map_err(|error| LogError::Malformed(format!("revision {revision}: {error}")))
}

/// Changes that become durable atomically.
pub(super) struct Append {
    batch: fjall::OwnedWriteBatch,
    log: Log,
    bytes: u64,
}

impl Append {
    pub(super) fn event(&mut self, event: &Event) {
        let value = event.current.as_ref().map(|entry| entry.value().as_ref());
        let previous = event.previous.as_ref().map_or(Revision::ZERO, Entry::revision);
        let record = Record::encode(event.revision, &event.key, value, previous);
        self.bytes += record.len() as u64;
        self.batch.insert(&self.log.history, event.revision.0.to_be_bytes(), record);
    }

    /// Adds a current entry, without its history.
    pub(super) fn entry(&mut self, entry: &Entry) {
        let record = Record::encode(entry.revision(), entry.key(), Some(entry.value()), Revision::ZERO);
        self.bytes += record.len() as u64;
        self.batch.insert(&self.log.history, entry.revision().0.to_be_bytes(), record);
    }

    pub(super) fn remove(&mut self, revision: Revision) {
        self.bytes += REMOVAL_BYTES;
        self.batch.remove(&self.log.history, revision.0.to_be_bytes());
    }

    pub(super) fn base(&mut self, base: &Base) {
        self.batch.insert(&self.log.base, BASE, &base.encode()[..]);
    }

    /// Commits, and returns when everything is synced to disk.
    pub(super) fn commit(self) -> Result<(), LogError> {
        self.batch.commit()?;
        self.log.unsealed_bytes.fetch_add(self.bytes, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::Key;

    /// After a large deletion the View is nearly empty; the memtable must not stay in memory until the next large
    /// write.
    #[test]
    fn an_idle_memtable_is_flushed_and_released() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::create(&dir.path().join("log")).unwrap();
        let value = vec![b'x'; FLUSH_IDLE_BYTES as usize].into();
        let mut append = log.append();
        append.entry(&Entry::new(Key::from("k"), Revision(1), value));
        append.base(&Base::default());
        append.commit().unwrap();
        log.flush_idle().unwrap();
        assert!(
            log.unsealed_bytes.load(Ordering::Relaxed) >= FLUSH_IDLE_BYTES,
            "it has only just been written"
        );
        log.flush_idle().unwrap();
        assert_eq!(log.unsealed_bytes.load(Ordering::Relaxed), 0);
        while log.history.sealed_memtable_count() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(log.history.table_count(), 1);
        // Each version of the tables that fjall still holds, with its memtable, has a file.
        let memtables = || {
            let files = std::fs::read_dir(log.history.path()).unwrap();
            files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with('v')).count()
        };
        assert!(memtables() > 1);
        // Tables may still be merged in the background.
        for _ in 0..1000 {
            log.lingers.store(true, Ordering::Relaxed);
            log.flush_idle().unwrap();
            if memtables() == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(memtables(), 1);
        assert!(log.record(Revision(1)).unwrap().is_some());
    }
}
