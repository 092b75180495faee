//! The data directory of a server. `--data-dir` means the same directory for every command.
//!
//! ```text
//!   <data dir>/store              the objects, unless they are in etcd
//!   <data dir>/pki                the certificate authority, and what the server shows
//!   <data dir>/syncers            what the syncers in this process keep
//!   <data dir>/address            where the server is reached
//!   <data dir>/admin.kubeconfig   for the administrator
//! ```
//!
//! `start`, `dev` and `store import` make one. Every other command works on one that exists: a command that made the
//! directory of a mistyped path would succeed and change nothing that anybody uses.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use apiserver::pki::Authority;
use storage::embedded::OpenError;

/// The file that says where the server is reached.
pub(crate) const ADDRESS: &str = "address";

pub(crate) fn store(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

pub(crate) fn pki(data_dir: &Path) -> PathBuf {
    data_dir.join("pki")
}

/// The same directory, if it exists.
pub(crate) fn existing(data_dir: &Path) -> Result<&Path> {
    ensure!(
        data_dir.is_dir(),
        "no data directory at {dir}; name the one of your server with --data-dir, or make one with `holon start --data-dir {dir}`",
        dir = data_dir.display()
    );
    Ok(data_dir)
}

/// The authority of the server of a directory, which is never made here: no server would know it.
pub(crate) fn authority(data_dir: &Path) -> Result<Authority> {
    Ok(Authority::existing(&pki(existing(data_dir)?))?)
}

/// Where the server of a directory says that it is.
pub(crate) fn address(data_dir: &Path) -> Result<String> {
    let said = std::fs::read_to_string(existing(data_dir)?.join(ADDRESS));
    said.with_context(|| format!("no server has run in {}; name its --data-dir", data_dir.display()))
}

/// Why the store of a directory does not open. The storage layer knows the store's own directory; commands take the one
/// above it.
pub(crate) fn explain(data_dir: &Path, error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Damaged { damage, .. } => anyhow!(
            "the store in {dir} is damaged: {damage}. Nothing was removed. To keep what is readable and accept the loss of \
             the rest, run: holon store recover --data-dir {dir} --accept-loss",
            dir = data_dir.display()
        ),
        other => other.into(),
    }
}
