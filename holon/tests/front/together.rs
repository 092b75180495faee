//! Several servers on one etcd behave as one server to their clients.

use std::process::Command;

use apiserver::http::pki::Authority;
use testkit::peers::Etcd;
use testkit::{Client, Server};

use crate::common::HOLON;

fn code(client: &Client, server: &Server) -> Option<u16> {
    client.at(server).try_get("/api").map(|answer| answer.code)
}

/// An operator started a second server with an empty data directory on the same etcd. It created a certificate
/// authority of its own, so the second server rejected the kubeconfigs of the first, and their clients did not trust
/// it.
#[test]
#[ignore = "needs etcd"]
fn kubeconfigs_of_one_server_work_with_every_server_of_the_etcd() {
    let etcd = Etcd::start(testkit::peers::program("etcd"), 1);
    let endpoint = etcd.endpoint(0);
    let options = ["--etcd-endpoints", &endpoint];
    // Both start at once, so that both may find that no authority exists yet.
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| Server::start_with(HOLON, &options));
        let other = scope.spawn(|| Server::start_with(HOLON, &options));
        (one.join().unwrap(), other.join().unwrap())
    });
    for (of, at) in [(&one, &other), (&other, &one)] {
        assert_eq!(code(&Client::admin(of), at), Some(200));
    }
    // No request path leads to the private key, not even for an administrator.
    let admin = Client::admin(&one);
    for path in [
        "/apis/~pki/authority",
        "/apis/~pki/v1/authority",
        "/clusters/*/apis/~pki/v1/authority",
        "/clusters/~pki/authority",
        "/~pki/authority",
        "/api/v1/~pki/authority",
    ] {
        let answer = admin.get(path);
        assert!(answer.code >= 400 && !answer.body.contains("PRIVATE KEY"), "{path}: {}", answer.body);
    }
    // A server with another authority does not start, prints what to do, and keeps its files.
    let dir = tempfile::tempdir().unwrap();
    let before = Authority::open(&dir.path().join("pki")).unwrap();
    let mut server_with_another_authority = Command::new(HOLON);
    server_with_another_authority
        .args(["start", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.path())
        .args(options);
    let output = server_with_another_authority.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("is not the one that the servers of this etcd share"),
        "{error}"
    );
    assert!(error.contains("move"), "{error}");
    assert_eq!(Authority::existing(&dir.path().join("pki")).unwrap().certificate(), before.certificate());
}

/// When a single server is moved to etcd, its authority becomes the shared one.
#[test]
#[ignore = "needs etcd"]
fn a_shared_authority_is_rotated_in_three_steps_for_all_servers() {
    let etcd = Etcd::start(testkit::peers::program("etcd"), 1);
    let endpoint = etcd.endpoint(0);
    let options = ["--etcd-endpoints", &*endpoint];
    let mut one = Server::start(HOLON);
    let old = Client::admin(&one);
    one.restart_with(&options, |_| {});
    let mut other = Server::start_with(HOLON, &options);
    assert_eq!((code(&old, &one), code(&old, &other)), (Some(200), Some(200)));
    let rotate = |server: &Server, options: &[&str]| server.run(&[&["ca", "rotate"], options].concat());
    let (worked, output) = rotate(&one, &[]);
    assert!(!worked && output.contains("--etcd-endpoints"), "{output}");
    let step = |on_other: bool, expected: &str, one: &mut Server, other: &mut Server| {
        let (worked, output) = rotate(if on_other { &*other } else { &*one }, &options);
        assert!(worked && output.contains(expected) && output.contains("all servers"), "{output}");
        [one, other].into_iter().for_each(|server| server.restart_with(&options, |_| {}));
    };
    step(false, "Step 1 of 3", &mut one, &mut other);
    assert_eq!((code(&old, &one), code(&old, &other)), (Some(200), Some(200)));
    let early = Client::admin(&other);
    step(true, "Step 2 of 3", &mut one, &mut other);
    assert_eq!((code(&early, &one), code(&early, &other)), (Some(200), Some(200)));
    let new = Client::admin(&one);
    step(false, "Step 3 of 3", &mut one, &mut other);
    assert_eq!(
        (code(&early, &one), code(&early, &other)),
        (None, None),
        "certificates of the old authority are refused"
    );
    assert_eq!((code(&new, &one), code(&new, &other)), (Some(200), Some(200)));
}
