//! Determines whether a write whose response was lost has happened.
//!
//! First it fences the slot, so that the write cannot happen later. That is not needed if etcd has responded, even if
//! only that it is full. Then:
//!
//! * a delete has written its id into the slot, or it has not happened;
//! * a put is in the key, or the key is unchanged; or else the key was written since, and etcd's history is searched for the
//!   put.

use etcd_client::proto::PbKeyValue;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::time::Instant;

use super::Remote;
use super::commit::{Write, range_in};
use super::errors;
use super::history::read_changes;
use super::layout::{SlotUse, number, revision};
use super::members::{Backoff, Chosen, within};
use super::slots::HeldSlot;
use crate::store::{Change, CommitError, Expect, Revision};

/// Old changes held in memory at once during the search.
const CHANGES_MAX: usize = 512;

/// What is uncertain about a write.
#[derive(Clone, Copy)]
pub(super) enum Uncertainty<'a> {
    /// No response, for this reason: the write may have happened, or may happen later.
    NoAnswer(&'a str),
    /// etcd has decided, but did not report how. No fence is needed.
    Decided,
}

/// Returns the revision of the write if it has happened; none if it has not and never will. Fails if the deadline
/// passes first.
pub(super) async fn resolve(
    remote: &Remote,
    write: &Write,
    slot: &mut HeldSlot<'_>,
    uncertainty: Uncertainty<'_>,
) -> Result<Option<Revision>, CommitError> {
    let deadline = Instant::now() + remote.members.options.timeouts.settle;
    let mut backoff = Backoff::new();
    loop {
        let outcome = match read_state(remote, write, slot, uncertainty, deadline).await {
            Ok(state) => find_write(remote, write, slot, state, deadline).await,
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(outcome) => {
                tracing::info!(
                    key = ?write.key,
                    ?outcome,
                    "determined the outcome of a write whose response was lost"
                );
                return Ok(outcome);
            }
            Err(reason) if Instant::now() >= deadline => {
                let uncertainty = match uncertainty {
                    Uncertainty::NoAnswer(reason) => reason,
                    Uncertainty::Decided => "etcd is full",
                };
                let reason = format!("{uncertainty}; cannot determine whether the write happened: {reason}");
                return Err(CommitError::Unknown { reason });
            }
            Err(reason) => {
                tracing::debug!(reason, key = ?write.key, "the outcome of a write is still unknown")
            }
        }
        backoff.wait(deadline).await;
    }
}

/// The key and the slot, at a revision after which the write can no longer happen.
struct FencedState {
    at: Revision,
    key: Vec<PbKeyValue>,
    /// The value of the slot, if it has changed since we read it.
    used: Option<PbKeyValue>,
    /// The revision of the slot's key now.
    slot: i64,
}

fn fence_and_read(remote: &Remote, write: &Write, slot: &HeldSlot<'_>, uncertainty: Uncertainty<'_>) -> Txn {
    let (slot_set, number_in_set) = slot.id();
    let path = remote.layout.slot(slot_set, number_in_set);
    let read = [TxnOp::get(write.path.clone(), None), TxnOp::get(path.clone(), None)];
    match uncertainty {
        Uncertainty::Decided => Txn::new().and_then(read),
        Uncertainty::NoAnswer(_) => Txn::new()
            .when([Compare::mod_revision(path.clone(), CompareOp::Equal, slot.revision())])
            .and_then([
                TxnOp::get(write.path.clone(), None),
                TxnOp::put(path, SlotUse::Fence(write.id).encode(), None),
            ])
            .or_else(read),
    }
}

async fn read_state(
    remote: &Remote,
    write: &Write,
    slot: &HeldSlot<'_>,
    uncertainty: Uncertainty<'_>,
    deadline: Instant,
) -> Result<FencedState, String> {
    let txn = fence_and_read(remote, write, slot, uncertainty);
    let until = deadline.min(Instant::now() + remote.members.options.timeouts.request);
    let member = within(until, remote.members.current()).await?.map_err(|error| error.to_string())?;
    let answer = match within(until, member.kv().txn(txn)).await {
        Ok(Ok(answer)) => answer.0,
        Ok(Err(error)) => return Err(failed(remote, &member, errors::classify_read(&error).reason()).await),
        Err(reason) => return Err(failed(remote, &member, reason).await),
    };
    let at = super::head_of(answer.header.as_ref()).map_err(|error| error.reason())?;
    let mut responses = answer.responses.into_iter().filter_map(|response| response.response);
    let key = range_in(responses.next()).ok_or("etcd's response is incomplete")?;
    let Some(mut now) = range_in(responses.next()) else {
        // The fence is written, and the slot was unchanged until then.
        return Ok(FencedState { at, key, used: None, slot: number(at) });
    };
    let now = now.pop();
    let revision = now.as_ref().map_or(0, |used| used.mod_revision);
    Ok(FencedState { at, key, used: now.filter(|_| revision != slot.revision()), slot: revision })
}

async fn failed(remote: &Remote, member: &Chosen, reason: String) -> String {
    remote.members.avoid(member, &reason).await;
    reason
}

async fn find_write(
    remote: &Remote,
    write: &Write,
    slot: &mut HeldSlot<'_>,
    state: FencedState,
    deadline: Instant,
) -> Result<Option<Revision>, String> {
    let before = slot.revision();
    let outcome = match (&write.change, &state.used) {
        (Change::Put(_), _) => find_put(remote, write, &state).await?,
        // The slot is unchanged, so the delete has not happened.
        (Change::Delete, None) => None,
        (Change::Delete, Some(used)) => {
            find_delete(remote, write, slot, before, used.clone(), deadline).await?
        }
    };
    // Only now: if the search fails, the next attempt must use the same revision.
    slot.set_revision(state.slot);
    Ok(outcome)
}

async fn find_put(remote: &Remote, write: &Write, state: &FencedState) -> Result<Option<Revision>, String> {
    let current = state.key.first().and_then(|stored| remote.layout.decode(stored.clone()));
    if let Some(stored) = current.as_ref().filter(|stored| stored.id == Some(write.id)) {
        return Ok(Some(stored.entry.revision()));
    }
    if write.expect.holds(current.as_ref().map(|stored| &stored.entry)) && !may_be_deleted_since(write) {
        return Ok(None);
    }
    let mut reached = write.after;
    while reached < state.at {
        let past = read_changes(remote, reached, state.at, CHANGES_MAX).await;
        let past = past.map_err(|error| error.to_string())?;
        if let Some(ours) = past.changes.iter().find(|change| change.id == Some(write.id)) {
            return Ok(Some(ours.event.revision));
        }
        reached = past.through;
    }
    Ok(None)
}

/// Reports whether the key can be as expected although the write happened: it may have been created and deleted again.
fn may_be_deleted_since(write: &Write) -> bool {
    write.expect == Expect::Absent
}

/// Searches the history of the slot, back to the revision we read.
async fn find_delete(
    remote: &Remote,
    write: &Write,
    slot: &HeldSlot<'_>,
    before: i64,
    mut used: PbKeyValue,
    deadline: Instant,
) -> Result<Option<Revision>, String> {
    let (slot_set, number_in_set) = slot.id();
    let path = remote.layout.slot(slot_set, number_in_set);
    loop {
        match SlotUse::decode(&used.value) {
            Some(SlotUse::Delete(id)) if id == write.id => return Ok(Some(revision(used.mod_revision))),
            // Our own fence, whose answer was also lost.
            Some(SlotUse::Fence(id)) if id == write.id => return Ok(None),
            _ => {}
        }
        // A server with the same slot set has used the slot since.
        let earlier = GetOptions::new().with_revision(used.mod_revision - 1);
        let answer = remote.members.read(&path, &earlier, deadline).await.map_err(|error| error.reason())?;
        match answer.0.kvs.into_iter().next().filter(|earlier| earlier.mod_revision > before) {
            Some(earlier) => used = earlier,
            None => return Ok(None),
        }
    }
}
