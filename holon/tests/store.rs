//! Tests of the `holon store` command.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Key, Store};

fn holon(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holon")).args(arguments).current_dir(dir).output().unwrap()
}

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn succeeds(output: &Output, with: &str) {
    assert!(
        output.status.success() && text_of(output).contains(with),
        "expected {with:?}: {}",
        text_of(output)
    );
}

#[track_caller]
fn fails(output: &Output, with: &str) {
    assert!(
        !output.status.success() && text_of(output).contains(with),
        "expected {with:?}: {}",
        text_of(output)
    );
}

/// Writes the store of a data directory as a server would: two entries, one of them written twice.
fn write_store(dir: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Embedded::open(&dir.join("kept/store"), Options::default()).unwrap();
        let mut expect = Expect::Absent;
        for (key, value) in [("a/1", "one"), ("a/2", "two"), ("a/1", "three")] {
            let expected = if value == "three" { expect } else { Expect::Absent };
            let written = store.commit(Key::from(key), expected, Change::Put(value.into())).await.unwrap();
            if value == "one" {
                expect = Expect::Revision(written.revision);
            }
        }
    });
}

#[test]
fn a_store_is_checked_backed_up_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_store(dir);
    succeeds(&holon(dir, &["store", "check", "--data-dir", "kept"]), "2 entries at revision 3, complete");
    succeeds(&holon(dir, &["store", "export", "--data-dir", "kept", "b.holon"]), "2 entries at revision 3");
    let mode = std::fs::metadata(dir.join("b.holon")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a backup is for its owner only");
    succeeds(&holon(dir, &["store", "import", "--data-dir", "two", "b.holon"]), "into two. Next, type:");
    succeeds(&holon(dir, &["store", "check", "--data-dir", "two"]), "2 entries at revision");
    let second_import = holon(dir, &["store", "import", "--data-dir", "two", "b.holon"]);
    fails(&second_import, "two already holds a store; name another --data-dir, or move two/store away first");
    for verb in ["check", "recover"] {
        fails(&holon(dir, &["store", verb, "--data-dir", "none"]), "no data directory at none");
    }
    assert!(!dir.join("none").exists(), "a check creates no directory");
    // Earlier versions of these commands took this directory.
    fails(&holon(dir, &["store", "check", "--data-dir", "kept/store"]), "is a store, not a data directory");
    fails(&holon(dir, &["store", "import", "--data-dir", "kept/store", "b.holon"]), "is a store");
    std::fs::create_dir(dir.join("empty")).unwrap();
    fails(&holon(dir, &["store", "check", "--data-dir", "empty"]), "no store in empty");
    succeeds(&holon(dir, &["store", "recover", "--data-dir", "two"]), "is not damaged");
}

#[test]
fn the_error_of_a_damaged_store_names_the_command_that_recovers_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_store(dir);
    let journal = dir.join("kept/store/log/0.jnl");
    let mut bytes = std::fs::read(&journal).unwrap();
    let position = bytes.windows(3).position(|window| window == b"two").unwrap();
    bytes[position] ^= 1;
    std::fs::write(&journal, &bytes).unwrap();

    let command = "holon store recover --data-dir kept --accept-loss";
    fails(&holon(dir, &["store", "check", "--data-dir", "kept"]), command);
    fails(&holon(dir, &["store", "recover", "--data-dir", "kept"]), command);
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let recovered = holon(dir, &arguments);
    succeeds(&recovered, "lost revisions: 2-2");
    succeeds(&recovered, "damaged-1");
    succeeds(&holon(dir, &["store", "check", "--data-dir", "kept"]), "1 entries at revision");
}
