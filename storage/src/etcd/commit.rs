//! Commits: one transaction each, and a definite result where possible.
//!
//! ```text
//!   send ──► done ───────────────────────────────► wait for the View ──► Event
//!     │ ├──► the key is not as expected ─────────► Conflict
//!     │ ├──► certainly not done ──► try again, else Unavailable
//!     │ └──► no answer ──► fence the slot, then search ──► done, or not done, or (after the deadline) Unknown
//!     └── one revision each: two writes in one transaction would share theirs
//! ```

use etcd_client::proto::{PbKeyValue, PbTxnOpResponse, PbTxnResponse};
use etcd_client::{Compare, CompareOp, DeleteOptions, Error, GetOptions, PutOptions, Txn, TxnOp};
use tokio::time::Instant;

use super::errors::{self, EtcdWriteError};
use super::layout::{SlotUse, WriteId, number, seal};
use super::lost_write::{Uncertainty, resolve};
use super::members::{Backoff, within};
use super::slots::HeldSlot;
use super::{EtcdState, Remote};
use crate::range::Key;
use crate::store::{At, Change, CommitError, Entry, Event, Expect, Revision, check_size};

/// One commit under way.
pub(super) struct Write {
    pub(super) id: WriteId,
    pub(super) key: Key,
    pub(super) path: Vec<u8>,
    pub(super) expect: Expect,
    pub(super) change: Change,
    /// If the write happens, its revision is later than this one.
    pub(super) after: Revision,
    /// The entry that the write replaces, if the View has it.
    replaced: ReplacedEntry,
}

enum ReplacedEntry {
    Nothing,
    Known(Entry),
    /// The View does not have it, so it must be requested from etcd.
    Unknown,
}

/// A write that happened.
struct CommittedWrite {
    revision: Revision,
    /// The replaced entry, if etcd returned it.
    previous: Option<Entry>,
}

enum TransactionOutcome {
    Committed(CommittedWrite),
    Conflict(At<Option<Entry>>),
    /// Another server used the slot, whose key has this revision now.
    SlotMoved(i64),
}

impl EtcdState {
    pub(super) async fn commit(
        &self,
        key: Key,
        expect: Expect,
        change: Change,
    ) -> Result<Event, CommitError> {
        check_size(&key, &change)?;
        if is_impossible(expect, &change) {
            let current = self
                .get(&key)
                .await
                .map_err(|error| CommitError::Unavailable { reason: error.to_string() })?;
            return Err(CommitError::Conflict { current });
        }
        let write = self.write(key, expect, change);
        let done = self.write_until_resolved(&write).await?;
        // So that the writer's own reads and watches contain the write. If the feed is down, they wait for it
        // themselves; the write is acknowledged in either case.
        let deadline = Instant::now() + self.remote.members.options.timeouts.request;
        let _ = self.catch_up(done.revision, deadline).await;
        self.event(write, done).await
    }

    fn write(&self, key: Key, expect: Expect, change: Change) -> Write {
        let now = self.view.now();
        let replaced = match (expect, now.get(key.as_bytes())) {
            (Expect::Absent, _) => ReplacedEntry::Nothing,
            (Expect::Revision(_), Some(entry)) if expect.holds(Some(entry)) => {
                ReplacedEntry::Known(entry.clone())
            }
            (Expect::Revision(_), _) => ReplacedEntry::Unknown,
        };
        let path = self.remote.layout.entry(key.as_bytes());
        Write { id: self.next_id(), key, path, expect, change, after: now.revision, replaced }
    }

    /// Retries until the outcome of the write is known, or the deadline passes.
    async fn write_until_resolved(&self, write: &Write) -> Result<CommittedWrite, CommitError> {
        let deadline = self.remote.deadline();
        let mut slot =
            self.slots.take(deadline).await.map_err(|reason| CommitError::Unavailable { reason })?;
        let mut backoff = Backoff::new();
        loop {
            let reason = match send(&self.remote, write, &slot).await {
                Ok(TransactionOutcome::Committed(done)) => {
                    if write.change == Change::Delete {
                        slot.set_revision(number(done.revision));
                    }
                    return Ok(done);
                }
                Ok(TransactionOutcome::Conflict(current)) => return Err(CommitError::Conflict { current }),
                Ok(TransactionOutcome::SlotMoved(revision)) => {
                    slot.set_revision(revision);
                    if Instant::now() < deadline {
                        continue;
                    }
                    "another server is using the same slot all the time".to_owned()
                }
                Err(EtcdWriteError::Refused(error)) => return Err(error),
                Err(EtcdWriteError::Rejected(reason)) => reason,
                Err(EtcdWriteError::Full(error)) => {
                    let outcome = resolve(&self.remote, write, &mut slot, Uncertainty::Decided).await?;
                    return outcome.map(|revision| CommittedWrite { revision, previous: None }).ok_or(error);
                }
                Err(EtcdWriteError::Lost(reason)) => {
                    let outcome =
                        resolve(&self.remote, write, &mut slot, Uncertainty::NoAnswer(&reason)).await?;
                    if let Some(revision) = outcome {
                        return Ok(CommittedWrite { revision, previous: None });
                    }
                    reason
                }
            };
            backoff.wait(deadline).await;
            if Instant::now() >= deadline {
                return Err(CommitError::Unavailable { reason });
            }
        }
    }

    async fn event(&self, write: Write, done: CommittedWrite) -> Result<Event, CommitError> {
        let Write { key, path, change, replaced, .. } = write;
        let previous = match (replaced, done.previous) {
            (ReplacedEntry::Nothing, _) => None,
            (ReplacedEntry::Known(entry), _) | (ReplacedEntry::Unknown, Some(entry)) => Some(entry),
            (ReplacedEntry::Unknown, None) => self.entry_before(&path, done.revision).await?,
        };
        let current = match change {
            Change::Put(value) => Some(Entry::new(key.clone(), done.revision, value)),
            Change::Delete => None,
        };
        Ok(Event { revision: done.revision, key, current, previous })
    }

    /// Returns the entry that a write replaced. Needed only if the response to the write was lost and the View did not
    /// have the entry.
    async fn entry_before(&self, path: &[u8], at: Revision) -> Result<Option<Entry>, CommitError> {
        let before = GetOptions::new().with_revision(number(at) - 1);
        let read = self.remote.members.read(path, &before, self.remote.deadline()).await;
        let answer = read.map_err(|error| CommitError::Unknown {
            reason: format!("written at {at}, but the replaced entry cannot be read: {}", error.reason()),
        })?;
        Ok(self.remote.layout.entry_in(answer.0.kvs))
    }
}

/// Reports whether no entry can meet the expectation. etcd would treat revision zero as "absent".
fn is_impossible(expect: Expect, change: &Change) -> bool {
    match expect {
        Expect::Absent => *change == Change::Delete,
        Expect::Revision(revision) => revision == Revision::ZERO || i64::try_from(revision.0).is_err(),
    }
}

async fn send(
    remote: &Remote,
    write: &Write,
    slot: &HeldSlot<'_>,
) -> Result<TransactionOutcome, EtcdWriteError> {
    // The full request timeout, even if the commit's deadline is near: a cancelled request is a lost response.
    let until = Instant::now() + remote.members.options.timeouts.request;
    let member = match within(until, remote.members.current()).await {
        Ok(member) => member.map_err(|error: Error| EtcdWriteError::Rejected(error.to_string()))?,
        Err(reason) => return Err(EtcdWriteError::Rejected(reason)),
    };
    let error = match within(until, member.kv().txn(transaction(remote, write, slot))).await {
        Ok(Ok(answer)) => return read_answer(remote, write, answer.0).map_err(EtcdWriteError::Lost),
        Ok(Err(error)) => errors::classify_write(&error),
        Err(reason) => EtcdWriteError::Lost(reason),
    };
    if let EtcdWriteError::Rejected(reason) | EtcdWriteError::Lost(reason) = &error {
        tracing::debug!(member = %member.endpoint, ?error, "a write to etcd failed");
        remote.members.avoid(&member, reason).await;
    }
    Err(error)
}

fn transaction(remote: &Remote, write: &Write, slot: &HeldSlot<'_>) -> Txn {
    let expected = match write.expect {
        Expect::Absent => 0,
        Expect::Revision(revision) => number(revision),
    };
    let (slot_set, number_in_set) = slot.id();
    let slot_path = remote.layout.slot(slot_set, number_in_set);
    let requests_previous = matches!(write.replaced, ReplacedEntry::Unknown);
    let operations = match &write.change {
        Change::Put(value) => {
            let options = requests_previous.then(|| PutOptions::new().with_prev_key());
            vec![TxnOp::put(write.path.clone(), seal(write.id, value), options)]
        }
        Change::Delete => {
            let options = requests_previous.then(|| DeleteOptions::new().with_prev_key());
            let used = SlotUse::Delete(write.id).encode();
            vec![TxnOp::delete(write.path.clone(), options), TxnOp::put(slot_path.clone(), used, None)]
        }
    };
    Txn::new()
        .when([
            Compare::mod_revision(write.path.clone(), CompareOp::Equal, expected),
            Compare::mod_revision(slot_path.clone(), CompareOp::Equal, slot.revision()),
        ])
        .and_then(operations)
        // A conflict returns the current entry in the same round trip.
        .or_else([TxnOp::get(write.path.clone(), None), TxnOp::get(slot_path, None)])
}

/// Decodes a response. An error has the same meaning as no response.
fn read_answer(remote: &Remote, write: &Write, answer: PbTxnResponse) -> Result<TransactionOutcome, String> {
    let head = super::head_of(answer.header.as_ref()).map_err(|error| error.reason())?;
    let succeeded = answer.succeeded;
    let mut responses = answer.responses.into_iter().filter_map(|response| response.response);
    if succeeded {
        let previous = match responses.next() {
            Some(PbTxnOpResponse::ResponsePut(put)) => put.prev_kv.into_iter().collect(),
            Some(PbTxnOpResponse::ResponseDeleteRange(deleted)) => deleted.prev_kvs,
            _ => Vec::new(),
        };
        return Ok(TransactionOutcome::Committed(CommittedWrite {
            revision: head,
            previous: remote.layout.entry_in(previous),
        }));
    }
    let (Some(entries), Some(slot)) = (range_in(responses.next()), range_in(responses.next())) else {
        return Err("etcd's response is incomplete".into());
    };
    let current = remote.layout.entry_in(entries);
    if write.expect.holds(current.as_ref()) {
        return Ok(TransactionOutcome::SlotMoved(slot.first().map_or(0, |kv| kv.mod_revision)));
    }
    Ok(TransactionOutcome::Conflict(At { revision: head, value: current }))
}

pub(super) fn range_in(response: Option<PbTxnOpResponse>) -> Option<Vec<PbKeyValue>> {
    match response? {
        PbTxnOpResponse::ResponseRange(range) => Some(range.kvs),
        _ => None,
    }
}
