//! What the suites of this package share.

// Every test target compiles this module for itself and uses a part of it.
#![allow(dead_code)]

pub(crate) mod fleet;

use std::path::Path;

/// The path of the binary.
pub(crate) const HOLON: &str = env!("CARGO_BIN_EXE_holon");

/// Returns the root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
