//! `--data-dir` means the same directory for every command, and only a server creates it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use testkit::{Client, Server};

use crate::common::HOLON;

const MAPS: &str = "/clusters/root:a/api/v1/namespaces/default/configmaps";

fn run(arguments: &[&str], dir: &Path) -> (bool, String, String) {
    let mut command = Command::new(HOLON);
    let Output { status, stdout, stderr } =
        command.args(arguments).arg("--data-dir").arg(dir).output().unwrap();
    let [out, error] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.success(), out, error)
}

/// An administrator exported the store of a server and imported it into a new data directory. `holon store` took the
/// directory of the store, `holon start` the one above it: the export failed, and the imported objects were silently
/// ignored.
#[test]
fn a_server_serves_a_restored_backup() {
    let old = Server::start(HOLON);
    assert!(old.run(&["lc", "create", "a"]).0);
    let map = json!({ "metadata": { "name": "kept" }, "data": { "x": "y" } });
    assert_eq!(Client::admin(&old).ask("POST", MAPS, &map).code, 201);
    let backup_dir = tempfile::tempdir().unwrap();
    let (backup, mut old) = (backup_dir.path().join("backup"), old);
    old.kill();
    let (worked, _, error) = run(&["store", "export", backup.to_str().unwrap()], &old.file(""));
    assert!(worked, "{error}");
    let (worked, _, error) = run(&["store", "check"], &old.file(""));
    assert!(worked, "{error}");
    // Kubeconfigs stay valid if the certificates, which are not in the export, are copied too.
    let new = tempfile::tempdir().unwrap();
    let import = ["store", "import", backup.to_str().unwrap()];
    let (worked, out, error) = run(&import, new.path());
    assert!(worked && out.contains("holon start --data-dir") && out.contains("pki"), "{out}{error}");
    let (worked, _, error) = run(&import, new.path());
    assert!(!worked && error.contains("already holds a store") && error.contains("move"), "{error}");
    let before = Client::admin(&old);
    std::fs::create_dir(new.path().join("pki")).unwrap();
    for file in ["ca.crt", "ca.key"] {
        std::fs::copy(old.file("pki").join(file), new.path().join("pki").join(file)).unwrap();
    }
    let new = Server::start_in(HOLON, new, &[]);
    let found = before.at(&new).get(&format!("{MAPS}/kept"));
    assert_eq!((found.code, found.json()["data"]["x"].clone()), (200, json!("y")));
    let private = std::fs::read(&backup).unwrap();
    assert!(
        !private.windows(11).any(|bytes| bytes == b"PRIVATE KEY"),
        "a backup has no certificate authority"
    );
}

/// An administrator mistyped the directory of `holon ca rotate`. The command created it with a new authority and
/// printed "Step 1 of 3", and the server did not use it.
#[test]
fn client_commands_create_no_data_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "apiVersion: v1\nkind: Config\n").unwrap();
    let file = file.to_str().unwrap();
    let commands: [&[&str]; 9] = [
        &["ca", "rotate"],
        &["ca", "rotate", "--etcd-endpoints", "http://127.0.0.1:1"],
        &["kubeconfig"],
        &["lc", "list"],
        &["leave", "east"],
        &["join", "east", "--print"],
        &["store", "check"],
        &["store", "export", file],
        &["store", "recover", "--accept-loss"],
    ];
    for command in commands {
        let (worked, _, error) = run(command, &missing);
        let message = format!("no data directory at {}; ", missing.display());
        assert!(!worked && error.contains(&message) && error.contains("--data-dir"), "{command:?}: {error}");
        assert!(!missing.exists(), "{command:?}");
        if command.contains(&"--etcd-endpoints") {
            continue;
        }
        let (worked, _, error) = run(command, &empty);
        assert!(!worked, "{command:?}: {error}");
        assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0, "{command:?}");
    }
}

/// A user mistyped a logical cluster and got a kubeconfig in which every request was answered with "not found".
#[test]
fn no_kubeconfig_is_printed_for_a_missing_logical_cluster() {
    let mut server = Server::start(HOLON);
    assert!(server.run(&["lc", "create", "a"]).0);
    for (paths, missing, parent) in [
        (&["root:nope"][..], "root:nope", "root"),
        (&["root:a", "root:a:b"][..], "root:a:b", "root:a"),
        (&["root:no:where"][..], "root:no:where", "root:no"),
    ] {
        let (worked, out, error) = run(&[&["kubeconfig"][..], paths].concat(), &server.file(""));
        assert!(!worked && out.is_empty(), "{out}{error}");
        assert!(error.contains(&format!("there is no logical cluster {missing}")), "{error}");
        assert!(error.contains(&format!("holon lc list --in {parent}")), "{error}");
    }
    let (worked, out, error) = run(&["kubeconfig", "root:a"], &server.file(""));
    assert!(worked && error.is_empty(), "{error}");
    // The key is also in the form that JVM clients read.
    let key = out.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).unwrap();
    use base64::Engine;
    let key = base64::engine::general_purpose::STANDARD.decode(key).unwrap();
    assert!(key.starts_with(b"-----BEGIN EC PRIVATE KEY-----\n"), "{:?}", &key[..30]);
    // While the server is stopped, kubeconfigs can be made without the check.
    server.kill();
    let (worked, out, error) = run(&["kubeconfig", "root:later"], &server.file(""));
    assert!(worked && out.contains("/clusters/root:later\n"), "{error}");
    assert!(error.contains("cannot check whether the logical clusters exist"), "{error}");
}
