//! A consistent copy of a store at one revision, as a file.
//!
//! ```text
//!   "holon backup 1\n"
//!   frame: length: u32 | payload | checksum of payload: u64        (little endian, XXH3)
//!   first payload:  1 | revision: u64
//!   each entry:     2 | revision: u64 | key length: u16 | key | value
//!   last payload:   3 | entries: u64 | checksum over all frame checksums: u64
//! ```
//!
//! An export reads any store through its contract, page by page at one revision, while writes continue. An import
//! creates a new embedded store. Entries keep their revisions. New writes get revisions far beyond them, so that
//! clients with a revision of the old store get `Compacted` and list again.

use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::embedded::{self, OpenError};
use crate::range::{Key, Range};
use crate::store::{Entry, KEY_BYTES_MAX, Page, ReadError, Revision, Store, VALUE_BYTES_MAX};

const MAGIC: &[u8] = b"holon backup 1\n";
const PAGE_ENTRIES: usize = 1000;
const FRAME_BYTES_MAX: usize = KEY_BYTES_MAX + VALUE_BYTES_MAX + 16;
const HEAD: u8 = 1;
const ENTRY: u8 = 2;
const END: u8 = 3;

/// The result of an export or import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Of an export: the revision of the copy. Of an import: the revision after which the new store continues.
    pub revision: Revision,
    pub entries: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("cannot read the store: {0}")]
    Store(#[from] ReadError),
    #[error("cannot read or write the backup: {0}")]
    Io(#[from] io::Error),
    #[error("the backup is damaged or incomplete: {0}")]
    Damaged(&'static str),
    #[error("cannot create the store: {0}")]
    Open(#[from] OpenError),
}

/// Writes all entries of the store at one revision.
pub async fn export(store: &dyn Store, out: &mut (dyn Write + Send)) -> Result<Summary, BackupError> {
    out.write_all(MAGIC)?;
    let mut frames = FrameWriter { out, digest: Xxh3::new() };
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    let mut entries = 0;
    loop {
        let at = store.list(Range::all(), page.clone()).await?;
        if page.at.is_none() {
            frames.write(&[&[HEAD], &at.revision.0.to_le_bytes()])?;
        }
        for entry in &at.value.entries {
            let key = entry.key().as_bytes();
            let key_len = u16::try_from(key.len()).map_err(|_| BackupError::Damaged("a key is too long"))?;
            let revision = entry.revision().0.to_le_bytes();
            frames.write(&[&[ENTRY], &revision, &key_len.to_le_bytes(), key, entry.value()])?;
            entries += 1;
        }
        if !at.value.more {
            let digest = frames.digest.digest();
            frames.write(&[&[END], &u64::to_le_bytes(entries), &digest.to_le_bytes()])?;
            out.flush()?;
            return Ok(Summary { revision: at.revision, entries });
        }
        page.after = at.value.entries.last().map(|entry| entry.key().clone());
        page.at = Some(at.revision);
    }
}

struct FrameWriter<'a> {
    out: &'a mut (dyn Write + Send),
    digest: Xxh3,
}

impl FrameWriter<'_> {
    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let payload = parts.concat();
        let check = xxh3_64(&payload).to_le_bytes();
        self.digest.update(&check);
        self.out.write_all(&(payload.len() as u32).to_le_bytes())?;
        self.out.write_all(&payload)?;
        self.out.write_all(&check)
    }
}

/// Creates a store from a backup in `dir`, which must not contain one.
pub fn import(dir: &Path, input: &mut dyn Read) -> Result<Summary, BackupError> {
    let mut magic = [0; MAGIC.len()];
    input.read_exact(&mut magic).map_err(|_| BackupError::Damaged("it is too short"))?;
    if magic != MAGIC {
        return Err(BackupError::Damaged("not a backup of this version"));
    }
    let mut frames = FrameReader {
        input,
        digest: Xxh3::new(),
        entries: 0,
        revision: Revision::ZERO,
        last: None,
        ended: false,
    };
    let head = frames.frame()?;
    frames.revision = match head.split_first() {
        Some((&HEAD, revision)) => Revision(u64::from_le_bytes(
            revision.try_into().map_err(|_| BackupError::Damaged("its head is malformed"))?,
        )),
        _ => return Err(BackupError::Damaged("it has no head")),
    };
    let revision = frames.revision;
    let mut entries = 0;
    // The store continues later than the revision of the backup: its clients may have revisions from in between.
    let revision = embedded::create(dir, revision, frames.inspect(|_| entries += 1))??;
    Ok(Summary { revision, entries })
}

struct FrameReader<'a> {
    input: &'a mut dyn Read,
    digest: Xxh3,
    entries: u64,
    revision: Revision,
    /// The last key that was read. Keys are sorted and unique.
    last: Option<Key>,
    ended: bool,
}

impl FrameReader<'_> {
    fn frame(&mut self) -> Result<Vec<u8>, BackupError> {
        let cut = |_| BackupError::Damaged("the file is truncated");
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(cut)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(BackupError::Damaged("an entry is too long"));
        }
        let mut payload = vec![0; len];
        self.input.read_exact(&mut payload).map_err(cut)?;
        let mut check = [0; 8];
        self.input.read_exact(&mut check).map_err(cut)?;
        if check != xxh3_64(&payload).to_le_bytes() {
            return Err(BackupError::Damaged("a checksum does not match"));
        }
        if payload.first() != Some(&END) {
            self.digest.update(&check);
        }
        Ok(payload)
    }

    /// Returns the next entry; none after a proper end.
    fn entry(&mut self) -> Result<Option<Entry>, BackupError> {
        let malformed = || BackupError::Damaged("an entry is malformed");
        let payload = self.frame()?;
        let (kind, rest) = payload.split_first().ok_or_else(malformed)?;
        let (number, rest) = rest.split_first_chunk::<8>().ok_or_else(malformed)?;
        let number = u64::from_le_bytes(*number);
        match *kind {
            ENTRY => {
                let (key_len, rest) = rest.split_first_chunk::<2>().ok_or_else(malformed)?;
                let key_len = usize::from(u16::from_le_bytes(*key_len));
                let (key, value) = rest.split_at_checked(key_len).ok_or_else(malformed)?;
                if number == 0 || Revision(number) > self.revision {
                    return Err(BackupError::Damaged("an entry is newer than the backup"));
                }
                let key = Key::from(key);
                if key_len > KEY_BYTES_MAX || self.last.as_ref().is_some_and(|last| key <= *last) {
                    return Err(BackupError::Damaged("keys are not in order"));
                }
                self.last = Some(key.clone());
                self.entries += 1;
                Ok(Some(Entry::new(key, Revision(number), Bytes::copy_from_slice(value))))
            }
            END if number == self.entries && rest == self.digest.digest().to_le_bytes() => Ok(None),
            END => Err(BackupError::Damaged("entries are missing")),
            _ => Err(malformed()),
        }
    }
}

impl Iterator for FrameReader<'_> {
    type Item = Result<Entry, BackupError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.entry().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}
