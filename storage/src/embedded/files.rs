//! The small files beside the log: FORMAT, LOCK and MARK.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::OpenError;
use super::layout::FORMAT;
use crate::store::Revision;

/// Creates the data directory, readable only by its owner: it will contain the Secrets of all users.
pub(super) fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.exists() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // The name of the directory is durable once its parent is synced.
    dir.canonicalize()?.parent().map_or(Ok(()), sync_dir)
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes all names below a directory durable.
pub(super) fn sync_tree(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        }
    }
    sync_dir(dir)
}

/// Opens a small file, or creates an empty one.
fn open(path: &Path) -> Result<File, OpenError> {
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    options.map_err(|source| OpenError::io("open", path, source))
}

/// A lock held while the store is open. The kernel releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn take(dir: &Path) -> Result<Lock, OpenError> {
        let path = dir.join("LOCK");
        let mut file = open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(OpenError::InUse { dir: dir.to_owned(), holder: holder.trim().to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(OpenError::io("lock", &path, source)),
        }
        // The process id, for the error message of the next process. On a full disk the file stays empty, but the lock
        // holds.
        let holder = format!("{}\n", std::process::id());
        let _ = file.set_len(0).and_then(|()| file.write_all(holder.as_bytes()));
        Ok(Lock { _file: file })
    }
}

/// Writes FORMAT into a new directory, or refuses a directory of another program or version.
pub(super) fn check_format(dir: &Path, has_log: bool) -> Result<(), OpenError> {
    let path = dir.join("FORMAT");
    match std::fs::read_to_string(&path) {
        Ok(found) if found == FORMAT => Ok(()),
        Ok(found) => Err(OpenError::Format { dir: dir.to_owned(), found: found.trim().to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !has_log => {
            write_durably(&path, FORMAT.as_bytes()).map_err(|source| OpenError::io("write", &path, source))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(OpenError::Format { dir: dir.to_owned(), found: "no FORMAT file".to_owned() })
        }
        Err(source) => Err(OpenError::io("read", &path, source)),
    }
}

/// Replaces a file atomically: after a crash it has either its old or its new contents.
pub(super) fn write_durably(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// The newest acknowledged revision, written after each batch is durable and before it is acknowledged.
///
/// It is not synced: it survives `kill -9`, and after power loss it may be older than the log but never newer. So a log
/// that ends before the mark has lost an acknowledged write.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    next_slot: u64,
}

const SLOT: u64 = 16;

impl Mark {
    pub(super) fn open(dir: &Path) -> Result<(Mark, Revision), OpenError> {
        let path = dir.join("MARK");
        let file = open(&path)?;
        let mut slots = [Revision::ZERO; 2];
        for (slot, revision) in slots.iter_mut().enumerate() {
            let mut bytes = [0; SLOT as usize];
            if file.read_exact_at(&mut bytes, slot as u64 * SLOT).is_ok() {
                *revision = decode(&bytes).unwrap_or_default();
            }
        }
        let next_slot = if slots[0] > slots[1] { 1 } else { 0 };
        Ok((Mark { file, next_slot }, slots[0].max(slots[1])))
    }

    /// Writes the mark. Alternates between the slots, so that a torn write leaves the other slot intact.
    pub(super) fn set(&mut self, revision: Revision) -> io::Result<()> {
        let number = revision.0.to_le_bytes();
        let mut bytes = [0; SLOT as usize];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&xxh3_64(&number).to_le_bytes());
        self.file.write_all_at(&bytes, self.next_slot * SLOT)?;
        self.next_slot = 1 - self.next_slot;
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn decode(bytes: &[u8; SLOT as usize]) -> Option<Revision> {
    let (number, check) = bytes.split_first_chunk::<8>()?;
    (check == xxh3_64(number).to_le_bytes()).then(|| Revision(u64::from_le_bytes(*number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_one_damaged_slot() {
        let dir = tempfile::tempdir().unwrap();
        let (mut mark, found) = Mark::open(dir.path()).unwrap();
        assert_eq!(found, Revision::ZERO);
        for revision in [7, 8, 9] {
            mark.set(Revision(revision)).unwrap();
        }
        let (mut mark, found) = Mark::open(dir.path()).unwrap();
        assert_eq!(found, Revision(9));
        mark.set(Revision(10)).unwrap();
        for at in 0..2 * SLOT {
            let (path, mut bytes) = (dir.path().join("MARK"), [0; 1]);
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            file.read_exact_at(&mut bytes, at).unwrap();
            file.write_all_at(&[bytes[0] ^ 4], at).unwrap();
            let (_, found) = Mark::open(dir.path()).unwrap();
            assert!(found == Revision(9) || found == Revision(10), "{found:?} with byte {at} damaged");
            file.write_all_at(&bytes, at).unwrap();
        }
    }
}
