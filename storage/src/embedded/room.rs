//! How much room the file system has left.

use std::path::Path;

use rustix::fs::statvfs;

/// Bytes this process may still write. Unknown counts as plenty: a write that does fail is handled anyway.
pub(super) fn free_bytes(path: &Path) -> u64 {
    match statvfs(path) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            tracing::debug!(%error, "cannot ask for free room");
            u64::MAX
        }
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
