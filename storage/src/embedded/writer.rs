//! The writer thread.
//!
//! It owns the next revision, the mark and the base. All writes to the disk happen here, in order. Readers never wait
//! for it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::files::{self, Lock, Mark};
use super::journal::Journal;
use super::layout::Base;
use super::log::{Log, LogError};
use super::{Health, OpenError, Options, disk_space};
use crate::range::Key;
use crate::store::{At, Change, CommitError, Event, Expect, ReadError, Revision, check_size};
use crate::view::View;

/// Maximum number of commits made durable by one sync. At 2 KB each this is 2 MB, a few milliseconds of disk.
const BATCH_COMMITS: usize = 1024;
/// Commits of up to this many KiB are queued; further writers wait for the semaphore.
const QUEUE_KIB: usize = 64 << 10;
/// Maximum number of records in one compaction step: a few milliseconds between two batches of commits.
const COMPACT_RECORDS: usize = 4096;
const COMPACT_BYTES: usize = 8 << 20;
const TICK: Duration = Duration::from_secs(1);
/// How long to wait for slow watchers to finish reading the log before it is re-opened.
const READERS_WAIT: Duration = Duration::from_secs(2);

type ResultSender<T, E> = oneshot::Sender<Result<T, E>>;

struct Commit {
    key: Key,
    expect: Expect,
    change: Change,
    answer: ResultSender<Event, CommitError>,
    _permit: OwnedSemaphorePermit,
}

enum Message {
    Commit(Commit),
    Compact(Revision, ResultSender<(), ReadError>),
    Close,
}

/// The queue of the writer thread.
pub(super) struct Queue {
    sender: Sender<Message>,
    byte_permits: Arc<Semaphore>,
}

impl Queue {
    pub(super) async fn commit(
        &self,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        check_size(&key, &change)?;
        let closed = || CommitError::Unavailable { reason: "the store is closed".to_owned() };
        let bytes = match &change {
            Change::Put(value) => key.as_bytes().len() + value.len(),
            Change::Delete => key.as_bytes().len(),
        };
        // `check_size` bounds this to some thousand KiB, less than the whole queue.
        let weight = 1 + (bytes >> 10) as u32;
        let byte_permits =
            self.byte_permits.clone().acquire_many_owned(weight).await.map_err(|_| closed())?;
        let (sender, receiver) = oneshot::channel();
        let commit = Commit { key, expect, change, answer: sender, _permit: byte_permits };
        self.sender.send(Message::Commit(commit)).map_err(|_| closed())?;
        let writer_ended = || CommitError::Unknown { reason: "the store's writer ended".to_owned() };
        receiver.await.unwrap_or_else(|_| Err(writer_ended()))
    }

    pub(super) async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        let closed = || ReadError::Unavailable { reason: "the store is closed".to_owned() };
        let (sender, receiver) = oneshot::channel();
        self.sender.send(Message::Compact(through, sender)).map_err(|_| closed())?;
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn close(&self) {
        // If the writer has ended already, there is nothing to close.
        let _ = self.sender.send(Message::Close);
    }
}

/// The state of the writer thread.
pub(super) struct Writer {
    pub(super) lock: Lock,
    pub(super) mark: Mark,
    pub(super) path: PathBuf,
    /// Shared with readers of history. Empty only while the log is re-opened.
    pub(super) log: Arc<ArcSwapOption<Log>>,
    pub(super) view: Arc<View>,
    pub(super) base: Base,
    /// The size of the history found at start-up.
    pub(super) history_bytes: u64,
    pub(super) options: Options,
}

impl Writer {
    pub(super) fn start(self) -> Result<(Queue, watch::Receiver<Health>, JoinHandle<()>), OpenError> {
        let (sender, messages) = mpsc::channel();
        let (health, watched) = watch::channel(Health::Writable);
        let path = self.path.clone();
        // The history found at start-up counts as written before everything else, at this time.
        let (start, history_bytes) =
            (Sample { taken: Instant::now(), head: self.view.head(), written_bytes: 0 }, self.history_bytes);
        let running = Running {
            writer: self,
            messages,
            health,
            compaction: None,
            samples: VecDeque::from([start]),
            written_bytes: history_bytes,
            ticked: Instant::now(),
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || running.run())
            .map_err(|source| OpenError::io("start the writer of", &path, source))?;
        let queue = Queue { sender, byte_permits: Arc::new(Semaphore::new(QUEUE_KIB)) };
        Ok((queue, watched, thread))
    }

    fn probe(&self, step: &'static str) {
        if let Some(probe) = &self.options.probe {
            probe(step);
        }
    }
}

struct Running {
    writer: Writer,
    messages: Receiver<Message>,
    health: watch::Sender<Health>,
    compaction: Option<Compaction>,
    /// The newest revision and the bytes written so far at several times.
    samples: VecDeque<Sample>,
    written_bytes: u64,
    ticked: Instant,
}

struct Compaction {
    through: Revision,
    answers: Vec<ResultSender<(), ReadError>>,
}

struct Sample {
    taken: Instant,
    head: Revision,
    written_bytes: u64,
}

impl Running {
    fn run(mut self) {
        loop {
            let wait = if self.compaction.is_some() { Duration::ZERO } else { TICK };
            let open = match self.messages.recv_timeout(wait) {
                Ok(first) => self.handle(first),
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            if !open {
                break;
            }
            self.compact_some();
            self.tick();
        }
        self.close();
    }

    /// Handles a message and all messages queued behind it. Returns false when the store is to close.
    fn handle(&mut self, first: Message) -> bool {
        let mut commits = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Commit(commit) => commits.push(commit),
                Message::Compact(through, answer) => self.request_compaction(through, Some(answer)),
                Message::Close => {
                    self.commit(commits);
                    return false;
                }
            }
            next = if commits.len() < BATCH_COMMITS { self.messages.try_recv().ok() } else { None };
        }
        self.commit(commits);
        true
    }

    fn commit(&mut self, commits: Vec<Commit>) {
        let refusal = self.refusal();
        let mut draft = self.writer.view.draft();
        let mut outcomes = Vec::with_capacity(commits.len());
        for Commit { key, expect, change, answer, _permit } in commits {
            let current = draft.get(key.as_bytes());
            let outcome = if !expect.holds(current) || (current.is_none() && change == Change::Delete) {
                let current = At { revision: draft.revision(), value: current.cloned() };
                Err(CommitError::Conflict { current })
            } else if let Some(reason) = refusal.as_ref().and_then(|refusal| refusal.of(&change)) {
                Err(CommitError::ReadOnly { reason: reason.to_owned() })
            } else {
                let value = match change {
                    Change::Put(value) => Some(value),
                    Change::Delete => None,
                };
                let revision = draft.revision().next();
                Ok(draft.apply(key, revision, value).clone())
            };
            outcomes.push((answer, outcome, _permit));
        }
        let mut wakes = None;
        if !draft.events().is_empty() {
            match self.make_durable(draft.events()) {
                Ok(()) => {
                    let head = draft.revision();
                    wakes = Some(self.writer.view.publish(draft, head));
                    self.writer.probe("published");
                }
                // Even conflicts fail: the commit they conflict with may be in this batch, and its outcome is unknown.
                Err(error) => outcomes.iter_mut().for_each(|(_, outcome, _)| *outcome = Err(error.clone())),
            }
        }
        for (answer, outcome, _permit) in outcomes {
            // The caller may have dropped its future; the write happened anyway.
            let _ = answer.send(outcome);
        }
        if let Some(wakes) = wakes {
            wakes.wake();
        }
    }

    fn make_durable(&mut self, events: &[Event]) -> Result<(), CommitError> {
        let closed = || CommitError::ReadOnly { reason: "the log is closed".to_owned() };
        let log = self.writer.log.load_full().ok_or_else(closed)?;
        let mut append = log.append();
        events.iter().for_each(|event| append.event(event));
        self.writer.probe("appending");
        append.commit().map_err(|error| {
            let reason = self.fail(&error);
            // Background work failed earlier, so this commit was not begun.
            match error.is_poisoned() {
                true => CommitError::ReadOnly { reason },
                false => CommitError::Unknown { reason },
            }
        })?;
        self.writer.probe("durable");
        self.keep_up(&log);
        let newest = events.last().map_or(Revision::ZERO, |event| event.revision);
        if let Err(error) = self.writer.mark.set(newest) {
            // The mark only helps to detect damage later; the commit is durable without it.
            tracing::warn!(%error, "cannot write the mark");
        }
        self.writer.probe("marked");
        self.written_bytes += events
            .iter()
            .map(|event| event.current.as_ref().map_or(0, |entry| entry.value().len() as u64) + 64)
            .sum::<u64>();
        Ok(())
    }

    /// Returns which writes are refused at the moment.
    fn refusal(&mut self) -> Option<Refusal> {
        match &*self.health.borrow() {
            Health::Writable => {}
            Health::ReadOnly { reason } | Health::Failed { reason } => {
                return Some(Refusal::All(reason.clone()));
            }
        }
        let free = disk_space::free_bytes(&self.writer.path);
        let floor = self.writer.options.free_bytes_min;
        (free < floor)
            .then(|| Refusal::Growth(full(&format!("{} are left", disk_space::mebibytes(free)), floor)))
    }

    /// Runs after a commit, which is durable by then: seals full memtables, and detects that tables are no longer
    /// written.
    fn keep_up(&mut self, log: &Log) {
        match log.seal() {
            Ok(true) => {}
            Ok(false) => {
                let reason = "the log's background work has stopped; restart this process".to_owned();
                tracing::error!(reason);
                self.health.send_replace(Health::Failed { reason });
            }
            Err(error) => drop(self.fail(&error)),
        }
    }

    /// Stops accepting writes and returns the reason. Writing is retried after a full disk and after a failure of
    /// background work. After any other error the contents of the disk are unknown: a failed sync may have dropped
    /// pages.
    fn fail(&mut self, error: &LogError) -> String {
        tracing::error!(%error, "cannot write to the log");
        let (reason, continues) = if error.is_full() {
            (full("writing failed", self.writer.options.free_bytes_min), true)
        } else if error.is_poisoned() {
            let reason =
                "background work of the log failed, possibly because the disk is full; reopening the log";
            (reason.to_owned(), true)
        } else {
            (format!("writing to the log failed: {error}; check the disk and restart"), false)
        };
        let message = reason.clone();
        self.health.send_replace(match continues {
            true => Health::ReadOnly { reason },
            false => Health::Failed { reason },
        });
        message
    }

    fn tick(&mut self) {
        if self.ticked.elapsed() < TICK.min(self.writer.options.history_age) {
            return;
        }
        self.ticked = Instant::now();
        let health = self.health.borrow().clone();
        match (health, self.writer.log.load_full()) {
            (Health::ReadOnly { .. }, log) => {
                drop(log);
                self.reopen();
            }
            (Health::Writable, Some(log)) => {
                if let Err(error) = log.probe().and_then(|()| log.flush_idle()) {
                    self.fail(&error);
                }
            }
            _ => {}
        }
        self.age();
    }

    /// Compacts history that is too old or too large.
    fn age(&mut self) {
        let head = self.writer.view.head();
        if self.samples.back().is_none_or(|newest| newest.head < head) {
            self.samples.push_back(Sample { taken: self.ticked, head, written_bytes: self.written_bytes });
        }
        let options = &self.writer.options;
        let expired = self.samples.iter().take_while(|sample| {
            sample.taken.elapsed() >= options.history_age
                || self.written_bytes - sample.written_bytes >= options.history_bytes
        });
        let expired = expired.count();
        let newest = self.samples.drain(..expired).next_back();
        if let Some(Sample { head, .. }) = newest
            && head > self.writer.base.compacted
        {
            self.request_compaction(head, None);
        }
    }

    fn request_compaction(&mut self, through: Revision, answer: Option<ResultSender<(), ReadError>>) {
        let through = through.min(self.writer.view.head());
        let compaction = self.compaction.get_or_insert(Compaction { through, answers: Vec::new() });
        compaction.through = compaction.through.max(through);
        compaction.answers.extend(answer);
    }

    /// Runs one step of the current compaction. Each step is durable and complete in itself.
    fn compact_some(&mut self) {
        let Some(compaction) = &self.compaction else { return };
        let through = compaction.through;
        let outcome = match &*self.health.borrow() {
            Health::Writable => None,
            Health::ReadOnly { reason } | Health::Failed { reason } => Some(reason.clone()),
        };
        let outcome = match outcome {
            Some(reason) => Err(ReadError::Unavailable { reason }),
            None if self.writer.base.compacted >= through => Ok(()),
            None => match self.compact_step(through) {
                Ok(()) if self.writer.base.compacted < through => return,
                Ok(()) => Ok(()),
                Err(error) => Err(ReadError::Unavailable { reason: self.fail(&error) }),
            },
        };
        for answer in self.compaction.take().into_iter().flat_map(|compaction| compaction.answers) {
            let _ = answer.send(outcome.clone());
        }
    }

    fn compact_step(&mut self, through: Revision) -> Result<(), LogError> {
        let Some(log) = self.writer.log.load_full() else { return Ok(()) };
        let mut base = self.writer.base;
        let mut append = log.append();
        let (mut records, mut bytes) = (0, 0);
        for item in log.heads(base.compacted, through) {
            let (revision, head) = item?;
            if head.previous > Revision::ZERO {
                append.remove(head.previous);
                base.remove(head.previous);
            }
            match head.is_put {
                true => base.add(revision),
                false => append.remove(revision),
            }
            base.compacted = revision;
            (records, bytes) = (records + 1, bytes + head.bytes);
            if records == COMPACT_RECORDS || bytes > COMPACT_BYTES {
                break;
            }
        }
        let end = base.compacted;
        if records == 0 {
            return Err(LogError::Malformed(format!("no records follow revision {end}")));
        }
        append.base(&base);
        // Published before the records are deleted, so that no reader takes the gap for a time without events.
        self.writer.view.forget(end);
        self.writer.probe("compacting");
        append.commit()?;
        self.writer.probe("compacted");
        self.writer.base = base;
        Ok(())
    }

    /// After the disk was full: truncates writes that were not acknowledged and opens the log again.
    fn reopen(&mut self) {
        let path = &self.writer.path;
        if disk_space::free_bytes(path) < self.writer.options.free_bytes_min || !disk_space::can_grow(path) {
            return;
        }
        await_readers(self.writer.log.swap(None));
        match self.cut().and_then(|()| self.reopen_tables()) {
            Ok(()) => {
                tracing::info!("the disk has free space again; accepting writes");
                self.health.send_replace(Health::Writable);
            }
            Err(reason) => {
                tracing::warn!(reason, "the disk has free space again, but the log cannot be opened yet")
            }
        }
    }

    /// Truncates the journals after the head. The last batch may be half written, or written but not synced, and fjall
    /// may have created a new journal since. It was not acknowledged, so it and everything after it is removed.
    fn cut(&self) -> Result<(), String> {
        let head = self.writer.view.head();
        let journals = Journal::read_all(&self.writer.path).map_err(|error| error.to_string())?;
        let mut beyond = journals.iter().skip_while(|journal| !journal.exceeds(head));
        let Some(first) = beyond.next() else { return Ok(()) };
        let file = std::fs::OpenOptions::new().write(true).open(&first.path);
        let end = first.end_of(head) as u64;
        let cut = file.and_then(|file| file.set_len(end).and_then(|()| file.sync_all()));
        let removed = cut.and_then(|()| beyond.try_for_each(|journal| std::fs::remove_file(&journal.path)));
        removed.and_then(|()| files::sync_dir(&self.writer.path)).map_err(|error| error.to_string())
    }

    fn reopen_tables(&mut self) -> Result<(), String> {
        let log = Log::open(&self.writer.path).map_err(|error| error.to_string())?;
        let base = log.base().map_err(|error| error.to_string())?;
        let newest = log.newest().map_err(|error| error.to_string())?.unwrap_or_default().max(base.compacted);
        let head = self.writer.view.head();
        if newest != head {
            return Err(format!("the log ends at {newest}, {head} was acknowledged"));
        }
        self.writer.base = base;
        self.writer.view.forget(base.compacted);
        self.writer.log.store(Some(Arc::new(log)));
        Ok(())
    }

    fn close(self) {
        for message in self.messages.try_iter() {
            if let Message::Commit(commit) = message {
                let reason = "the store is closed".to_owned();
                let _ = commit.answer.send(Err(CommitError::Unavailable { reason }));
            }
        }
        if let Err(error) = self.writer.mark.sync() {
            tracing::warn!(%error, "cannot sync the mark");
        }
        let log = self.writer.log.swap(None);
        await_readers(log);
        drop(self.writer.lock);
    }
}

/// Waits until slow watchers no longer read the log: it cannot be opened again before.
fn await_readers(log: Option<Arc<Log>>) {
    let since = Instant::now();
    while log.as_ref().is_some_and(|log| Arc::strong_count(log) > 1) && since.elapsed() < READERS_WAIT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

enum Refusal {
    All(String),
    /// Everything but deletions, which free space.
    Growth(String),
}

impl Refusal {
    fn of(&self, change: &Change) -> Option<&str> {
        match (self, change) {
            (Refusal::All(reason), _) | (Refusal::Growth(reason), Change::Put(_)) => Some(reason),
            (Refusal::Growth(_), Change::Delete) => None,
        }
    }
}

fn full(reason: &str, floor: u64) -> String {
    format!(
        "the disk is full: {reason}; free at least {} and writes go on by themselves",
        disk_space::mebibytes(floor)
    )
}
