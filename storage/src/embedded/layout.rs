//! The layout of the files, byte by byte. docs/storage-format.md describes the same in prose.
//!
//! ```text
//!   <data dir>/
//!     FORMAT     "holon store 1\n"
//!     LOCK       locked by the process that has the store open; contains its pid
//!     MARK       two slots of 16 bytes: the newest acknowledged revision, and its checksum
//!     log/       a fjall database with two keyspaces
//!       history    revision (8 bytes, big endian)  ->  record
//!       base       "base"                          ->  base
//! ```
//!
//! A record is one change. The store consists only of records: the current entries are the newest record of each key,
//! history is all records. Compaction through a revision C removes every record that was replaced at or before C, and
//! the records of deletions. The base describes the remaining records at or before C: their number, and a sum over
//! their revisions. So three checks at start-up detect every loss:
//!
//! * after C there is a record for every revision;
//! * at or before C, number and sum agree with the base;
//! * the newest revision is not older than the MARK.

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::range::Key;
use crate::store::Revision;

/// The format that this version reads and writes. A change of layout gets a new number and an upgrade path.
pub(super) const FORMAT: &str = "holon store 1\n";
pub(super) const HISTORY: &str = "history";
pub(super) const BASE: &str = "base";

/// One change, as stored.
///
/// ```text
///   check: u64 | kind: u8 | previous: u64 | key length: u16 | key | value
/// ```
///
/// `check` is XXH3 over the rest, seeded with the revision, so that a record under another revision is invalid. All
/// integers are little endian.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) key: Key,
    /// `None` if the key was deleted.
    pub(super) value: Option<Bytes>,
    /// The revision of the record this one replaced; zero if the key was absent.
    pub(super) previous: Revision,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const HEADER: usize = 8 + 1 + 8 + 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(&'static str);

impl Record {
    pub(super) fn encode(revision: Revision, key: &Key, value: Option<&[u8]>, previous: Revision) -> Bytes {
        let key = key.as_bytes();
        // `check_size` bounds keys to 8 KiB, far below what 16 bits can hold.
        let key_len = u16::try_from(key.len()).expect("keys are bounded by KEY_BYTES_MAX");
        let mut bytes = Vec::with_capacity(HEADER + key.len() + value.map_or(0, <[u8]>::len));
        bytes.extend_from_slice(&[0; 8]);
        bytes.push(if value.is_some() { PUT } else { DELETE });
        bytes.extend_from_slice(&previous.0.to_le_bytes());
        bytes.extend_from_slice(&key_len.to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value.unwrap_or_default());
        let check = xxh3_64_with_seed(&bytes[8..], revision.0);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        bytes.into()
    }

    /// Decodes a record. Copies key and value, so that they do not keep the block they were read from in memory.
    pub(super) fn decode(revision: Revision, bytes: &[u8]) -> Result<Record, Malformed> {
        let head = Head::decode(revision, bytes)?;
        let cut_short = Malformed("record cut short");
        let (key_len, rest) = bytes[HEADER - 2..].split_first_chunk::<2>().ok_or(cut_short)?;
        let (key, value) =
            rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len))).ok_or(cut_short)?;
        let value = head.is_put.then(|| Bytes::copy_from_slice(value));
        Ok(Record { key: key.into(), value, previous: head.previous })
    }
}

/// A record without its key and value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) is_put: bool,
    pub(super) previous: Revision,
    /// The size of the whole record.
    pub(super) bytes: usize,
}

impl Head {
    pub(super) fn decode(revision: Revision, bytes: &[u8]) -> Result<Head, Malformed> {
        let (check, rest) = bytes.split_first_chunk::<8>().ok_or(Malformed("record cut short"))?;
        if u64::from_le_bytes(*check) != xxh3_64_with_seed(rest, revision.0) {
            return Err(Malformed("record checksum does not match"));
        }
        let (kind, rest) = rest.split_first_chunk::<1>().ok_or(Malformed("record cut short"))?;
        let (previous, _) = rest.split_first_chunk::<8>().ok_or(Malformed("record cut short"))?;
        let is_put = match kind[0] {
            PUT => true,
            DELETE => false,
            _ => return Err(Malformed("record of unknown kind")),
        };
        Ok(Head { is_put, previous: Revision(u64::from_le_bytes(*previous)), bytes: bytes.len() })
    }
}

/// The start of the kept history, and a description of the records before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Base {
    /// Changes at or before this revision are compacted.
    pub(super) compacted: Revision,
    /// The number of remaining records at or before it: the entries that were current then.
    count: u64,
    /// The wrapping sum of a hash of each remaining record's revision.
    sum: u64,
}

impl Base {
    pub(super) fn at(compacted: Revision) -> Base {
        Base { compacted, count: 0, sum: 0 }
    }

    pub(super) fn add(&mut self, revision: Revision) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(xxh3_64(&revision.0.to_le_bytes()));
    }

    pub(super) fn remove(&mut self, revision: Revision) {
        self.count = self.count.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(xxh3_64(&revision.0.to_le_bytes()));
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn encode(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.compacted.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sum.to_le_bytes());
        let check = xxh3_64(&bytes[..24]);
        bytes[24..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Base, Malformed> {
        let bytes: &[u8; 32] = bytes.try_into().map_err(|_| Malformed("base of wrong length"))?;
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if number(24) != xxh3_64(&bytes[..24]) {
            return Err(Malformed("base checksum does not match"));
        }
        Ok(Base { compacted: Revision(number(0)), count: number(8), sum: number(16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_round_trip_and_detect_any_flipped_bit(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)),
            previous: u64, revision: u64, at: prop::sample::Index, bit in 0..8u8,
        ) {
            let (key, previous, revision) = (Key::from(key), Revision(previous), Revision(revision));
            let bytes = Record::encode(revision, &key, value.as_deref(), previous);
            let record = Record { key, value: value.map(Bytes::from), previous };
            prop_assert_eq!(Record::decode(revision, &bytes), Ok(record));

            let mut damaged = bytes.to_vec();
            let at = at.index(damaged.len());
            damaged[at] ^= 1 << bit;
            prop_assert!(Record::decode(revision, &damaged).is_err());
            prop_assert!(Record::decode(Revision(revision.0 ^ 1), &bytes).is_err());
            prop_assert!(Record::decode(revision, &bytes[..at]).is_err());
        }
    }

    #[test]
    fn a_base_detects_additional_missing_and_exchanged_records() {
        let of = |revisions: &[u64]| {
            let mut base = Base::at(Revision(9));
            revisions.iter().for_each(|revision| base.add(Revision(*revision)));
            base
        };
        let base = of(&[1, 5, 7]);
        assert_eq!(Base::decode(&base.encode()), Ok(base));
        assert_eq!(of(&[7, 1, 5]), base);
        for other in [&[1, 5][..], &[1, 5, 7, 8], &[1, 5, 8], &[2, 4, 7]] {
            assert_ne!(of(other), base);
        }
        let mut removed = of(&[1, 5, 7, 8]);
        removed.remove(Revision(8));
        assert_eq!(removed, base);
        for bit in 0..256 {
            let mut bytes = base.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Base::decode(&bytes).is_err());
        }
    }
}
