//! Keeps the View equal to etcd.
//!
//! ```text
//!   load at r ──► watch from r + 1 ──► publish whole revisions ──► … the connection is lost
//!                   ▲                                                      │
//!                   │ from the last published revision + 1                 │
//!                   ├──────────────────────────────────────────────────────┤
//!                   │ unless that is compacted: load again, and end every watch that missed events
//!                   └──────────────────────────────────────────────────────┘
//! ```
//!
//! It publishes only revisions that it received completely, so a reader of a revision sees all changes before it. It
//! never guesses a change: where etcd has compacted the history, watchers get `Compacted`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbEvent;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::compaction::Mark;
use super::consistent_read::{self, Reader};
use super::members::{Backoff, Chosen, within};
use super::stream::{Previous, Received, Stream, revision_of};
use super::{EtcdState, load, version};
use crate::store::Revision;

/// etcd's type of a delete event.
pub(super) const DELETED: i32 = 1;
/// How long a reader waits before progress is requested: an event usually arrives within a millisecond.
const GRACE: Duration = Duration::from_millis(5);
/// Time between progress requests while a reader still waits.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(50);
/// Time between writes of the barrier key, where progress reports cannot be used.
const BARRIER_EVERY: Duration = Duration::from_millis(100);

/// The background work of an [`Etcd`](super::Etcd) store. Run it in a supervised
/// task: without it the store neither reads nor sees changes.
pub struct Feed {
    pub(super) shared: Arc<EtcdState>,
    pub(super) readers: mpsc::Receiver<Reader>,
    /// Closed when the last handle of the store is dropped.
    pub(super) handles: watch::Receiver<()>,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Feed({:?})", self.shared.view)
    }
}

impl Feed {
    /// Runs until the last handle of the store is dropped.
    pub async fn run(mut self) {
        let shared = &*self.shared;
        let compaction = async {
            match &shared.remote.members.options.compaction {
                Some(compaction) => shared.compact_every(compaction.every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Nothing is ever sent, so this returns only when the sender is dropped.
            _ = self.handles.changed() => {}
            () = follow(shared) => {}
            () = consistent_read::serve(shared, &mut self.readers) => {}
            () = write_barriers(shared) => {}
            () = compaction => {}
        }
    }
}

/// Why a watch ended.
enum WatchEnd {
    Lost(String),
    /// etcd has compacted changes that were not received.
    Missed(String),
}

/// Watches for ever, through one member after another.
async fn follow(shared: &EtcdState) {
    let mut backoff = Backoff::new();
    loop {
        let (began, head) = (Instant::now(), shared.view.head());
        let end = match watch_once(shared).await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        match end {
            // An outage is logged once, and not for every retry.
            WatchEnd::Lost(reason) if backoff.is_first() => {
                tracing::warn!(reason, head = shared.view.head().0, "lost the etcd watch");
            }
            WatchEnd::Lost(reason) => tracing::debug!(reason, "the etcd watch is still not established"),
            WatchEnd::Missed(reason) => {
                tracing::warn!(
                    reason,
                    head = shared.view.head().0,
                    "missed changes of etcd; loading all entries again"
                );
                if let Err(reason) = reload(shared).await {
                    tracing::warn!(reason, "could not load from etcd; trying again");
                }
            }
        }
        // After a watch that worked for a while, the back-off starts again.
        if shared.view.head() > head || began.elapsed() > shared.remote.members.options.timeouts.request {
            backoff = Backoff::new();
        }
        backoff.wait(shared.remote.deadline()).await;
    }
}

/// Replaces the View. Every watch that has not seen the loaded revision gets `Compacted`.
async fn reload(shared: &EtcdState) -> Result<(), String> {
    let loaded = load::load(&shared.remote).await.map_err(|error| error.reason())?;
    if loaded.snapshot.revision <= shared.view.head() {
        return Err(format!("etcd's revision decreased to {}", loaded.snapshot.revision));
    }
    *shared.mark.lock() = loaded.mark;
    shared.view.replace(loaded.snapshot).wake();
    Ok(())
}

async fn watch_once(shared: &EtcdState) -> Result<std::convert::Infallible, WatchEnd> {
    let remote = &shared.remote;
    let deadline = Instant::now() + remote.members.options.timeouts.request;
    let member = match within(deadline, remote.members.current()).await {
        Ok(Ok(member)) => member,
        Ok(Err(error)) => return Err(WatchEnd::Lost(error.to_string())),
        Err(reason) => return Err(WatchEnd::Lost(reason)),
    };
    let opened = async {
        // Members may be replaced by older ones at run time.
        let version = within(deadline, member.version()).await?.map_err(|error| error.to_string())?;
        if !version::can_feed_reads(&version) {
            remote.switch_to_direct(&member.endpoint, &version);
        }
        Stream::open(remote, &member, shared.view.head(), Previous::Known, deadline).await
    };
    let mut session = match opened.await {
        Ok(stream) => Session { shared, stream, progress_requested_at: None, last_received: Instant::now() },
        Err(reason) => {
            remote.members.avoid(&member, &reason).await;
            return Err(WatchEnd::Lost(format!("{}: {reason}", member.endpoint)));
        }
    };
    tracing::info!(member = %member.endpoint, after = shared.view.head().0, "watching etcd");
    let end = session.run().await;
    if let Err(WatchEnd::Lost(reason)) = &end {
        remote.members.avoid(&member, reason).await;
    }
    end
}

/// One watch stream, from its opening to its end.
struct Session<'a> {
    shared: &'a EtcdState,
    stream: Stream,
    /// When the unanswered progress request was sent.
    progress_requested_at: Option<Instant>,
    last_received: Instant,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<std::convert::Infallible, WatchEnd> {
        let mut requested_revision = self.shared.requested_revision.subscribe();
        let mut request_at = self.next_request(*requested_revision.borrow_and_update(), None);
        loop {
            tokio::select! {
                received = self.stream.next() => {
                    self.receive(received.map_err(WatchEnd::Lost)?)?;
                    (self.progress_requested_at, self.last_received) = (None, Instant::now());
                }
                // The sender lives in `shared`, so this can only mean that a reader waits for a newer revision.
                _ = requested_revision.changed() => {}
                () = sleep_until(request_at) => {
                    self.request_progress().await?;
                    request_at = self.next_request(*requested_revision.borrow_and_update(), Some(Instant::now()));
                    continue;
                }
            }
            request_at =
                self.next_request(*requested_revision.borrow_and_update(), self.progress_requested_at);
        }
    }

    /// Returns when to request progress: soon if a reader waits for it, otherwise as a heartbeat.
    fn next_request(&self, requested_revision: Revision, last: Option<Instant>) -> Instant {
        match (requested_revision > self.shared.view.head(), last) {
            (true, Some(last)) => last + PROGRESS_REQUEST_INTERVAL,
            (true, None) => Instant::now() + GRACE,
            (false, _) => {
                self.last_received.max(last.unwrap_or(self.last_received)) + self.timeouts().heartbeat
            }
        }
    }

    async fn request_progress(&mut self) -> Result<(), WatchEnd> {
        let now = Instant::now();
        let since = *self.progress_requested_at.get_or_insert(now);
        if now - since > self.timeouts().request {
            return Err(WatchEnd::Lost("etcd does not answer on the watch".into()));
        }
        match self.shared.remote.is_direct() {
            true => self.shared.remote.barrier.notify_one(),
            false => self.stream.request_progress().await.map_err(WatchEnd::Lost)?,
        }
        Ok(())
    }

    fn receive(&mut self, received: Received) -> Result<(), WatchEnd> {
        match received {
            Received::Events(events, through) => self.publish(events, through),
            // Old versions report progress ahead of events, so their reports are ignored.
            Received::Progress(through) if !self.shared.remote.is_direct() => {
                self.publish(Vec::new(), through)
            }
            Received::Progress(_) | Received::Nothing => Ok(()),
            Received::Compacted(oldest) => {
                Err(WatchEnd::Missed(format!("etcd has compacted all revisions before {oldest}")))
            }
        }
    }

    fn publish(&mut self, events: Vec<PbEvent>, through: Revision) -> Result<(), WatchEnd> {
        let (view, layout) = (&self.shared.view, &self.shared.remote.layout);
        if through <= view.head() {
            // This member lags behind the one that was watched before.
            return Ok(());
        }
        let mut draft = view.draft();
        let mut mark = None;
        for event in events {
            let revision = revision_of(&event);
            let Some(kv) = event.kv.filter(|_| revision > view.head()) else { continue };
            let Some(key) = layout.key(&kv.key) else {
                if kv.key == layout.compacted() && event.r#type != DELETED {
                    mark = Some(Mark::decode(&kv.value, revision));
                }
                continue;
            };
            if draft.events().last().is_some_and(|last| last.revision == revision) {
                // Each write of Holon has its own revision. This one is foreign, and a watcher that resumes in the
                // middle of it would miss the other keys.
                return Err(WatchEnd::Missed(format!(
                    "another client of etcd changed several keys at revision {revision}"
                )));
            }
            let value = match event.r#type == DELETED {
                true => None,
                false => layout.decode(kv).map(|stored| stored.entry.value().clone()),
            };
            draft.apply(key, revision, value);
        }
        view.publish(draft, through).wake();
        if let Some(mark) = mark {
            view.forget(mark.through);
            *self.shared.mark.lock() = mark;
        }
        Ok(())
    }

    fn timeouts(&self) -> &super::Timeouts {
        &self.shared.remote.members.options.timeouts
    }
}

/// Writes the barrier key whenever a reader needs an event. Part of the feed, and concurrent with the watch, which must
/// receive the event.
async fn write_barriers(shared: &EtcdState) {
    let remote = &shared.remote;
    loop {
        remote.barrier.notified().await;
        let put = |member: Chosen| async move { member.kv().put(remote.layout.barrier(), "", None).await };
        // The write is idempotent, so a lost answer does no harm.
        if let Err(error) = remote.members.attempt(remote.deadline(), put).await {
            tracing::debug!(reason = error.reason(), "could not write the barrier key");
        }
        tokio::time::sleep(BARRIER_EVERY).await;
    }
}
