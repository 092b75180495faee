//! Slots: they show whether a write without an answer has happened.
//!
//! Every commit holds a slot exclusively, and its transaction succeeds only if the slot's key is unchanged. A delete
//! also writes its id into the slot, in the same transaction. So, when an answer is lost, writing the slot is a fence:
//! a transaction that has not happened by then never will, however long it is queued; and if the slot already holds the
//! id of the delete, the delete has happened.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::members::within;

/// Maximum number of concurrent commits of one server. About sixty saturate etcd.
const SLOTS: u8 = 128;

pub(super) struct Slots {
    /// Each server draws one of 256 slot sets, so that servers rarely share slots. Sharing is safe but costs attempts;
    /// the number is bounded so that restarts do not leave ever more keys behind.
    slot_set: u8,
    /// Last used first: a quiet server uses one slot.
    free: Mutex<Vec<Slot>>,
    permits: Semaphore,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u8,
    /// The last known revision of its key; zero for absent.
    revision: i64,
}

impl Slots {
    pub(super) fn new(slot_set: u8) -> Self {
        let free = (0..SLOTS).rev().map(|number| Slot { number, revision: 0 }).collect();
        Slots { slot_set, free: Mutex::new(free), permits: Semaphore::new(SLOTS.into()) }
    }

    pub(super) async fn take(&self, deadline: Instant) -> Result<HeldSlot<'_>, String> {
        let taken = within(deadline, self.permits.acquire()).await;
        let Ok(Ok(permit)) = taken else {
            return Err(format!("{SLOTS} writes are already waiting for etcd"));
        };
        let slot = self.free.lock().pop().expect("there are as many slots as permits");
        Ok(HeldSlot { slots: self, slot, _permit: permit })
    }
}

/// A slot that no other commit of this server uses meanwhile.
pub(super) struct HeldSlot<'a> {
    slots: &'a Slots,
    slot: Slot,
    // Released after the slot: fields are dropped after `drop` has run.
    _permit: SemaphorePermit<'a>,
}

impl HeldSlot<'_> {
    pub(super) fn id(&self) -> (u8, u8) {
        (self.slots.slot_set, self.slot.number)
    }

    pub(super) fn revision(&self) -> i64 {
        self.slot.revision
    }

    pub(super) fn set_revision(&mut self, revision: i64) {
        self.slot.revision = revision;
    }
}

impl Drop for HeldSlot<'_> {
    fn drop(&mut self) {
        // Also when a commit was cancelled. Its transaction may still happen: a delete then changes the slot's key,
        // which the next holder notices; a put changes nothing the next holder relies on.
        self.slots.free.lock().push(self.slot);
    }
}
