//! Changes older than the View's tail, which only etcd still has.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbEvent;
use tokio::time::{Instant, interval, sleep_until};

use super::Remote;
use super::layout::{Stored, WriteId};
use super::members::{Chosen, Pause, within};
use super::stream::{Previous, Received, Stream, revision_of};
use crate::store::{Boxed, Event, ReadError, Revision};
use crate::view::{History, Stretch};

/// How often a stream is asked how far it is. etcd looks after watches that start in the past ten times a
/// second, so asking more often gains nothing.
const ASK_EVERY: Duration = Duration::from_millis(100);

pub(super) struct Past(pub(super) Arc<Remote>);

impl History for Past {
    fn read(&self, after: Revision, until: Revision, limit: usize) -> Boxed<'_, Result<Stretch, ReadError>> {
        Box::pin(async move {
            let deadline = self.0.deadline();
            let mut pause = Pause::new();
            loop {
                match recall(&self.0, after, until, limit).await {
                    Ok(Recalled { changes, through }) => {
                        let events = changes.into_iter().map(|change| change.event).collect();
                        return Ok(Stretch { events, through });
                    }
                    // A watcher should not notice that a member was lost.
                    Err(ReadError::Unavailable { .. }) if Instant::now() < deadline => {
                        pause.wait(deadline).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

/// One change as etcd remembers it.
pub(super) struct Recalled {
    pub(super) changes: Vec<Change>,
    pub(super) through: Revision,
}

pub(super) struct Change {
    pub(super) event: Event,
    /// Which write made the current entry.
    pub(super) id: Option<WriteId>,
}

/// All changes in (`after`, `until`], or as far as the first message that brings their number to `limit`.
/// etcd must have reached `until`.
pub(super) async fn recall(
    remote: &Remote,
    after: Revision,
    until: Revision,
    limit: usize,
) -> Result<Recalled, ReadError> {
    let unavailable = |reason: String| ReadError::Unavailable { reason };
    let deadline = Instant::now() + remote.members.options.timeouts.request;
    let member = within(deadline, remote.members.current()).await.map_err(unavailable)?;
    let member = member.map_err(|error| unavailable(error.to_string()))?;
    match collect(remote, &member, after, until, limit).await {
        Ok(recalled) => Ok(recalled),
        Err(Stop::Compacted(oldest)) => Err(ReadError::Compacted { requested: after, oldest }),
        Err(Stop::Failed(reason)) => {
            remote.members.avoid(&member, &reason).await;
            Err(unavailable(reason))
        }
    }
}

enum Stop {
    Compacted(Revision),
    Failed(String),
}

async fn collect(
    remote: &Remote,
    member: &Chosen,
    after: Revision,
    until: Revision,
    limit: usize,
) -> Result<Recalled, Stop> {
    let patience = remote.members.options.timeouts.request;
    let opened = Stream::open(remote, member, after, Previous::Wanted, Instant::now() + patience).await;
    let mut stream = opened.map_err(Stop::Failed)?;
    let mut recalled = Recalled { changes: Vec::new(), through: after };
    let mut ask = interval(ASK_EVERY);
    let mut heard = Instant::now();
    while recalled.through < until && recalled.changes.len() < limit {
        let received = tokio::select! {
            received = stream.next() => received.map_err(Stop::Failed)?,
            () = sleep_until(heard + patience) => return Err(Stop::Failed("etcd sends no old changes".into())),
            _ = ask.tick() => {
                // Where progress cannot be trusted, something must happen after `until` for us to see.
                match remote.is_direct() {
                    true => remote.barrier.notify_one(),
                    false => stream.ask().await.map_err(Stop::Failed)?,
                }
                continue;
            }
        };
        heard = Instant::now();
        match received {
            Received::Events(events, through) => {
                let wanted = events.into_iter().take_while(|event| revision_of(event) <= until);
                recalled.changes.extend(wanted.filter_map(|event| decode(remote, event)));
                recalled.through = through.min(until);
            }
            Received::Progress(through) if !remote.is_direct() => {
                recalled.through = recalled.through.max(through.min(until));
            }
            Received::Compacted(oldest) => return Err(Stop::Compacted(oldest)),
            Received::Progress(_) | Received::Nothing => {}
        }
    }
    Ok(recalled)
}

/// The change of an entry; none for a mark.
fn decode(remote: &Remote, event: PbEvent) -> Option<Change> {
    let revision = revision_of(&event);
    let current = event.kv?;
    let key = remote.layout.key(&current.key)?;
    let (id, current) = match event.r#type == super::feed::DELETED {
        true => (None, None),
        false => {
            let Stored { id, entry } = remote.layout.decode(current)?;
            (id, Some(entry))
        }
    };
    let previous = event.prev_kv.and_then(|previous| remote.layout.decode(previous));
    let previous = previous.map(|stored| stored.entry);
    Some(Change { event: Event { revision, key, current, previous }, id })
}
