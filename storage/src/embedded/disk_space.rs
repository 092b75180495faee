//! Free space on the file system.

use std::io::Write;
use std::path::Path;

use rustix::fs::statvfs;

/// Returns how many bytes this process may still write. If unknown, returns no limit: a failed write is handled anyway.
pub(super) fn free_bytes(path: &Path) -> u64 {
    match statvfs(path) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => {
            tracing::debug!(%error, "cannot read the free space of the file system");
            u64::MAX
        }
    }
}

/// Reports whether a write succeeds: quotas and thin volumes are not part of the free space.
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
