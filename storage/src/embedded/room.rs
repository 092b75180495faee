//! How much room the file system has left.

use std::io::Write;
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

/// Whether writing really works: quotas and thin volumes do not show in the figures.
pub(super) fn can_grow(path: &Path) -> bool {
    const TRIAL_BYTES: usize = 1 << 20;
    let trial = path.join("trial.tmp");
    let written = std::fs::File::create(&trial)
        .and_then(|mut file| file.write_all(&vec![b'.'; TRIAL_BYTES]).and_then(|()| file.sync_all()));
    let removed = std::fs::remove_file(&trial);
    written.and(removed).is_ok()
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
