//! Consistent reads from memory: ask etcd how far it is, then wait until the View is there too.
//!
//! ```text
//!   reader 1 ─┐                        ┌─ reader 4 ─┐
//!   reader 2 ─┼─► question, on its way │  reader 5 ─┼─► waits for the next question
//!   reader 3 ─┘                        └────────────┘
//! ```
//!
//! One question is asked at a time and answers everybody who had come before it was asked. Who comes while
//! it is on its way must not share it: etcd may have answered before a write that reader has heard of.

use etcd_client::GetOptions;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Shared;
use super::members::within;
use crate::store::{ReadError, Revision};

/// Readers that may wait for one question. Later ones wait in line for it.
const READERS_MAX: usize = 4096;

pub(super) type Reader = oneshot::Sender<Result<Revision, ReadError>>;

pub(super) fn questions() -> (mpsc::Sender<Reader>, mpsc::Receiver<Reader>) {
    mpsc::channel(READERS_MAX)
}

/// Answers readers for ever; part of the feed.
pub(super) async fn answer(shared: &Shared, readers: &mut mpsc::Receiver<Reader>) {
    let mut waiting = Vec::new();
    // Zero means that nobody can ask any more.
    while readers.recv_many(&mut waiting, READERS_MAX).await > 0 {
        let newest = ask(shared).await;
        for reader in waiting.drain(..) {
            // A reader that gave up has dropped its end.
            let _ = reader.send(newest.clone());
        }
    }
}

async fn ask(shared: &Shared) -> Result<Revision, ReadError> {
    let seen = shared.view.head();
    let remote = &shared.remote;
    // A linearizable read of a key nobody writes: the cluster agrees on the revision, and sends nothing else.
    let options = GetOptions::new().with_count_only();
    let answer = remote.members.read(&remote.layout.format(), &options, remote.deadline()).await;
    let newest = answer.and_then(|answer| super::head_of(answer.0.header.as_ref()));
    let newest = newest.map_err(|fault| ReadError::Unavailable { reason: fault.reason() })?;
    if newest < seen {
        let reason = format!(
            "etcd is at revision {newest}, but {seen} was seen before: it was restored from a backup or \
             replaced. Restart this server to begin anew from what etcd has now"
        );
        tracing::error!("{reason}");
        return Err(ReadError::Unavailable { reason });
    }
    Ok(newest)
}

impl Shared {
    /// The newest revision: at least that of every write acknowledged before the call.
    pub(super) async fn newest(&self, deadline: Instant) -> Result<Revision, ReadError> {
        let unavailable = |reason: String| ReadError::Unavailable { reason };
        let (reader, answer) = oneshot::channel();
        let asked = async {
            // Both fail only if the feed is gone, and with it whoever would answer.
            self.readers.send(reader).await.ok()?;
            answer.await.ok()
        };
        match within(deadline, asked).await {
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
        // Tells the feed that somebody waits, in case nothing more happens that would move the View.
        self.wanted.send_if_modified(|wanted| {
            let further = revision > *wanted;
            *wanted = revision.max(*wanted);
            further
        });
        within(deadline, self.view.reached(revision)).await.map_err(|_| ReadError::Unavailable {
            reason: format!("etcd is at revision {revision}, but its watch only at {}", self.view.head()),
        })
    }

    /// Makes the View at least as new as every write acknowledged before the call.
    pub(super) async fn refresh(&self) -> Result<(), ReadError> {
        let deadline = self.remote.deadline();
        let newest = self.newest(deadline).await?;
        self.catch_up(newest, deadline).await
    }
}
