//! Records the calls of clients and their results.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Call, History, Instant, Operation, Outcome, WatchHistory};
use crate::range::{Key, Range};
use crate::store::watch::{Batch, Watch};
use crate::store::{At, Change, CommitError, Entry, Event, Expect, Page, ReadError, Revision, Store};

/// A watch that has not reached the newest revision after this time is stuck.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

/// A recorder that all clients of a run share; a clone is another handle.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    clock: std::time::Instant,
    history: Mutex<History>,
    /// Held while the witness is read: workloads on several servers may end at the same time.
    witnessing: tokio::sync::Mutex<()>,
}

impl Recorder {
    /// Reads the entries of the range; recorded calls must explain every later change. No other client may write to
    /// `range`, or compact history that the recorder has not read: it reads at the end of every run.
    pub async fn start(store: &dyn Store, range: Range) -> Result<Recorder, ReadError> {
        let read = store.list(range.clone(), Page::default()).await?;
        let start = At { revision: read.revision, value: read.value.entries };
        let witness = WatchHistory::new(range.clone(), start.revision, true);
        let history = History { range, start, calls: Vec::new(), watches: vec![witness] };
        Ok(Recorder(Arc::new(RecorderState {
            clock: std::time::Instant::now(),
            history: Mutex::new(history),
            witnessing: tokio::sync::Mutex::default(),
        })))
    }

    pub fn now(&self) -> Instant {
        self.0.clock.elapsed().as_nanos() as Instant
    }

    /// Returns the calls and watches so far.
    pub fn so_far(&self) -> History {
        self.0.history.lock().clone()
    }

    /// Returns the revision before everything recorded.
    pub fn start_revision(&self) -> Revision {
        self.0.history.lock().start.revision
    }

    /// Reads everything a last time, reads the witness up to the newest revision, and returns the recorded history.
    pub async fn finish(&self, store: &dyn Store) -> Result<History, ReadError> {
        self.list(store, None, None).await?;
        self.witness(store).await?;
        Ok(self.so_far())
    }

    pub async fn commit(
        &self,
        store: &dyn Store,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        // Recorded before the call, so that it counts as begun even if its future is dropped.
        let operation =
            Operation::Commit { key: key.clone(), expect, change: change.clone(), outcome: Outcome::Unknown };
        let place = self.began(operation);
        let answer = store.commit(key, expect, change).await;
        let ended = self.now();
        let call = &mut self.0.history.lock().calls[place];
        call.ended = Some(ended);
        if let Operation::Commit { outcome, .. } = &mut call.operation {
            *outcome = match &answer {
                Ok(event) => Outcome::Committed(event.clone()),
                Err(CommitError::Conflict { current }) => Outcome::Conflict(current.clone()),
                Err(CommitError::Unknown { .. }) => Outcome::Unknown,
                Err(_) => Outcome::NotWritten,
            };
        }
        answer
    }

    pub async fn get(&self, store: &dyn Store, key: Key) -> Result<At<Option<Entry>>, ReadError> {
        let began = self.now();
        let answer = store.get(&key).await?;
        self.did(began, Operation::Get { key, answer: answer.clone() });
        Ok(answer)
    }

    /// Lists the whole range, now or at a past revision, and in pages if there is a limit.
    pub async fn list(
        &self,
        store: &dyn Store,
        limit: Option<usize>,
        at: Option<Revision>,
    ) -> Result<Revision, ReadError> {
        let (began, range) = (self.now(), self.0.history.lock().range.clone());
        let mut page = Page { limit, at, ..Page::default() };
        let mut entries = Vec::new();
        let revision = loop {
            let read = store.list(range.clone(), page.clone()).await?;
            entries.extend(read.value.entries);
            if !read.value.more {
                break read.revision;
            }
            page.after = entries.last().map(|entry| entry.key().clone());
            page.at = Some(read.revision);
        };
        let answer = At { revision, value: entries };
        self.did(began, if at.is_none() { Operation::List { answer } } else { Operation::ListAt { answer } });
        Ok(revision)
    }

    pub async fn watch(
        &self,
        store: &dyn Store,
        range: Range,
        after: Revision,
    ) -> Result<RecordedWatch, ReadError> {
        let watch = store.watch(range.clone(), after).await?;
        let mut history = self.0.history.lock();
        history.watches.push(WatchHistory::new(range, after, false));
        Ok(RecordedWatch { recorder: self.clone(), watch, place: history.watches.len() - 1 })
    }

    /// Resumes the witness where it stopped, possibly before the store was reopened, and reads to the head.
    pub(super) async fn witness(&self, store: &dyn Store) -> Result<(), ReadError> {
        let _witnessing = self.0.witnessing.lock().await;
        let (range, after) = {
            let witness = &self.0.history.lock().watches[0];
            (witness.range.clone(), witness.through())
        };
        let head = store.list(range.clone(), Page { limit: Some(0), ..Page::default() }).await?.revision;
        if head < after {
            // The store has lost acknowledged revisions; the check will report the lost calls.
            return Ok(());
        }
        let watch = store.watch(range, after).await?;
        RecordedWatch { recorder: self.clone(), watch, place: 0 }.until(head).await
    }

    fn began(&self, operation: Operation) -> usize {
        let mut history = self.0.history.lock();
        history.calls.push(Call { began: self.now(), ended: None, operation });
        history.calls.len() - 1
    }

    fn did(&self, began: Instant, operation: Operation) {
        let ended = Some(self.now());
        self.0.history.lock().calls.push(Call { began, ended, operation });
    }
}

/// A watch whose events are recorded.
#[derive(Debug)]
pub struct RecordedWatch {
    recorder: Recorder,
    watch: Watch,
    place: usize,
}

impl RecordedWatch {
    /// Records the next batch. Cancel-safe, like the watch itself.
    pub async fn next(&mut self) -> Result<(), ReadError> {
        let outcome = self.watch.next().await;
        let now = self.recorder.now();
        self.record(|watched| match outcome {
            Ok(batch) => {
                watched.batches.push((now, batch));
                Ok(())
            }
            Err(error) => {
                watched.ended_with = Some(error.clone());
                Err(error)
            }
        })
    }

    /// Records the revision up to which the watch claims to be complete.
    pub fn through(&mut self) -> Revision {
        let through = self.watch.through();
        let now = self.recorder.now();
        self.record(|watched| {
            if through != watched.through() {
                watched.batches.push((now, Batch { events: Vec::new(), through }));
            }
        });
        through
    }

    /// Reads until the watch is complete up to `goal`. Records it if the watch gets stuck.
    pub async fn until(&mut self, goal: Revision) -> Result<(), ReadError> {
        let started = std::time::Instant::now();
        let mut patience = Duration::from_millis(1);
        while self.through() < goal {
            if started.elapsed() > CATCH_UP_LIMIT {
                self.record(|watched| watched.stuck_before = Some(goal));
                return Ok(());
            }
            match timeout(patience, self.next()).await {
                Ok(outcome) => outcome?,
                Err(_) => patience *= 2,
            }
        }
        Ok(())
    }

    fn record<T>(&self, write: impl FnOnce(&mut WatchHistory) -> T) -> T {
        write(&mut self.recorder.0.history.lock().watches[self.place])
    }
}
