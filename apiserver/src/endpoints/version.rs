//! `/version`: the version of Kubernetes we are compatible with, and the build of Holon.
//!
//! The program that serves says which commit it was built from. A release build may set `HOLON_BUILD_DATE` and
//! `HOLON_GIT_TREE_STATE`; a build without them reports that they are not known.

use serde_json::{Value, json};

/// The Kubernetes whose API this is. Charts compare it, and kubectl warns when it is too far from its own.
const KUBERNETES: [&str; 2] = ["1", "36"];
/// The oldest that clients may take us for.
const COMPATIBLE: [&str; 2] = ["1", "35"];
const GIT_VERSION: &str = concat!("v1.36.4+holon-", env!("CARGO_PKG_VERSION"));
/// Of Holon.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The beginning of time stands for "not known": clients parse it.
const BUILD_DATE: &str = or(option_env!("HOLON_BUILD_DATE"), "1970-01-01T00:00:00Z");
const TREE_STATE: &str = or(option_env!("HOLON_GIT_TREE_STATE"), "");
/// Where others name their Go.
pub(crate) const LANGUAGE: &str = concat!("rust", env!("HOLON_RUSTC_VERSION"));

const fn or(known: Option<&'static str>, otherwise: &'static str) -> &'static str {
    match known {
        Some(known) => known,
        None => otherwise,
    }
}

/// What `/version` says.
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

/// The processor, in the words clients know.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
