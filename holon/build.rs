//! Records which commit and which compiler a build is made of, for `holon version`.

use std::path::Path;
use std::process::Command;

const UNKNOWN: &str = "unknown";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HOLON_COMMIT");
    let from_environment = std::env::var("HOLON_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = from_environment.or_else(checked_out_commit).unwrap_or_else(|| UNKNOWN.to_owned());
    println!("cargo::rustc-env=HOLON_COMMIT={commit}");
    let compiler = std::env::var_os("RUSTC").expect("cargo names the compiler it uses");
    let version = output_of(Command::new(compiler).arg("--version")).unwrap_or_default();
    // `rustc 1.95.0 (59807616e 2026-04-14)`
    let rustc = version.strip_prefix("rustc ").unwrap_or(UNKNOWN);
    println!("cargo::rustc-env=HOLON_RUSTC={rustc}");
}

/// The commit that is checked out. Sources from a tarball have none, also if they lie inside another repository.
fn checked_out_commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    if !root.join(".git").exists() {
        return None;
    }
    let git = |arguments: &[&str]| output_of(Command::new("git").arg("-C").arg(root).args(arguments));
    // HEAD changes when another branch is checked out, its log with every commit. Cargo reruns this script at every build if
    // it watches a file that does not exist.
    for file in ["HEAD", "logs/HEAD"] {
        let path = root.join(git(&["rev-parse", "--git-path", file])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn output_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
