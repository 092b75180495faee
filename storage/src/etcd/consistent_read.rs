//! Consistent reads from memory: ask etcd for its revision, then wait until the View has reached it.
//!
//! ```text
//!   reader 1 ─┐                        ┌─ reader 4 ─┐
//!   reader 2 ─┼─► request in flight    │  reader 5 ─┼─► wait for the next request
//!   reader 3 ─┘                        └────────────┘
//! ```
//!
//! One request is in flight at a time, and serves all readers that arrived before it was sent. A reader that arrives
//! later must not share it: etcd may have responded before a write that this reader has observed.

use etcd_client::GetOptions;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::EtcdState;
use super::members::within;
use crate::store::{ReadError, Revision};

/// Readers that may wait for one request. Later ones wait for the channel.
const READERS_MAX: usize = 4096;

pub(super) type Reader = oneshot::Sender<Result<Revision, ReadError>>;

pub(super) fn channel() -> (mpsc::Sender<Reader>, mpsc::Receiver<Reader>) {
    mpsc::channel(READERS_MAX)
}

/// Serves readers for ever; part of the feed.
pub(super) async fn serve(shared: &EtcdState, readers: &mut mpsc::Receiver<Reader>) {
    let mut waiting = Vec::new();
    // Zero means that all senders are dropped.
    while readers.recv_many(&mut waiting, READERS_MAX).await > 0 {
        let newest = request_revision(shared).await;
        for reader in waiting.drain(..) {
            // A reader that gave up has dropped its end.
            let _ = reader.send(newest.clone());
        }
    }
}

async fn request_revision(shared: &EtcdState) -> Result<Revision, ReadError> {
    let view_head = shared.view.head();
    let remote = &shared.remote;
    // A linearizable read of a key that is never changed: the header of the response has the agreed revision.
    let options = GetOptions::new().with_count_only();
    let answer = remote.members.read(&remote.layout.format(), &options, remote.deadline()).await;
    let newest = answer.and_then(|answer| super::head_of(answer.0.header.as_ref()));
    let newest = newest.map_err(|error| ReadError::Unavailable { reason: error.reason() })?;
    if newest < view_head {
        let reason = format!(
            "etcd is at revision {newest}, but {view_head} was seen before: it was restored from a backup or \
             replaced. Restart this server to load what etcd has now"
        );
        tracing::error!("{reason}");
        return Err(ReadError::Unavailable { reason });
    }
    Ok(newest)
}

impl EtcdState {
    /// Returns etcd's revision: at least that of every write acknowledged before the call.
    pub(super) async fn newest(&self, deadline: Instant) -> Result<Revision, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let (reader, answer) = oneshot::channel();
        let request = async {
            // Both fail only if the feed has stopped.
            self.readers.send(reader).await.ok()?;
            answer.await.ok()
        };
        match within(deadline, request).await {
            Ok(Some(newest)) => newest,
            Ok(None) => Err(unavailable("the feed of the etcd store has stopped".into())),
            Err(reason) => Err(unavailable(reason)),
        }
    }

    /// Waits until the View has everything up to `revision`.
    pub(super) async fn catch_up(&self, revision: Revision, deadline: Instant) -> Result<(), ReadError> {
        if self.view.head() >= revision {
            return Ok(());
        }
        // Makes the feed request progress, in case no further event moves the View.
        self.requested_revision.send_if_modified(|requested_revision| {
            let further = revision > *requested_revision;
            *requested_revision = revision.max(*requested_revision);
            further
        });
        within(deadline, self.view.reached(revision)).await.map_err(|_| ReadError::Unavailable {
            reason: format!(
                "the etcd watch is at revision {}, behind etcd's revision {revision}",
                self.view.head()
            ),
        })
    }

    /// Makes the View at least as new as every write acknowledged before the call.
    pub(super) async fn refresh(&self) -> Result<(), ReadError> {
        let deadline = self.remote.deadline();
        let newest = self.newest(deadline).await?;
        self.catch_up(newest, deadline).await
    }
}
