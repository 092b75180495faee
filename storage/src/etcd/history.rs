//! Changes older than the View's tail, read from etcd.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::proto::PbEvent;
use tokio::time::{Instant, interval, sleep_until};

use super::Remote;
use super::layout::{Stored, WriteId};
use super::members::{Backoff, Chosen, within};
use super::stream::{Previous, Received, Stream, revision_of};
use crate::store::{Boxed, Event, ReadError, Revision};
use crate::view::{EventSpan, History};

/// How often progress is requested. etcd serves watches that start in the past ten times a second, so requesting it
/// more often gains nothing.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct EtcdHistory(pub(super) Arc<Remote>);

impl History for EtcdHistory {
    fn read(
        &self,
        after: Revision,
        until: Revision,
        limit: usize,
    ) -> Boxed<'_, Result<EventSpan, ReadError>> {
        Box::pin(async move {
            let deadline = self.0.deadline();
            let mut backoff = Backoff::new();
            loop {
                match read_changes(&self.0, after, until, limit).await {
                    Ok(OldChanges { changes, through }) => {
                        let events = changes.into_iter().map(|change| change.event).collect();
                        return Ok(EventSpan { events, through });
                    }
                    // The loss of one member must not reach the watcher.
                    Err(ReadError::Unavailable { .. }) if Instant::now() < deadline => {
                        backoff.wait(deadline).await;
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }
}

/// Consecutive old changes, up to `through`.
pub(super) struct OldChanges {
    pub(super) changes: Vec<Change>,
    pub(super) through: Revision,
}

pub(super) struct Change {
    pub(super) event: Event,
    /// The write of the current entry.
    pub(super) id: Option<WriteId>,
}

/// Reads the changes in (`after`, `until`], or up to the first message with which their number reaches `limit`. etcd
/// must have reached `until`.
pub(super) async fn read_changes(
    remote: &Remote,
    after: Revision,
    until: Revision,
    limit: usize,
) -> Result<OldChanges, ReadError> {
    let unavailable = |reason: String| ReadError::Unavailable { reason };
    let deadline = Instant::now() + remote.members.options.timeouts.request;
    let member = within(deadline, remote.members.current()).await.map_err(unavailable)?;
    let member = member.map_err(|error| unavailable(error.to_string()))?;
    match collect(remote, &member, after, until, limit).await {
        Ok(collected) => Ok(collected),
        Err(CollectError::Compacted(oldest)) => Err(ReadError::Compacted { requested: after, oldest }),
        Err(CollectError::Failed(reason)) => {
            remote.members.avoid(&member, &reason).await;
            Err(unavailable(reason))
        }
    }
}

enum CollectError {
    Compacted(Revision),
    Failed(String),
}

async fn collect(
    remote: &Remote,
    member: &Chosen,
    after: Revision,
    until: Revision,
    limit: usize,
) -> Result<OldChanges, CollectError> {
    let timeout = remote.members.options.timeouts.request;
    let opened = Stream::open(remote, member, after, Previous::Requested, Instant::now() + timeout).await;
    let mut stream = opened.map_err(CollectError::Failed)?;
    let mut collected = OldChanges { changes: Vec::new(), through: after };
    let mut progress_requests = interval(PROGRESS_REQUEST_INTERVAL);
    let mut last_received = Instant::now();
    while collected.through < until && collected.changes.len() < limit {
        let received = tokio::select! {
            received = stream.next() => received.map_err(CollectError::Failed)?,
            () = sleep_until(last_received + timeout) => return Err(CollectError::Failed("etcd sends no old changes; check the load of its members".into())),
            _ = progress_requests.tick() => {
                // Where progress reports are wrong, only an event after `until` proves that all changes were received.
                match remote.is_direct() {
                    true => remote.barrier.notify_one(),
                    false => stream.request_progress().await.map_err(CollectError::Failed)?,
                }
                continue;
            }
        };
        last_received = Instant::now();
        match received {
            Received::Events(events, through) => {
                let in_range = events.into_iter().take_while(|event| revision_of(event) <= until);
                collected.changes.extend(in_range.filter_map(|event| decode(remote, event)));
                collected.through = through.min(until);
            }
            Received::Progress(through) if !remote.is_direct() => {
                collected.through = collected.through.max(through.min(until));
            }
            Received::Compacted(oldest) => return Err(CollectError::Compacted(oldest)),
            Received::Progress(_) | Received::Nothing => {}
        }
    }
    Ok(collected)
}

/// Decodes the change of an entry; none for a mark.
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
