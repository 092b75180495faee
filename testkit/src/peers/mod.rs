//! Programs of other projects that tests and benchmarks run: kubectl, etcd, a whole Kubernetes.
//!
//! `hack/peers` installs them. A test that needs one is marked `#[ignore = "needs etcd"]`: `cargo test` reports it as
//! ignored, and `cargo test -- --ignored` runs it. Without the program it fails. Every server that this module starts
//! listens on a port of its own and ends when its value is dropped.

pub mod cluster;
pub mod etcd;
pub mod proxy;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use cluster::Cluster;
pub use etcd::Etcd;
pub use proxy::{Answer, Proxy, Request};

/// Returns the program `name`. Panics if it is not installed.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    let Some(path) = find(name) else { panic!("{name} is not installed; run hack/peers") };
    path
}

/// Returns the program `name`, if it is installed. For benchmarks; a test calls [`program`].
pub fn find(name: &str) -> Option<PathBuf> {
    Some(bin_dir().join(name)).filter(|path| path.exists())
}

/// Returns a loopback port that is free at the moment and was not returned before in this process. With the same port,
/// each of two tests would take the other's peer for its own: the first listens there, and the second finds that it
/// answers.
pub fn free_port() -> u16 {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound port").port();
        if RETURNED.lock().unwrap_or_else(PoisonError::into_inner).insert(port) {
            return port;
        }
    }
}

/// Returns a script of the checkout that the tests run in: cargo runs a test in the directory of its crate. The
/// compiled-in path may belong to another checkout, where two share a target directory.
pub fn hack(script: &str) -> PathBuf {
    let current_dir = std::env::current_dir().unwrap_or_default();
    let found = current_dir.ancestors().map(|dir| dir.join("hack").join(script)).find(|path| path.exists());
    found.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("hack").join(script))
}

/// Returns the directory into which `hack/peers` installs programs.
fn bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("HOLON_PEERS") {
        return PathBuf::from(dir).join("bin");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    cache.unwrap_or_else(home).join("holon/peers/bin")
}
