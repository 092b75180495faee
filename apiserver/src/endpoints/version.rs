//! `/version`: the version of Kubernetes that the API is compatible with, and the build of Holon.
//!
//! The program passes the commit it was built from. A release build may set `HOLON_BUILD_DATE` and
//! `HOLON_GIT_TREE_STATE`; other builds report placeholders.

use serde_json::{Value, json};

/// The version of the Kubernetes API. Charts compare it, and kubectl warns if it differs too much from its own.
const KUBERNETES: [&str; 2] = ["1", "36"];
/// The oldest version that clients may assume.
const COMPATIBLE: [&str; 2] = ["1", "35"];
const GIT_VERSION: &str = concat!("v1.36.4+holon-", env!("CARGO_PKG_VERSION"));
/// The version of Holon.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The epoch stands for an unknown date, because clients parse the field.
const BUILD_DATE: &str = or(option_env!("HOLON_BUILD_DATE"), "1970-01-01T00:00:00Z");
const TREE_STATE: &str = or(option_env!("HOLON_GIT_TREE_STATE"), "");
/// The compiler, where Kubernetes reports its Go version.
pub(crate) const LANGUAGE: &str = concat!("rust", env!("HOLON_RUSTC_VERSION"));

const fn or(known: Option<&'static str>, otherwise: &'static str) -> &'static str {
    match known {
        Some(known) => known,
        None => otherwise,
    }
}

/// Returns the document of `/version`.
pub(crate) fn document(commit: &str) -> Value {
    json!({
        "major": KUBERNETES[0],
        "minor": KUBERNETES[1],
        "emulationMajor": KUBERNETES[0],
        "emulationMinor": KUBERNETES[1],
        "minCompatibilityMajor": COMPATIBLE[0],
        "minCompatibilityMinor": COMPATIBLE[1],
        "gitVersion": GIT_VERSION,
        "gitCommit": commit,
        "gitTreeState": TREE_STATE,
        "buildDate": BUILD_DATE,
        "goVersion": LANGUAGE,
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// Returns the processor architecture in Go's terms.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
