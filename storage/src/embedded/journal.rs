//! Inspects fjall's journals before fjall opens them.
//!
//! fjall truncates a journal at the first unreadable byte. For a tail torn by a crash that is right. For a damaged byte
//! in the middle it would silently drop every acknowledged write behind it. So before a database is opened, this module
//! reads its journals and distinguishes the two.
//!
//! The writer writes one batch at a time and waits until it is durable. So a crash can only tear the last batch, and
//! **a readable batch behind an unreadable one means damage**, not a crash.
//!
//! ```text
//!   batch:  start | item … | end
//!   start:  1 | items: u32 | sequence: u64
//!   item:   2 | type: u8 | compression: u8 | keyspace: u64 | key: u16 | value: u32 | stored: u32 | bytes
//!   clear:  4 | keyspace: u64
//!   end:    3 | checksum over items: u64 | "FJL\x03"
//! ```
//!
//! This is fjall's format 3, as written by the pinned version of the crate; a test reads a journal that fjall wrote.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::store::Revision;

/// A complete batch with a matching checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub(super) end: usize,
    sequence: u64,
    pub(super) items: Vec<Item>,
}

/// A value and its key; removals are not items.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Item {
    pub(super) key: Vec<u8>,
    pub(super) value: std::ops::Range<usize>,
}

impl Item {
    /// Returns the revision of a record. The key of a record is its revision; the key of the base is shorter.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.key.as_slice().try_into().ok().map(|bytes| Revision(u64::from_be_bytes(bytes)))
    }
}

/// The contents of one journal file.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
    pub(super) batches: Vec<Batch>,
    pub(super) tail: Tail,
}

/// What follows the last batch that can be read from the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// Nothing, or the zeros of a preallocated file.
    Clean,
    /// One incomplete batch: a crash while writing.
    Torn { at: usize },
    /// Unreadable bytes with readable batches behind them.
    Damaged { at: usize, behind: Vec<Batch> },
}

impl Journal {
    pub(super) fn read(path: &Path) -> io::Result<Journal> {
        let mut bytes = Vec::new();
        let file = File::open(path)?;
        let end = end_of_data(&file)?;
        file.take(end).read_to_end(&mut bytes)?;
        // Trailing zeros are padding. A batch never ends in a zero, so nothing of it is lost here.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes.truncate(used);
        let (batches, tail) = scan(&bytes);
        Ok(Journal { path: path.to_owned(), bytes, batches, tail })
    }

    /// Reads all journals of a database, oldest first.
    pub(super) fn read_all(database: &Path) -> io::Result<Vec<Journal>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(database)? {
            let path = entry?.path();
            let number = |path: &Path| path.file_stem()?.to_str()?.parse::<u64>().ok();
            if path.extension().is_some_and(|extension| extension == "jnl")
                && let Some(number) = number(&path)
            {
                paths.push((number, path));
            }
        }
        paths.sort();
        paths.iter().map(|(_, path)| Journal::read(path)).collect()
    }

    /// Makes the next read come from the disk instead of the page cache, as far as the system allows.
    pub(super) fn forget_cached(&self) -> io::Result<()> {
        Ok(rustix::fs::fadvise(File::open(&self.path)?, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    /// Returns the newest revision among the readable batches.
    pub(super) fn newest(&self) -> Option<Revision> {
        self.batches.iter().rev().flat_map(|batch| batch.items.iter().filter_map(Item::revision)).max()
    }

    /// Reports whether the journal has anything later than `revision`, or unreadable bytes.
    pub(super) fn exceeds(&self, revision: Revision) -> bool {
        self.tail != Tail::Clean || self.newest().is_some_and(|newest| newest > revision)
    }

    /// Returns where to truncate so that nothing after `revision` remains.
    pub(super) fn end_of(&self, revision: Revision) -> usize {
        let within =
            |batch: &&Batch| batch.items.iter().filter_map(Item::revision).all(|found| found <= revision);
        self.batches.iter().take_while(within).last().map_or(0, |batch| batch.end)
    }
}

/// Returns where the last written block of a file ends. fjall preallocates journals of 64 MiB; reading that many zeros
/// would take half of a small store's start-up.
fn end_of_data(file: &File) -> io::Result<u64> {
    use rustix::fs::{SeekFrom, seek};
    let mut end = 0;
    loop {
        let hole = seek(file, SeekFrom::Data(end)).and_then(|data| seek(file, SeekFrom::Hole(data)));
        match hole {
            Ok(hole) => end = hole,
            Err(rustix::io::Errno::NXIO) => break,
            // A file system without holes.
            Err(_) => {
                end = file.metadata()?.len();
                break;
            }
        }
    }
    seek(file, SeekFrom::Start(0))?;
    Ok(end)
}

fn scan(bytes: &[u8]) -> (Vec<Batch>, Tail) {
    let (batches, at) = batches_from(bytes, 0, 0);
    if at == bytes.len() {
        return (batches, Tail::Clean);
    }
    // From `at` itself: a readable batch whose sequence number decreases is damage too. And beyond further unreadable
    // bytes: every readable batch may be needed.
    let (mut behind, mut from) = (Vec::new(), at);
    while let Some(candidate) = (from..bytes.len()).find(|candidate| bytes[*candidate] == START) {
        let (found, end) = batches_from(bytes, candidate, 0);
        from = if found.is_empty() { candidate + 1 } else { end };
        behind.extend(found);
    }
    let tail = if behind.is_empty() { Tail::Torn { at } } else { Tail::Damaged { at, behind } };
    (batches, tail)
}

/// Reads batches with increasing sequence numbers from `at`, and returns them with their end.
fn batches_from(bytes: &[u8], mut at: usize, mut sequence: u64) -> (Vec<Batch>, usize) {
    let mut batches = Vec::new();
    while let Some(batch) = (Reader { bytes, at }).batch() {
        if batch.sequence < sequence {
            break;
        }
        sequence = batch.sequence + 1;
        at = batch.end;
        batches.push(batch);
    }
    (batches, at)
}

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";
const VALUE: u8 = 0;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn number<const N: usize>(&mut self) -> Option<u64> {
        let mut wide = [0; 8];
        wide[..N].copy_from_slice(self.take(N)?);
        Some(u64::from_le_bytes(wide))
    }

    fn batch(mut self) -> Option<Batch> {
        if self.u8()? != START {
            return None;
        }
        let count = self.number::<4>()?;
        let sequence = self.number::<8>()?;
        // Leaves room for increments; no real sequence number is near it.
        if sequence >= u64::MAX / 2 {
            return None;
        }
        let mut checksum = Xxh3::new();
        let mut items = Vec::new();
        for _ in 0..count {
            let from = self.at;
            items.extend(self.item()?);
            checksum.update(&self.bytes[from..self.at]);
        }
        if self.u8()? != END
            || self.number::<8>()? != checksum.digest()
            || self.take(TRAILER.len())? != TRAILER
        {
            return None;
        }
        Some(Batch { end: self.at, sequence, items })
    }

    /// Reads an item. The outer `None` means unreadable, the inner one that it is not a value.
    fn item(&mut self) -> Option<Option<Item>> {
        match self.u8()? {
            ITEM => {
                let kind = self.u8()?;
                let _compression = self.u8()?;
                let _keyspace = self.number::<8>()?;
                let key_len = self.number::<2>()? as usize;
                let _value_len = self.number::<4>()?;
                let stored_len = self.number::<4>()? as usize;
                let key = self.take(key_len)?.to_vec();
                let from = self.at;
                self.take(stored_len)?;
                Some((kind == VALUE).then_some(Item { key, value: from..self.at }))
            }
            CLEAR => self.number::<8>().map(|_| None),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fjall::{Database, KeyspaceCreateOptions, PersistMode};

    #[test]
    fn every_readable_batch_behind_damaged_ones_is_recovered() {
        let (_dir, path) = written();
        let journal = Journal::read(&path).unwrap();
        let mut bytes = journal.bytes.clone();
        for bad in [journal.batches[0].end - 3, journal.batches[2].end - 3] {
            bytes[bad] ^= 1;
        }
        let (batches, Tail::Damaged { at: 0, behind }) = scan(&bytes) else { panic!("{:?}", scan(&bytes)) };
        let revisions: Vec<_> = behind.iter().filter_map(|batch| batch.items[0].revision()).collect();
        assert_eq!((batches.len(), revisions), (0, vec![Revision(3), Revision(5)]));
    }

    /// Writes a journal with fjall: four batches, the first with two items.
    fn written() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let database =
            Database::builder(dir.path()).journal_compression(fjall::CompressionType::None).open().unwrap();
        let history = database.keyspace("history", KeyspaceCreateOptions::default).unwrap();
        for revision in [1u64, 3, 4, 5] {
            let mut batch = database.batch().durability(Some(PersistMode::SyncData));
            batch.insert(&history, revision.to_be_bytes(), format!("value {revision}"));
            if revision == 1 {
                batch.insert(&history, 2u64.to_be_bytes(), "value 2");
                batch.remove(&history, "old");
            }
            batch.commit().unwrap();
        }
        drop((history, database));
        let path = dir.path().join("0.jnl");
        (dir, path)
    }

    #[test]
    fn journals_written_by_fjall_are_read() {
        let (_dir, path) = written();
        let journal = Journal::read(&path).unwrap();
        assert_eq!(journal.tail, Tail::Clean);
        let revisions: Vec<Vec<_>> = journal
            .batches
            .iter()
            .map(|batch| batch.items.iter().filter_map(Item::revision).collect())
            .collect();
        let expected =
            [&[1, 2][..], &[3], &[4], &[5]].map(|batch| batch.iter().map(|r| Revision(*r)).collect());
        assert_eq!(revisions, expected.to_vec() as Vec<Vec<Revision>>);
        let value = &journal.bytes[journal.batches[1].items[0].value.clone()];
        assert_eq!(value, b"value 3");
        assert_eq!(journal.newest(), Some(Revision(5)));
        assert_eq!(journal.end_of(Revision(3)), journal.batches[1].end);
        assert_eq!(journal.end_of(Revision(0)), 0);
    }

    #[test]
    fn a_tail_cut_anywhere_is_torn_and_never_damaged() {
        let (_dir, path) = written();
        let journal = Journal::read(&path).unwrap();
        let last = journal.batches[2].end;
        for cut in last + 1..journal.bytes.len() {
            let (batches, tail) = scan(&journal.bytes[..cut]);
            assert_eq!((batches.len(), tail), (3, Tail::Torn { at: last }), "cut at {cut}");
        }
    }

    #[test]
    fn any_flipped_bit_in_the_middle_is_damage() {
        let (_dir, path) = written();
        let journal = Journal::read(&path).unwrap();
        let last = journal.batches[2].end;
        for bit in 0..last * 8 {
            let mut bytes = journal.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (batches, tail) = scan(&bytes);
            // The sequence number is outside fjall's checksum; a damaged one that still increases is not noticed.
            if batches.len() < 4 {
                assert!(
                    matches!(tail, Tail::Damaged { .. }),
                    "bit {bit}: {} batches, {tail:?}",
                    batches.len()
                );
            }
        }
    }
}
