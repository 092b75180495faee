//! Access to a store's files from outside of the store.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Copies a directory, without the zeros at the end of preallocated journals.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if let Ok(mut bytes) = std::fs::read(entry.path()) {
            if is_journal(&target) {
                bytes.truncate(last_used(&bytes));
            }
            std::fs::write(&target, &bytes).unwrap();
        }
    }
}

fn is_journal(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jnl")
}

/// Returns the newest journal of the store in `dir`.
pub fn journal(dir: &Path) -> PathBuf {
    let number = |path: &PathBuf| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
    let journals = files(&dir.join("log")).into_iter().filter(|path| is_journal(path));
    journals.max_by_key(number).unwrap()
}

/// Returns every file below `dir`, in a stable order.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// Returns the length of a file without its padding.
pub fn used(path: &Path) -> usize {
    last_used(&std::fs::read(path).unwrap())
}

fn last_used(bytes: &[u8]) -> usize {
    // Whole pages first, because 64 million comparisons are slow in a debug build.
    let pages =
        bytes.chunks(4096).rposition(|page| page != &[0; 4096][..page.len()]).map_or(0, |last| last + 1);
    let bytes = &bytes[..bytes.len().min(pages * 4096)];
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Flips one bit of the byte at `at`.
pub fn flip(path: &Path, at: usize) {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, at as u64).unwrap();
    byte[0] ^= 1 << (at % 8);
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&byte, at as u64).unwrap();
}
