//! Commands that an administrator runs against a server.

use std::process::Command;

use testkit::{Client, Server};

use crate::common::HOLON;

#[test]
fn logical_clusters_are_created_listed_and_deleted_without_kubectl() {
    let server = Server::start(HOLON);
    let check = |arguments: &[&str], succeeds: bool, expected: &str| {
        let (succeeded, output) = server.run(arguments);
        assert!(succeeded == succeeds && output.contains(expected), "holon {arguments:?} printed {output}");
    };
    check(&["lc", "list"], true, "no logical clusters in root. Create one: holon lc create NAME");
    check(&["lc", "create", "team-a"], true, "holon kubeconfig root:team-a");
    check(&["lc", "create", "web", "--in", "root:team-a"], true, "created root:team-a:web");
    check(&["lc", "list"], true, "root:team-a  Ready");
    check(&["lc", "list", "--in", "root:team-a"], true, "root:team-a:web  Ready");
    check(&["lc", "create", "team-a"], false, "logicalclusters.holon.dev \"team-a\" already exists");
    check(&["lc", "create", "Team_A"], false, "is not a valid name");
    check(&["lc", "delete", "../x"], false, "is not a valid name");
    check(&["lc", "delete", "missing"], false, "not found");
    check(&["lc", "list", "--in", "root:nowhere"], false, "cannot list the logical clusters in root:nowhere");
    check(&["lc", "delete", "team-a"], true, "deleting root:team-a and everything in it");
    // Its contents are deleted after the command has ended.
    let is_deleted = || server.run(&["lc", "list"]).1.contains("no logical clusters in root");
    assert!((0..200).any(|_| is_deleted()), "the logical cluster is not deleted");
}

#[test]
fn an_authority_is_rotated_in_three_steps_and_the_old_kubeconfig_works_until_the_last() {
    let mut server = Server::start(HOLON);
    let step = |server: &Server, expected: &str| {
        let (succeeded, output) = server.run(&["ca", "rotate"]);
        assert!(succeeded && output.contains(expected), "holon ca rotate printed {output}");
    };
    let old = Client::admin(&server);
    step(&server, "Step 1 of 3");
    server.restart();
    assert_eq!(old.at(&server).get("/api").code, 200);
    let early = Client::admin(&server);
    step(&server, "Step 2 of 3");
    server.restart();
    assert_eq!(early.at(&server).get("/api").code, 200);
    let new = Client::admin(&server);
    step(&server, "Step 3 of 3");
    server.restart();
    assert!(early.at(&server).try_get("/api").is_none(), "certificates of the old authority are refused");
    assert_eq!(new.at(&server).get("/api").code, 200);
}

#[test]
fn a_command_that_finds_no_server_suggests_the_next_step() {
    let server = Server::start(HOLON);
    let dir = server.file("");
    let elsewhere = tempfile::tempdir().unwrap();
    let run = |dir: &std::path::Path| {
        let output = Command::new(HOLON).args(["lc", "list", "--data-dir"]).arg(dir).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let error = run(elsewhere.path());
    assert!(error.contains("no server has run in") && error.contains("--data-dir"), "{error}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "the command creates no file");
    // The address of a stopped server: no process listens on port 1.
    std::fs::write(dir.join("address"), "https://127.0.0.1:1").unwrap();
    let error = run(&dir);
    assert!(
        error.contains("no server answers at https://127.0.0.1:1") && error.contains("holon start"),
        "{error}"
    );
}

#[test]
fn a_kubeconfig_has_a_context_for_each_requested_logical_cluster() {
    let server = Server::start_in(
        HOLON,
        tempfile::tempdir().unwrap(),
        &["--context", "root:a", "--context", "root:b"],
    );
    let contexts = |text: &str| -> Vec<String> {
        let (_, rest) = text.split_once("contexts:\n").unwrap();
        let lines = rest.lines().take_while(|line| !line.starts_with("users:"));
        lines.filter_map(|line| line.strip_prefix("- name: ")).map(str::to_owned).collect()
    };
    let written = std::fs::read_to_string(server.file("admin.kubeconfig")).unwrap();
    assert_eq!(contexts(&written), ["root", "root:a", "root:b"]);
    assert!(written.contains("current-context: root\n"));
    assert!(server.run(&["lc", "create", "b"]).0);
    let (succeeded, printed) = server.run(&["kubeconfig", "root:b", "root", "root:b"]);
    assert!(succeeded, "{printed}");
    assert_eq!(contexts(&printed), ["root:b", "root"]);
    let (succeeded, output) = server.run(&["kubeconfig", "Root"]);
    assert!(!succeeded && output.contains("is not the path of a logical cluster"), "{output}");
    assert!(server.kubeconfig("root:b").contains("/clusters/root:b\n"));
    assert!(server.stop());
}

#[test]
fn a_log_is_an_object_per_line_without_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens.csv");
    std::fs::write(&tokens, "s3cret,ann,7,system:masters\n").unwrap();
    let tokens = tokens.to_str().unwrap().to_owned();
    let log = dir.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let arguments =
        ["--log-format", "json", "--log-level", "info,apiserver=debug", "--token-auth-file", &tokens];
    let server = Server::start_logging(HOLON, dir, &arguments, file);
    let ann = Client::anonymous(&server).with("Authorization: Bearer s3cret").with("Audit-ID: the-one");
    let body = serde_json::json!({ "metadata": { "name": "a" }, "data": { "k": "h1dden" } });
    assert_eq!(ann.ask("POST", "/clusters/root/api/v1/namespaces/default/secrets?x=qu3ry", &body).code, 400);
    let log = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = lines.iter().find(|line| line["id"] == "the-one").unwrap_or_else(|| panic!("{log}"));
    let expected = [
        ("method", "POST"),
        ("path", "/clusters/root/api/v1/namespaces/default/secrets"),
        ("cluster", "root"),
        ("verb", "create"),
        ("resource", "secrets"),
        ("user", "ann"),
    ];
    for (field, value) in expected {
        assert_eq!(line[field], value, "{line}");
    }
    assert!(line["code"] == 400 && line["duration_ms"].is_number(), "{line}");
    for secret in ["s3cret", "h1dden", "qu3ry"] {
        assert!(!log.contains(secret), "{log}");
    }
}
