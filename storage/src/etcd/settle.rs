//! What became of a write whose answer was lost.
//!
//! First the slot is fenced, so that the write cannot happen later behind our back; that is not needed if
//! etcd has answered, if only to say that it is full. Then:
//!
//! * a delete has left its name in the slot, or it has not happened;
//! * a put is in the key, or the key is as it was before; or else others have written the key since, and
//!   etcd's history is searched for it.

use etcd_client::proto::PbKeyValue;
use etcd_client::{Compare, CompareOp, GetOptions, Txn, TxnOp};
use tokio::time::Instant;

use super::Remote;
use super::commit::{Write, range_in};
use super::fault;
use super::layout::{SlotUse, number, revision};
use super::members::{Chosen, Pause, within};
use super::past::recall;
use super::slots::Held;
use crate::store::{Change, CommitError, Expect, Revision};

/// Old changes held in memory at once while looking for one of them.
const RECALLED_AT_ONCE: usize = 512;

/// What is in doubt.
#[derive(Clone, Copy)]
pub(super) enum Doubt<'a> {
    /// No answer came, for this reason: the write may have happened, and may yet happen.
    Open(&'a str),
    /// etcd has decided, but has not said how. No fence is needed.
    Decided,
}

/// The revision of the write if it has happened; none if it has not and never will. An error if that could
/// not be found out in time.
pub(super) async fn settle(
    remote: &Remote,
    write: &Write,
    slot: &mut Held<'_>,
    doubt: Doubt<'_>,
) -> Result<Option<Revision>, CommitError> {
    let deadline = Instant::now() + remote.members.options.timeouts.settle;
    let mut pause = Pause::new();
    loop {
        let outcome = match ask(remote, write, slot, doubt, deadline).await {
            Ok(found) => look(remote, write, slot, found, deadline).await,
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(outcome) => {
                tracing::info!(key = ?write.key, ?outcome, "settled a write whose answer was lost");
                return Ok(outcome);
            }
            Err(reason) if Instant::now() >= deadline => {
                let doubt = match doubt {
                    Doubt::Open(reason) => reason,
                    Doubt::Decided => "etcd is full",
                };
                let reason = format!("{doubt}; could not find out whether it happened: {reason}");
                return Err(CommitError::Unknown { reason });
            }
            Err(reason) => tracing::debug!(reason, key = ?write.key, "a lost write is not settled yet"),
        }
        pause.wait(deadline).await;
    }
}

/// The key and the slot, at a revision after which the write can no longer happen.
struct Found {
    at: Revision,
    key: Vec<PbKeyValue>,
    /// What the slot held if it was not as we knew it.
    used: Option<PbKeyValue>,
    /// The revision of the slot's key now.
    slot: i64,
}

fn question(remote: &Remote, write: &Write, slot: &Held<'_>, doubt: Doubt<'_>) -> Txn {
    let (seat, place) = slot.place();
    let path = remote.layout.slot(seat, place);
    let read = [TxnOp::get(write.path.clone(), None), TxnOp::get(path.clone(), None)];
    match doubt {
        Doubt::Decided => Txn::new().and_then(read),
        Doubt::Open(_) => Txn::new()
            .when([Compare::mod_revision(path.clone(), CompareOp::Equal, slot.revision())])
            .and_then([
                TxnOp::get(write.path.clone(), None),
                TxnOp::put(path, SlotUse::Fence(write.id).encode(), None),
            ])
            .or_else(read),
    }
}

async fn ask(
    remote: &Remote,
    write: &Write,
    slot: &Held<'_>,
    doubt: Doubt<'_>,
    deadline: Instant,
) -> Result<Found, String> {
    let txn = question(remote, write, slot, doubt);
    let until = deadline.min(Instant::now() + remote.members.options.timeouts.request);
    let member = within(until, remote.members.current()).await?.map_err(|error| error.to_string())?;
    let answer = match within(until, member.kv().txn(txn)).await {
        Ok(Ok(answer)) => answer.0,
        Ok(Err(error)) => return Err(failed(remote, &member, fault::of_read(&error).reason()).await),
        Err(reason) => return Err(failed(remote, &member, reason).await),
    };
    let at = super::head_of(answer.header.as_ref()).map_err(|fault| fault.reason())?;
    let mut parts = answer.responses.into_iter().filter_map(|part| part.response);
    let key = range_in(parts.next()).ok_or("etcd's answer has not the parts it should")?;
    let Some(mut now) = range_in(parts.next()) else {
        // Our fence stands, and it found the slot as the write would have found it.
        return Ok(Found { at, key, used: None, slot: number(at) });
    };
    let now = now.pop();
    let revision = now.as_ref().map_or(0, |used| used.mod_revision);
    Ok(Found { at, key, used: now.filter(|_| revision != slot.revision()), slot: revision })
}

async fn failed(remote: &Remote, member: &Chosen, reason: String) -> String {
    remote.members.avoid(member, &reason).await;
    reason
}

async fn look(
    remote: &Remote,
    write: &Write,
    slot: &mut Held<'_>,
    found: Found,
    deadline: Instant,
) -> Result<Option<Revision>, String> {
    let before = slot.revision();
    let outcome = match (&write.change, &found.used) {
        (Change::Put(_), _) => find_put(remote, write, &found).await?,
        // The slot bears no name but the one before, so the delete has not been there.
        (Change::Delete, None) => None,
        (Change::Delete, Some(used)) => {
            find_delete(remote, write, slot, before, used.clone(), deadline).await?
        }
    };
    // Only now: should the above fail, the next attempt must ask about the same revision.
    slot.seen(found.slot);
    Ok(outcome)
}

async fn find_put(remote: &Remote, write: &Write, found: &Found) -> Result<Option<Revision>, String> {
    let current = found.key.first().and_then(|stored| remote.layout.decode(stored.clone()));
    if let Some(stored) = current.as_ref().filter(|stored| stored.id == Some(write.id)) {
        return Ok(Some(stored.entry.revision()));
    }
    if write.expect.holds(current.as_ref().map(|stored| &stored.entry)) && !may_have_gone(write) {
        return Ok(None);
    }
    let mut reached = write.after;
    while reached < found.at {
        let past = recall(remote, reached, found.at, RECALLED_AT_ONCE).await;
        let past = past.map_err(|error| error.to_string())?;
        if let Some(ours) = past.changes.iter().find(|change| change.id == Some(write.id)) {
            return Ok(Some(ours.event.revision));
        }
        reached = past.through;
    }
    Ok(None)
}

/// Whether the key can be as expected although the write happened: created, and deleted again by another.
fn may_have_gone(write: &Write) -> bool {
    write.expect == Expect::Absent
}

/// Looks through what the slot held, back to the revision we knew.
async fn find_delete(
    remote: &Remote,
    write: &Write,
    slot: &Held<'_>,
    before: i64,
    mut used: PbKeyValue,
    deadline: Instant,
) -> Result<Option<Revision>, String> {
    let (seat, place) = slot.place();
    let path = remote.layout.slot(seat, place);
    loop {
        match SlotUse::decode(&used.value) {
            Some(SlotUse::Delete(id)) if id == write.id => return Ok(Some(revision(used.mod_revision))),
            // Our own fence, whose answer was lost as well.
            Some(SlotUse::Fence(id)) if id == write.id => return Ok(None),
            _ => {}
        }
        // A server that drew the same seat has used the slot since.
        let earlier = GetOptions::new().with_revision(used.mod_revision - 1);
        let answer = remote.members.read(&path, &earlier, deadline).await.map_err(|fault| fault.reason())?;
        match answer.0.kvs.into_iter().next().filter(|earlier| earlier.mod_revision > before) {
            Some(earlier) => used = earlier,
            None => return Ok(None),
        }
    }
}
