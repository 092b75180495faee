//! Keeps the View equal to etcd.
//!
//! ```text
//!   load at r ──► watch from r + 1 ──► publish whole revisions ──► … the connection is lost
//!                   ▲                                                      │
//!                   │ from the last published revision + 1                 │
//!                   ├──────────────────────────────────────────────────────┤
//!                   │ unless that is compacted: load again, and tell every watch that it missed something
//!                   └──────────────────────────────────────────────────────┘
//! ```
//!
//! It publishes only what etcd has sent completely, so whoever sees a revision has everything before it.
//! It never invents a change: where etcd cannot tell what happened, watchers are told `Compacted`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbEvent;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::compaction::Mark;
use super::fresh::{self, Reader};
use super::members::{Chosen, Pause, within};
use super::stream::{Previous, Received, Stream, revision_of};
use super::{Shared, load, version};
use crate::store::Revision;

/// etcd's number for the event "deleted".
pub(super) const DELETED: i32 = 1;
/// How long a reader waits for the watch before the watch is asked: a write usually arrives within one.
const GRACE: Duration = Duration::from_millis(5);
/// Between questions while a reader still waits.
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Between writes of the barrier key, where asking is no use.
const BARRIER_EVERY: Duration = Duration::from_millis(100);

/// Does everything that goes on in the background of an [`Etcd`](super::Etcd) store. Run it in a supervised
/// task: without it the store neither reads nor sees changes.
pub struct Feed {
    pub(super) shared: Arc<Shared>,
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
    /// Ends when the last handle of the store is dropped, and not before.
    pub async fn run(mut self) {
        let shared = &*self.shared;
        let compaction = async {
            match &shared.remote.members.options.compaction {
                Some(compaction) => shared.compact_every(compaction.every).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Nothing is ever sent, so a change can only be the end.
            _ = self.handles.changed() => {}
            () = follow(shared) => {}
            () = fresh::answer(shared, &mut self.readers) => {}
            () = write_barriers(shared) => {}
            () = compaction => {}
        }
    }
}

/// Why a watch ended.
enum Ended {
    Lost(String),
    /// Something happened that no watch can tell us any more.
    Missed(String),
}

/// Watches for ever, through one member after another.
async fn follow(shared: &Shared) {
    let mut pause = Pause::new();
    loop {
        let (began, head) = (Instant::now(), shared.view.head());
        let ended = match watch_once(shared).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        match ended {
            // An outage is told once, not with every attempt to end it.
            Ended::Lost(reason) if pause.is_first() => {
                tracing::warn!(reason, head = shared.view.head().0, "lost the etcd watch");
            }
            Ended::Lost(reason) => tracing::debug!(reason, "still no etcd watch"),
            Ended::Missed(reason) => {
                tracing::warn!(
                    reason,
                    head = shared.view.head().0,
                    "missed changes; loading everything anew"
                );
                if let Err(reason) = load_anew(shared).await {
                    tracing::warn!(reason, "could not load from etcd; trying again");
                }
            }
        }
        // A watch that worked for a while earns a quick return.
        if shared.view.head() > head || began.elapsed() > shared.remote.members.options.timeouts.request {
            pause = Pause::new();
        }
        pause.wait(shared.remote.deadline()).await;
    }
}

/// Replaces the View. Every watch that has not seen the loaded revision is told that it missed something.
async fn load_anew(shared: &Shared) -> Result<(), String> {
    let loaded = load::load(&shared.remote).await.map_err(|fault| fault.reason())?;
    if loaded.snapshot.revision <= shared.view.head() {
        return Err(format!("etcd went back to revision {}", loaded.snapshot.revision));
    }
    *shared.mark.lock() = loaded.mark;
    shared.view.replace(loaded.snapshot).wake();
    Ok(())
}

async fn watch_once(shared: &Shared) -> Result<std::convert::Infallible, Ended> {
    let remote = &shared.remote;
    let deadline = Instant::now() + remote.members.options.timeouts.request;
    let member = match within(deadline, remote.members.current()).await {
        Ok(Ok(member)) => member,
        Ok(Err(error)) => return Err(Ended::Lost(error.to_string())),
        Err(reason) => return Err(Ended::Lost(reason)),
    };
    let opened = async {
        // Members may be replaced by older ones while we run.
        let version = within(deadline, member.version()).await?.map_err(|error| error.to_string())?;
        if !version::can_feed_reads(&version) {
            remote.distrust(&member.endpoint, &version);
        }
        Stream::open(remote, &member, shared.view.head(), Previous::Known, deadline).await
    };
    let mut session = match opened.await {
        Ok(stream) => Session { shared, stream, asked: None, heard: Instant::now() },
        Err(reason) => {
            remote.members.avoid(&member, &reason).await;
            return Err(Ended::Lost(format!("{}: {reason}", member.endpoint)));
        }
    };
    tracing::info!(member = %member.endpoint, after = shared.view.head().0, "watching etcd");
    let ended = session.run().await;
    if let Err(Ended::Lost(reason)) = &ended {
        remote.members.avoid(&member, reason).await;
    }
    ended
}

/// One watch stream, from its opening to its end.
struct Session<'a> {
    shared: &'a Shared,
    stream: Stream,
    /// Since when a question is unanswered.
    asked: Option<Instant>,
    heard: Instant,
}

impl Session<'_> {
    async fn run(&mut self) -> Result<std::convert::Infallible, Ended> {
        let mut wanted = self.shared.wanted.subscribe();
        let mut ask_at = self.next_question(*wanted.borrow_and_update(), None);
        loop {
            tokio::select! {
                received = self.stream.next() => {
                    self.receive(received.map_err(Ended::Lost)?)?;
                    (self.asked, self.heard) = (None, Instant::now());
                }
                // The sender lives in `shared`, so this can only mean that somebody wants more.
                _ = wanted.changed() => {}
                () = sleep_until(ask_at) => {
                    self.ask().await?;
                    ask_at = self.next_question(*wanted.borrow_and_update(), Some(Instant::now()));
                    continue;
                }
            }
            ask_at = self.next_question(*wanted.borrow_and_update(), self.asked);
        }
    }

    /// When to ask how far the stream is: soon if somebody waits for more, else as a sign of life.
    fn next_question(&self, wanted: Revision, last: Option<Instant>) -> Instant {
        match (wanted > self.shared.view.head(), last) {
            (true, Some(last)) => last + ASK_EVERY,
            (true, None) => Instant::now() + GRACE,
            (false, _) => self.heard.max(last.unwrap_or(self.heard)) + self.timeouts().heartbeat,
        }
    }

    async fn ask(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        let since = *self.asked.get_or_insert(now);
        if now - since > self.timeouts().request {
            return Err(Ended::Lost("the watch fell silent".into()));
        }
        match self.shared.remote.is_direct() {
            true => self.shared.remote.barrier.notify_one(),
            false => self.stream.ask().await.map_err(Ended::Lost)?,
        }
        Ok(())
    }

    fn receive(&mut self, received: Received) -> Result<(), Ended> {
        match received {
            Received::Events(events, through) => self.publish(events, through),
            // Old versions report progress ahead of events; there only events count.
            Received::Progress(through) if !self.shared.remote.is_direct() => {
                self.publish(Vec::new(), through)
            }
            Received::Progress(_) | Received::Nothing => Ok(()),
            Received::Compacted(oldest) => {
                Err(Ended::Missed(format!("etcd forgot everything before {oldest}")))
            }
        }
    }

    fn publish(&mut self, events: Vec<PbEvent>, through: Revision) -> Result<(), Ended> {
        let (view, layout) = (&self.shared.view, &self.shared.remote.layout);
        if through <= view.head() {
            // A member that lags behind the one we watched before.
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
                // Each of our writes has a revision of its own. This one is not ours, and a watcher that
                // resumes in the middle of it would miss the rest.
                return Err(Ended::Missed(format!("somebody else changed several keys at {revision}")));
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

/// Writes the barrier key whenever somebody needs to see something happen; part of the feed, and apart from
/// the watch, which must go on receiving meanwhile.
async fn write_barriers(shared: &Shared) {
    let remote = &shared.remote;
    loop {
        remote.barrier.notified().await;
        let put = |member: Chosen| async move { member.kv().put(remote.layout.barrier(), "", None).await };
        // Twice is as good as once, so a lost answer does no harm.
        if let Err(fault) = remote.members.attempt(remote.deadline(), put).await {
            tracing::debug!(reason = fault.reason(), "could not write the barrier key");
        }
        tokio::time::sleep(BARRIER_EVERY).await;
    }
}
