//! Notes which compiler builds us, for `/version` to tell.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").expect("cargo sets RUSTC");
    let output = Command::new(compiler).arg("--version").output();
    let output =
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // `rustc 1.95.0 (59807616e 2026-04-14)`
    let version = output.split(' ').nth(1).unwrap_or_default();
    println!("cargo::rustc-env=HOLON_RUSTC_VERSION={version}");
}
