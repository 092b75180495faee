//! `holon version`: prints the version, commit and compiler of this build.

/// The commit the program was built from, or `unknown`. `HOLON_COMMIT` sets it where a build does not see the
/// repository.
pub(crate) const COMMIT: &str = env!("HOLON_COMMIT");

/// Prints the version, the commit and the compiler. The first line is that of `holon --version`.
pub(crate) fn print() {
    println!("holon {}", env!("CARGO_PKG_VERSION"));
    println!("commit {COMMIT}");
    println!("rustc {}", env!("HOLON_RUSTC"));
}
