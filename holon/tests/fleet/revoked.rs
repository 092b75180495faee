//! Streams to pods end when their client loses its rights, or when the connection to the physical cluster is lost.

use std::io::{Read, Write};

use serde_json::{Value, json};
use testkit::until;

use crate::common::fleet::PHYSICAL_CLUSTERS;
use crate::tunnels::reachable_pod;
use crate::{EastFleet, MAILBOX, PODS};

/// The headers of kubectl for WebSocket.
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                      Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n";
const ROLES: &str = "/clusters/root:mailbox-east/apis/rbac.authorization.k8s.io/v1";

const RESOURCES: [&str; 4] = ["pods/log", "pods/exec", "pods/attach", "pods/portforward"];
/// The headers of older versions of kubectl for port-forward.
const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\
                    X-Stream-Protocol-Version: portforward.k8s.io\r\n";

/// Lets ann read logs, run commands and forward ports in the mailbox, by a binding that the test can delete.
fn grant_access(fleet: &EastFleet) {
    fleet.admin.bind(MAILBOX, "holon:access", "User ann");
    let rule = json!({ "apiGroups": [""], "resources": RESOURCES, "verbs": ["get", "create"] });
    create(fleet, "clusterroles", &json!({ "metadata": { "name": "reach" }, "rules": [rule] }));
    bind(fleet);
}

fn bind(fleet: &EastFleet) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "reach" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "reach" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": "ann" }],
    });
    create(fleet, "clusterrolebindings", &binding);
}

fn create(fleet: &EastFleet, plural: &str, object: &Value) {
    let created = fleet.admin.ask("POST", &format!("{ROLES}/{plural}"), object);
    assert_eq!(created.code, 201, "{}", created.body);
}

fn revoke_access(fleet: &EastFleet) {
    let deleted = fleet.admin.ask("DELETE", &format!("{ROLES}/clusterrolebindings/reach"), &Value::Null);
    assert_eq!(deleted.code, 200, "{}", deleted.body);
}

/// An open stream. A read fails if nothing arrives for ten seconds.
struct Stream(Box<dyn Read>);

impl Stream {
    fn open(fleet: &EastFleet, head: &str, expected: &str) -> Stream {
        let mut stream = fleet.admin.connect();
        stream.write_all(format!("{head}Host: holon\r\nImpersonate-User: ann\r\n\r\n").as_bytes()).unwrap();
        let mut status_line = [0; 12];
        stream.read_exact(&mut status_line).unwrap();
        assert_eq!(String::from_utf8_lossy(&status_line), format!("HTTP/1.1 {expected}"));
        Stream(Box::new(stream))
    }

    /// Opens a followed log, an exec that waits for input, an attach, and a port-forward.
    fn all(fleet: &EastFleet, pod: &str) -> [Stream; 4] {
        let path = format!("{MAILBOX}{PODS}/{pod}");
        let exec = format!("GET {path}/exec?command=cat&stdin=true&stdout=true HTTP/1.1\r\n{WEBSOCKET}");
        [
            Stream::open(fleet, &format!("GET {path}/log?follow=true HTTP/1.1\r\n"), "200"),
            Stream::open(fleet, &exec, "101"),
            Stream::open(fleet, &format!("GET {path}/attach?stdout=true HTTP/1.1\r\n{WEBSOCKET}"), "101"),
            Stream::open(fleet, &format!("POST {path}/portforward HTTP/1.1\r\n{SPDY}"), "101"),
        ]
    }

    fn await_end(self) {
        self.rest();
    }

    /// Returns everything until the stream ends.
    fn rest(mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A close without close_notify is an end too; a timeout is not.
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
        }
        rest
    }
}

/// The last chunk of a complete chunked response.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// A log that broke off downstream once ended like a complete one, so `kubectl logs > file` reported success with half
/// of the log.
#[test]
fn an_interrupted_log_does_not_end_like_a_complete_one() {
    let (mut joined, mut dialled) = (EastFleet::joined(), EastFleet::with_syncer());
    let follow = |fleet: &EastFleet| {
        let path = format!("{MAILBOX}{PODS}/{}/log", reachable_pod(fleet));
        grant_access(fleet);
        let log = |rest: &str| Stream::open(fleet, &format!("GET {path}{rest}"), "200");
        // The log has no more lines, so it ends properly.
        assert!(log(" HTTP/1.1\r\nConnection: close\r\n").rest().ends_with(LAST_CHUNK));
        let refused = log("?follow=true HTTP/1.1\r\n");
        revoke_access(fleet);
        let refused = refused.rest();
        bind(fleet);
        (refused, log("?follow=true HTTP/1.1\r\n"))
    };
    let [(first, by_server), (second, by_line)] = [&joined, &dialled].map(follow);
    joined.kill_cluster("east");
    dialled.end_syncer();
    for rest in [first, second, by_server.rest(), by_line.rest()] {
        assert!(!rest.ends_with(LAST_CHUNK), "{:?}", String::from_utf8_lossy(&rest));
    }
}

/// A browser sends its user's client certificate with every WebSocket that a page opens. So any page could have run
/// commands in the containers of the user who visited it.
#[test]
fn a_page_of_another_origin_runs_no_commands() {
    let fleet = EastFleet::joined();
    let path = format!("{MAILBOX}{PODS}/{}", reachable_pod(&fleet));
    grant_access(&fleet);
    for (origin, expected) in [
        ("https://evil.example", "403"),
        ("null", "403"),
        ("https://holon", "101"),
        ("http://localhost:8001", "101"),
    ] {
        let exec =
            format!("GET {path}/exec?command=pwd&stdout=true HTTP/1.1\r\nOrigin: {origin}\r\n{WEBSOCKET}");
        Stream::open(&fleet, &exec, expected);
    }
}

/// Many streams are open at once, and streams whose client does not read do not block others in the tunnel.
#[test]
fn a_client_that_does_not_read_delays_no_other() {
    let fleet = EastFleet::with_syncer();
    let pod = reachable_pod(&fleet);
    grant_access(&fleet);
    let path = format!("{MAILBOX}{PODS}/{pod}");
    // Some seven megabytes each: far more than fits into flow-control windows and socket buffers.
    let exec = format!("GET {path}/exec?command=seq&command=1000000&stdout=true HTTP/1.1\r\n{WEBSOCKET}");
    let log = format!("GET {path}/log?follow=true HTTP/1.1\r\n");
    let unread: Vec<Stream> = (0..20).map(|_| Stream::open(&fleet, &exec, "101")).collect();
    let followed: Vec<Stream> = (0..60).map(|_| Stream::open(&fleet, &log, "200")).collect();
    for _ in 0..20 {
        assert_eq!(fleet.admin.get(&format!("{path}/log")).code, 200);
    }
    // A client that starts to read later gets everything.
    for stream in unread.into_iter().take(3) {
        assert!(stream.rest().windows(7).any(|bytes| bytes == b"1000000"));
    }
    drop(followed);
}

/// Checks that ann's streams end when her binding is deleted. Restores the binding and returns the name of a pod.
fn check_revocation_ends_streams(fleet: &EastFleet) -> String {
    let pod = reachable_pod(fleet);
    grant_access(fleet);
    let open = Stream::all(fleet, &pod);
    revoke_access(fleet);
    open.into_iter().for_each(Stream::await_end);
    bind(fleet);
    pod
}

#[test]
fn revocation_ends_streams_over_connections_of_the_server() {
    let mut fleet = EastFleet::joined();
    let pod = check_revocation_ends_streams(&fleet);
    // Streams of clients with rights end too when the physical cluster is killed.
    let open = Stream::all(&fleet, &pod);
    fleet.kill_cluster("east");
    open.into_iter().for_each(Stream::await_end);
}

#[test]
fn revocation_ends_streams_in_a_tunnel() {
    let mut fleet = EastFleet::with_syncer();
    let pod = check_revocation_ends_streams(&fleet);
    // A broken tunnel ends its streams, and is dialled again.
    let open = Stream::all(&fleet, &pod);
    fleet.end_syncer();
    open.into_iter().for_each(Stream::await_end);
    let log = format!("{MAILBOX}{PODS}/{pod}/log");
    let answer = fleet.admin.get(&log);
    assert_eq!(answer.code, 503, "{}", answer.body);
    assert!(answer.body.contains("the physical cluster is not connected to this server"), "{}", answer.body);
    fleet.start_syncer();
    until("the log can be read again", || fleet.admin.get(&log).code == 200);
}

/// A client that could open the tunnel of a physical cluster would act as that cluster towards every user of its pods.
#[test]
fn only_the_syncer_can_open_a_tunnel() {
    let fleet = EastFleet::joined();
    until("the syncer has reported", || {
        fleet.admin.get(&format!("{MAILBOX}{}/east", PHYSICAL_CLUSTERS)).code == 200
    });
    let path = format!("{MAILBOX}{}/east/tunnel", PHYSICAL_CLUSTERS);
    let upgrade = "Connection: Upgrade\r\nUpgrade: holon-tunnel/1";
    let acting = "Impersonate-User: system:serviceaccount:kube-system:holon-syncer";
    for (header, expected) in [("Accept: */*", 400), (acting, 400)] {
        let mut stream = fleet.admin.connect();
        let head = format!("GET {path} HTTP/1.1\r\nHost: holon\r\n{upgrade}\r\n{header}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut status_line = [0; 12];
        stream.read_exact(&mut status_line).unwrap();
        assert_eq!(String::from_utf8_lossy(&status_line), format!("HTTP/1.1 {expected}"), "{header}");
    }
    let user_without_token = fleet.admin.with("Impersonate-User: ann");
    assert_eq!(user_without_token.get(&path).code, 403);
}
