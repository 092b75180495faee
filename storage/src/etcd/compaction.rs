//! Compaction, once for all servers.
//!
//! The key `l/compacted` marks up to where history is removed. The server that moves it, by compare-and-set, compacts
//! etcd; the others receive the change in their feeds and compact their Views.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::time::{Instant, sleep};

use super::errors::{self, EtcdReadError, EtcdWriteError};
use super::layout::{number, revision};
use super::members::{Backoff, Chosen, within};
use super::{EtcdState, Remote};
use crate::store::{ReadError, Revision};

/// The mark as it was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mark {
    /// Changes at or before this revision are compacted.
    pub(super) through: Revision,
    /// When the mark was moved there; zero for never.
    pub(super) moved: Revision,
}

impl Mark {
    /// Reads the mark as it was `at` some revision, or is now.
    pub(super) async fn read(
        remote: &Remote,
        at: Option<Revision>,
        deadline: Instant,
    ) -> Result<Self, EtcdReadError> {
        let options = GetOptions::new().with_revision(at.map_or(0, number));
        let answer = remote.members.read(&remote.layout.compacted(), &options, deadline).await?.0;
        let mark = answer.kvs.first().map(|kv| Mark::decode(&kv.value, revision(kv.mod_revision)));
        Ok(mark.unwrap_or_default())
    }

    pub(super) fn decode(value: &[u8], moved: Revision) -> Self {
        let through = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        // Nothing after the revision of the mark itself can be compacted, whatever its value.
        Mark { through: Revision(through.unwrap_or(0)).min(moved), moved }
    }
}

/// Whether the mark was moved.
enum Moved {
    Yes,
    /// Another server moved it.
    No,
}

impl EtcdState {
    pub(super) async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        let deadline = self.remote.deadline();
        // Only revisions that this View has reached can be compacted.
        let through = through.min(self.newest(deadline).await?);
        self.catch_up(through, deadline).await?;
        let unavailable = |error: EtcdReadError| ReadError::Unavailable { reason: error.reason() };
        let mut backoff = Backoff::new();
        loop {
            let mark = Mark::read(&self.remote, None, deadline).await.map_err(unavailable)?;
            if mark.through >= through {
                break;
            }
            match self.move_mark(mark, through, deadline).await {
                Ok(Moved::Yes) => break,
                Ok(Moved::No) => {}
                // The next read shows whether it moved nevertheless.
                Err(_) if Instant::now() < deadline => backoff.wait(deadline).await,
                Err(error) => return Err(unavailable(error)),
            }
        }
        // Also if the mark was moved already: the server that moved it may have crashed before it compacted etcd.
        self.compact_etcd(through, deadline).await.map_err(unavailable)?;
        self.view.forget(through);
        Ok(())
    }

    async fn move_mark(
        &self,
        mark: Mark,
        through: Revision,
        deadline: Instant,
    ) -> Result<Moved, EtcdReadError> {
        let path = self.remote.layout.compacted();
        let txn = Txn::new()
            .when([Compare::mod_revision(path.clone(), CompareOp::Equal, number(mark.moved))])
            .and_then([TxnOp::put(path, through.to_string(), None)]);
        let member =
            self.remote.members.current().await.map_err(|error| EtcdReadError::Failed(error.to_string()))?;
        let until = deadline.min(Instant::now() + self.remote.members.options.timeouts.request);
        match within(until, member.kv().txn(txn)).await {
            Ok(Ok(answer)) if answer.succeeded() => Ok(Moved::Yes),
            Ok(Ok(_)) => Ok(Moved::No),
            Ok(Err(error)) => match errors::classify_write(&error) {
                // A full etcd cannot store the mark, but needs the compaction. The other servers notice when they read
                // compacted history.
                EtcdWriteError::Refused(_) | EtcdWriteError::Full(_) => Ok(Moved::Yes),
                EtcdWriteError::Rejected(reason) | EtcdWriteError::Lost(reason) => {
                    self.remote.members.avoid(&member, &reason).await;
                    Err(EtcdReadError::Failed(reason))
                }
            },
            Err(reason) => {
                self.remote.members.avoid(&member, &reason).await;
                Err(EtcdReadError::Failed(reason))
            }
        }
    }

    async fn compact_etcd(&self, through: Revision, deadline: Instant) -> Result<(), EtcdReadError> {
        if through == Revision::ZERO {
            return Ok(());
        }
        let compact = |member: Chosen| async move { member.kv().compact(number(through), None).await };
        match self.remote.members.attempt(deadline, compact).await {
            Ok(_) | Err(EtcdReadError::Compacted) => Ok(()),
            // The servers have compacted their Views. etcd keeps its history, and will be full one day.
            Err(EtcdReadError::Refused(reason)) => {
                tracing::warn!(
                    reason,
                    "etcd denies compaction and will run full. Give the etcd user the role root, or start the members with \
                     --auto-compaction-mode=periodic --auto-compaction-retention=10m"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Compacts for ever; part of the feed. Keeps at least the history of the last `every`.
    pub(super) async fn compact_every(&self, every: Duration) {
        loop {
            let (before, head) = (*self.mark.lock(), self.view.head());
            sleep(every).await;
            if *self.mark.lock() != before {
                // Another server was first. One compaction in `every` is enough.
                continue;
            }
            let deadline = self.remote.deadline();
            let compacted = match self.move_mark(before, head, deadline).await {
                Ok(Moved::Yes) => self.compact_etcd(head, deadline).await,
                Ok(Moved::No) => Ok(()),
                Err(error) => Err(error),
            };
            match compacted {
                Ok(()) => tracing::debug!(through = head.0, "compacted etcd"),
                Err(error) => {
                    tracing::warn!(reason = error.reason(), "could not compact etcd; trying again later");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_never_reaches_beyond_its_own_revision() {
        let check = |value: &[u8], moved: u64, through: u64| {
            let mark = Mark::decode(value, Revision(moved));
            assert_eq!(mark, Mark { through: Revision(through), moved: Revision(moved) });
        };
        check(b"7", 9, 7);
        check(b"70", 9, 9);
        check(b"", 9, 0);
        check(b"\xff", 9, 0);
    }
}
