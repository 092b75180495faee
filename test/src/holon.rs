//! The program under test: built if necessary, started, signalled.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use testkit::Server;

/// Starts a server and returns once it reports that it is ready.
pub fn start(options: &[&str]) -> Result<Server> {
    Ok(Server::start_with(program()?, options))
}

/// Sends a signal to a process we started.
pub fn signal(name: &str, pid: u32) -> Result<()> {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status()?;
    if !sent.success() {
        bail!("kill -{name} {pid} failed");
    }
    Ok(())
}

/// Returns the path of the binary, which it builds if that is out of date.
///
/// Cargo tells a test the paths of the programs of its own package only. So this function asks cargo to build a test of
/// the binary's package, which builds the binary exactly as `cargo test --workspace` does: after that command nothing
/// is left to build.
pub fn program() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let profile = test.ancestors().nth(2).context("tests are in target/<profile>/deps")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--quiet", "--workspace", "--no-run", "--test", "front_door", "--target-dir"]);
    cargo.arg(profile.parent().context("profiles are in the target directory")?);
    cargo.args(profile.ends_with("release").then_some("--release"));
    // Build scripts would see these variables of this test's package as a change, and cargo would rebuild everything.
    let is_package_variable =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_package_variable)) {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).output()?;
    if !built.status.success() {
        bail!("cargo cannot build holon: {}", String::from_utf8_lossy(&built.stderr));
    }
    Ok(profile.join("holon"))
}
