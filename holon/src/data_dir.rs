//! The data directory of a server. `--data-dir` means the same directory for every command.
//!
//! ```text
//!   <data dir>/store              the objects, unless they are in etcd
//!   <data dir>/pki                the certificate authority, and the serving certificate
//!   <data dir>/syncers            the state of the syncers in the server
//!   <data dir>/address            the address of the server
//!   <data dir>/admin.kubeconfig   the administrator's kubeconfig
//! ```
//!
//! `start`, `dev` and `store import` create it. Every other command requires it: a command that created the directory
//! of a mistyped path would succeed without an effect.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use apiserver::http::pki::Authority;
use storage::embedded::OpenError;

/// The file with the address of the server.
pub(crate) const ADDRESS: &str = "address";

pub(crate) fn store(data_dir: &Path) -> PathBuf {
    data_dir.join("store")
}

pub(crate) fn pki(data_dir: &Path) -> PathBuf {
    data_dir.join("pki")
}

/// Returns the directory, if it exists.
pub(crate) fn existing(data_dir: &Path) -> Result<&Path> {
    ensure!(
        data_dir.is_dir(),
        "no data directory at {dir}; give that of your server with --data-dir, or create one with `holon start --data-dir {dir}`",
        dir = data_dir.display()
    );
    Ok(data_dir)
}

/// Returns the certificate authority in a data directory. It is not created here: the server would not trust it.
pub(crate) fn authority(data_dir: &Path) -> Result<Authority> {
    Ok(Authority::existing(&pki(existing(data_dir)?))?)
}

/// Returns the address of the server that uses a data directory.
pub(crate) fn address(data_dir: &Path) -> Result<String> {
    let address = std::fs::read_to_string(existing(data_dir)?.join(ADDRESS));
    address.with_context(|| format!("no server has run in {}; give its --data-dir", data_dir.display()))
}

/// Returns the error of a store that does not open, with advice that names the data directory.
pub(crate) fn explain(data_dir: &Path, error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Damaged { damage, .. } => anyhow!(
            "the store in {dir} is damaged: {damage}. Nothing was removed. To keep the readable entries and accept the loss of \
             the others, run: holon store recover --data-dir {dir} --accept-loss",
            dir = data_dir.display()
        ),
        other => other.into(),
    }
}
