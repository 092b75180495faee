//! The smallest engine with a View: a thread that publishes, and a list of events as its history.
//!
//! It has the difficulties of real engines, but no disk: commits in groups; a history that is read in chunks with waits
//! in between; a tail that may be so short that most watches need that history; and optionally revisions that start
//! anywhere and have gaps, as when other clients write to the same etcd.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Draft, EventSpan, History, Snapshot, TailLimits, View};
use crate::range::{Key, Range};
use crate::store::watch::Watch;
use crate::store::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Listing, Page, ReadError, Revision, Store,
    check_size,
};

/// Maximum number of commits published together.
const GROUP_MAX: usize = 5;
/// Maximum number of events in one read of history.
const CHUNK_EVENTS_MAX: usize = 7;

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) tail_events: usize,
    pub(super) start: u64,
    /// Unused revisions after every commit.
    pub(super) gap: u64,
}

#[derive(Debug)]
pub(super) struct FakeEngine {
    pub(super) view: Arc<View>,
    log: Log,
    requests: Option<mpsc::Sender<Request>>,
    publisher: Option<JoinHandle<()>>,
}

struct Request {
    key: Key,
    expect: Expect,
    change: Change,
    answer: oneshot::Sender<Result<Event, CommitError>>,
}

/// Every event that is not compacted, oldest first.
#[derive(Clone, Default, Debug)]
struct Log(Arc<Mutex<Vec<Event>>>);

impl History for Log {
    fn read(
        &self,
        after: Revision,
        until: Revision,
        limit: usize,
    ) -> Boxed<'_, Result<EventSpan, ReadError>> {
        Box::pin(async move {
            // As with a disk, readers wait while other tasks run.
            tokio::task::yield_now().await;
            let chunk: Vec<Event> = {
                let events = self.0.lock();
                let in_span = events.iter().filter(|event| event.revision > after && event.revision <= until);
                in_span.take(limit.min(CHUNK_EVENTS_MAX)).cloned().collect()
            };
            tokio::task::yield_now().await;
            let through = match chunk.last() {
                Some(last) if chunk.len() == CHUNK_EVENTS_MAX => last.revision,
                _ => until,
            };
            Ok(EventSpan { events: chunk, through })
        })
    }
}

impl FakeEngine {
    pub(super) fn open(shape: Shape) -> FakeEngine {
        let log = Log::default();
        let start = Snapshot { revision: Revision(shape.start), ..Snapshot::default() };
        let limits = TailLimits { events: shape.tail_events, bytes: 1 << 20 };
        let view = View::new(start, Revision(shape.start), limits, Box::new(log.clone()));
        let (requests, received) = mpsc::channel();
        let publisher = {
            let (view, log) = (view.clone(), log.clone());
            let publisher = std::thread::Builder::new().name("fake engine".into());
            publisher.spawn(move || publish_all(&view, &log, &received, shape.gap)).expect("a thread starts")
        };
        FakeEngine { view, log, requests: Some(requests), publisher: Some(publisher) }
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        drop(self.requests.take());
        if let Some(publisher) = self.publisher.take() {
            publisher.join().expect("the publisher does not panic");
        }
    }
}

fn publish_all(view: &View, log: &Log, requests: &mpsc::Receiver<Request>, gap: u64) {
    while let Ok(first) = requests.recv() {
        let mut draft = view.draft();
        let group = std::iter::once(first).chain(requests.try_iter()).take(GROUP_MAX);
        let answers: Vec<_> = group
            .map(|Request { key, expect, change, answer }| {
                (decide(&mut draft, key, expect, change, gap), answer)
            })
            .collect();
        log.0.lock().extend_from_slice(draft.events());
        // Includes the unused revisions.
        let through = Revision(draft.next.revision.0 + gap);
        let wakes = view.publish(draft, through);
        for (outcome, answer) in answers {
            // The writer may have dropped its future; the commit happened anyway.
            let _ = answer.send(outcome);
        }
        wakes.wake();
    }
}

fn decide(
    draft: &mut Draft,
    key: Key,
    expect: Expect,
    change: Change,
    gap: u64,
) -> Result<Event, CommitError> {
    check_size(&key, &change)?;
    let current = draft.get(key.as_bytes());
    if !expect.holds(current) || (current.is_none() && change == Change::Delete) {
        let current = At { revision: draft.next.revision, value: current.cloned() };
        return Err(CommitError::Conflict { current });
    }
    let revision = Revision(draft.next.revision.0 + 1 + gap);
    let value = match change {
        Change::Put(value) => Some(value),
        Change::Delete => None,
    };
    Ok(draft.apply(key, revision, value).clone())
}

impl Store for FakeEngine {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        Box::pin(async { Ok(self.view.get(key)) })
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        Box::pin(self.view.list(range, page))
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let requests = self.requests.as_ref().expect("taken only by drop");
            requests
                .send(Request { key, expect, change, answer })
                .expect("the publisher lives as long as this");
            answered.await.expect("the publisher answers every commit")
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        Box::pin(async move { self.view.watch(range, after) })
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        Box::pin(async move {
            let through = self.view.forget(through);
            // As with a disk, deletion takes a while.
            tokio::task::yield_now().await;
            self.log.0.lock().retain(|event| event.revision > through);
            Ok(())
        })
    }
}
