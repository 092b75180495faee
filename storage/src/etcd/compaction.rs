//! Forgetting history, once for all servers.
//!
//! The mark `l/compacted` says up to where history is forgotten. Who moves it, by compare-and-set, is the one
//! who compacts etcd; everybody else sees it move in the feed and forgets the same.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::time::{Instant, sleep};

use super::fault::{self, ReadFault, WriteFault};
use super::layout::{number, revision};
use super::members::{Chosen, Pause, within};
use super::{Remote, Shared};
use crate::store::{ReadError, Revision};

/// The mark as it was last seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Mark {
    /// Everything at or before this is forgotten.
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
    ) -> Result<Self, ReadFault> {
        let options = GetOptions::new().with_revision(at.map_or(0, number));
        let answer = remote.members.read(&remote.layout.compacted(), &options, deadline).await?.0;
        let mark = answer.kvs.first().map(|kv| Mark::decode(&kv.value, revision(kv.mod_revision)));
        Ok(mark.unwrap_or_default())
    }

    pub(super) fn decode(value: &[u8], moved: Revision) -> Self {
        let through = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        // Nothing after the mark itself can be forgotten, whatever it says.
        Mark { through: Revision(through.unwrap_or(0)).min(moved), moved }
    }
}

/// What came of trying to move the mark.
enum Moved {
    Yes,
    /// Somebody else did.
    No,
}

impl Shared {
    pub(super) async fn compact(&self, through: Revision) -> Result<(), ReadError> {
        let deadline = self.remote.deadline();
        // Only what this View has seen can be forgotten in it.
        let through = through.min(self.newest(deadline).await?);
        self.catch_up(through, deadline).await?;
        let unavailable = |fault: ReadFault| ReadError::Unavailable { reason: fault.reason() };
        let mut pause = Pause::new();
        loop {
            let mark = Mark::read(&self.remote, None, deadline).await.map_err(unavailable)?;
            if mark.through >= through {
                break;
            }
            match self.move_mark(mark, through, deadline).await {
                Ok(Moved::Yes) => break,
                Ok(Moved::No) => {}
                // Whether it moved nevertheless, the next look at it tells.
                Err(_) if Instant::now() < deadline => pause.wait(deadline).await,
                Err(fault) => return Err(unavailable(fault)),
            }
        }
        // Also if the mark was there already: whoever moved it may not have lived to do the rest.
        self.compact_etcd(through, deadline).await.map_err(unavailable)?;
        self.view.forget(through);
        Ok(())
    }

    async fn move_mark(&self, mark: Mark, through: Revision, deadline: Instant) -> Result<Moved, ReadFault> {
        let path = self.remote.layout.compacted();
        let txn = Txn::new()
            .when([Compare::mod_revision(path.clone(), CompareOp::Equal, number(mark.moved))])
            .and_then([TxnOp::put(path, through.to_string(), None)]);
        let member =
            self.remote.members.current().await.map_err(|error| ReadFault::Failed(error.to_string()))?;
        let until = deadline.min(Instant::now() + self.remote.members.options.timeouts.request);
        match within(until, member.kv().txn(txn)).await {
            Ok(Ok(answer)) if answer.succeeded() => Ok(Moved::Yes),
            Ok(Ok(_)) => Ok(Moved::No),
            Ok(Err(error)) => match fault::of_write(&error) {
                // A full etcd takes no mark, but compaction is what it needs. The others find out when they
                // ask for what is gone.
                WriteFault::Refused(_) | WriteFault::Full(_) => Ok(Moved::Yes),
                WriteFault::Rejected(reason) | WriteFault::Lost(reason) => {
                    self.remote.members.avoid(&member, &reason).await;
                    Err(ReadFault::Failed(reason))
                }
            },
            Err(reason) => {
                self.remote.members.avoid(&member, &reason).await;
                Err(ReadFault::Failed(reason))
            }
        }
    }

    async fn compact_etcd(&self, through: Revision, deadline: Instant) -> Result<(), ReadFault> {
        if through == Revision::ZERO {
            return Ok(());
        }
        let compact = |member: Chosen| async move { member.kv().compact(number(through), None).await };
        match self.remote.members.attempt(deadline, compact).await {
            Ok(_) | Err(ReadFault::Compacted) => Ok(()),
            // The servers have forgotten, which is what was asked for. That etcd has not will fill it one day.
            Err(ReadFault::Refused(reason)) => {
                tracing::warn!(
                    reason,
                    "etcd keeps what was compacted. Give our user the role root, or start the members with \
                     --auto-compaction-mode=periodic --auto-compaction-retention=10m"
                );
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    /// Compacts for ever; part of the feed. What happened in the last `every` is always kept.
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
                Err(fault) => Err(fault),
            };
            match compacted {
                Ok(()) => tracing::debug!(through = head.0, "compacted etcd"),
                Err(fault) => {
                    tracing::warn!(reason = fault.reason(), "could not compact etcd; trying again later");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_never_forgets_what_came_after_it() {
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
