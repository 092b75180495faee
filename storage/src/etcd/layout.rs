//! The layout of keys and values in etcd: format 1.
//!
//! ```text
//!   <prefix>/format                 "1"
//!   <prefix>/k/<key>                an entry ─┐
//!   <prefix>/l/barrier              empty     ├─ watched by every server
//!   <prefix>/l/compacted            decimal  ─┘
//!   <prefix>/s/<set>/<slot>         the last delete, or fence, that used the slot
//!
//!   an entry's value:  1 | 16 bytes: the id of its write | the value
//!   a slot's value:    0 fence, 1 delete | 16 bytes: the id of the write
//! ```
//!
//! `k/` and `l/` are neighbours, so that one watch on one range receives both and nothing else.

use bytes::Bytes;
use etcd_client::proto::PbKeyValue;

use crate::range::{Key, Range};
use crate::store::{Entry, Revision};

/// The only format. A store in another one is refused.
pub(super) const FORMAT: &[u8] = b"1";
const ENVELOPE: u8 = 1;
const ENVELOPE_BYTES: usize = 1 + size_of::<WriteId>();

/// Identifies one write for ever: a random number of the server, and a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WriteId([u8; 16]);

impl WriteId {
    pub(super) fn new(writer: u64, count: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&writer.to_be_bytes());
        bytes[8..].copy_from_slice(&count.to_be_bytes());
        WriteId(bytes)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Self {
        Layout { prefix: prefix.into() }
    }

    pub(super) fn format(&self) -> Vec<u8> {
        self.path("/format")
    }

    pub(super) fn barrier(&self) -> Vec<u8> {
        self.path("/l/barrier")
    }

    pub(super) fn compacted(&self) -> Vec<u8> {
        self.path("/l/compacted")
    }

    pub(super) fn slot(&self, slot_set: u8, slot: u8) -> Vec<u8> {
        self.path(&format!("/s/{slot_set:03}/{slot:03}"))
    }

    pub(super) fn entry(&self, key: &[u8]) -> Vec<u8> {
        let mut path = self.path("/k/");
        path.extend_from_slice(key);
        path
    }

    /// Returns the range of all entries: its start, and its end, which is excluded.
    pub(super) fn entries(&self) -> (Vec<u8>, Vec<u8>) {
        (self.path("/k/"), self.path("/k0"))
    }

    /// Returns the range of the entries of `range`: its start, and its end, which is excluded.
    pub(super) fn entries_of(&self, range: &Range) -> (Vec<u8>, Vec<u8>) {
        let end = range.end().map_or_else(|| self.path("/k0"), |end| self.entry(end.as_bytes()));
        (self.entry(range.start().as_bytes()), end)
    }

    /// Returns the range of entries and marks: its start, and its end, which is excluded.
    pub(super) fn watched(&self) -> (Vec<u8>, Vec<u8>) {
        (self.path("/k/"), self.path("/l0"))
    }

    /// Returns the store's key of an entry; none for a mark.
    pub(super) fn key(&self, path: &[u8]) -> Option<Key> {
        Some(path.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b"/k/")?.into())
    }

    /// Decodes an entry; none for a mark.
    pub(super) fn decode(&self, stored: PbKeyValue) -> Option<Stored> {
        let key = self.key(&stored.key)?;
        let (id, value) = open(stored.value.into());
        Some(Stored { id, entry: Entry::new(key, revision(stored.mod_revision), value) })
    }

    /// Decodes the entry in a response about one key.
    pub(super) fn entry_in(&self, found: Vec<PbKeyValue>) -> Option<Entry> {
        let stored = found.into_iter().next()?;
        Some(self.decode(stored)?.entry)
    }

    fn path(&self, rest: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), rest.as_bytes()].concat()
    }
}

/// An entry, and the id of its write.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) id: Option<WriteId>,
    pub(super) entry: Entry,
}

pub(super) fn seal(id: WriteId, value: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(ENVELOPE_BYTES + value.len());
    sealed.push(ENVELOPE);
    sealed.extend_from_slice(&id.0);
    sealed.extend_from_slice(value);
    sealed
}

/// Removes the envelope of a value. A value without one was written by another client and is returned as it is: its
/// readers report that it cannot be decoded, and it can be overwritten or deleted like any other.
fn open(sealed: Bytes) -> (Option<WriteId>, Bytes) {
    match sealed.split_first_chunk::<ENVELOPE_BYTES>() {
        Some(([ENVELOPE, id @ ..], _)) => {
            let id = WriteId(*id);
            (Some(id), sealed.slice(ENVELOPE_BYTES..))
        }
        _ => (None, sealed),
    }
}

/// The last use of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotUse {
    /// Transactions sent before with this slot cannot happen any more.
    Fence(WriteId),
    Delete(WriteId),
}

impl SlotUse {
    pub(super) fn encode(self) -> Vec<u8> {
        let (kind, id) = match self {
            SlotUse::Fence(id) => (0, id),
            SlotUse::Delete(id) => (1, id),
        };
        [&[kind][..], &id.0].concat()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first_chunk::<17>()? {
            ([0, id @ ..], _) => Some(SlotUse::Fence(WriteId(*id))),
            ([1, id @ ..], _) => Some(SlotUse::Delete(WriteId(*id))),
            _ => None,
        }
    }
}

/// Converts a revision of etcd, which is signed and never negative.
pub(super) fn revision(number: i64) -> Revision {
    Revision(number.max(0).cast_unsigned())
}

pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_and_marks_are_watched() {
        let layout = Layout::new("/holon");
        let (from, to) = layout.watched();
        let watched = |path: &[u8]| path >= &from[..] && path < &to[..];
        assert!(watched(&layout.entry(b"")) && watched(&layout.entry(&[255; 9])));
        assert!(watched(&layout.barrier()) && watched(&layout.compacted()));
        assert!(
            !watched(&layout.format()) && !watched(&layout.slot(0, 0)) && !watched(&layout.slot(255, 255))
        );
        assert_eq!(layout.key(&layout.entry(b"pods/a")), Some(Key::from("pods/a")));
        assert_eq!(layout.key(&layout.barrier()), None);
        assert_eq!(layout.key(b"/holonic/k/pods"), None);
    }

    #[test]
    fn ranges_contain_only_entries() {
        let layout = Layout::new("/h");
        let check = |range: Range, from: &[u8], to: &[u8]| {
            assert_eq!(layout.entries_of(&range), (from.to_vec(), to.to_vec()), "{range:?}");
        };
        check(Range::all(), b"/h/k/", b"/h/k0");
        check(Range::prefix("pods/"), b"/h/k/pods/", b"/h/k/pods0");
        check(Range::prefix(&[255][..]), b"/h/k/\xff", b"/h/k0");
        check(Range::key("a"), b"/h/k/a", b"/h/k/a\0");
    }

    #[test]
    fn an_envelope_returns_the_sealed_value_and_keeps_foreign_values() {
        let id = WriteId::new(7, 9);
        assert_eq!(open(seal(id, b"value").into()), (Some(id), Bytes::from("value")));
        assert_eq!(open(seal(id, b"").into()), (Some(id), Bytes::new()));
        for foreign in ["", "short", "\u{2}a value of some other format", "plain text of enough length"] {
            assert_eq!(open(Bytes::from(foreign)), (None, Bytes::from(foreign)));
        }
        for used in [SlotUse::Fence(id), SlotUse::Delete(id)] {
            assert_eq!(SlotUse::decode(&used.encode()), Some(used));
        }
        assert_eq!(SlotUse::decode(b""), None);
    }
}
