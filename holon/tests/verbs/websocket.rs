//! Watches over WebSocket: compares the frames of a real kube-apiserver with Holon's.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Server;
use testkit::peers::Cluster;

use crate::common::HOLON;
use crate::like_kubernetes::without_server_values;
use crate::wire::{Connection, JSON, PROTOBUF, WireClient};

const NAMESPACE: &str = "sockets";
/// Excludes the objects that every namespace has from the beginning.
const SELECTED: &str = "labelSelector=made";
const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
const VERSION: &str = "Sec-WebSocket-Version: 13";
const ORIGIN: &str = "Origin: https://{address}";
const HANDSHAKE: [&str; 3] = [KEY, VERSION, ORIGIN];

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A connection after the response to a request for WebSocket.
struct Socket {
    code: u16,
    head: String,
    stream: Connection,
}

/// A received frame: its first byte, with the kind and whether it is final, and its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Frame {
    head: u8,
    payload: Vec<u8>,
}

impl Socket {
    /// Opens a connection. `{address}` in a header stands for the server's address.
    fn open(client: &WireClient, path: &str, headers: &[&str]) -> Socket {
        let mut stream = client.connect();
        let lines = headers.iter().map(|line| format!("{}\r\n", line.replace("{address}", &client.address)));
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{}\r\n",
            client.address,
            lines.collect::<String>()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {path} {head:?}"));
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        Socket { code: head.split(' ').nth(1).unwrap().parse().unwrap(), head, stream }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    /// Sends a frame, masked as clients must, or unmasked.
    fn send(&mut self, kind: u8, payload: &[u8], is_masked: bool) {
        let length = u8::try_from(payload.len()).unwrap();
        let mut frame = vec![0x80 | kind, if is_masked { 0x80 | length } else { length }];
        let mask = [1, 2, 3, 4];
        match is_masked {
            true => {
                frame.extend(mask);
                frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
            }
            false => frame.extend(payload),
        }
        self.stream.write_all(&frame).and_then(|()| self.stream.flush()).unwrap();
    }

    /// Returns the next frame, or `None` after the server has closed the connection.
    fn next(&mut self) -> Option<Frame> {
        let mut bytes = |count: usize| {
            let mut bytes = vec![0; count];
            self.stream.read_exact(&mut bytes).ok().map(|()| bytes)
        };
        let head = bytes(2)?;
        let length = match head[1] {
            126 => bytes(2)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            127 => bytes(8)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
            length => usize::from(length),
        };
        Some(Frame { head: head[0], payload: bytes(length)? })
    }

    /// Returns all frames until the server closes the connection, and how long that took.
    fn rest(mut self) -> (Vec<Frame>, Duration) {
        let started = Instant::now();
        let frames = std::iter::from_fn(|| self.next()).collect();
        (frames, started.elapsed())
    }
}

/// Returns a frame as text, without the values that differ between servers.
fn frame_text(frame: &Frame) -> String {
    let Frame { head, payload } = frame;
    let content = match head & 0x0f {
        TEXT => {
            let text = str::from_utf8(payload).unwrap();
            let lines = text.matches('\n').count();
            let mut event = without_server_values(&serde_json::from_str(text).unwrap());
            mask_table(&mut event["object"]);
            format!("{lines} line, ends with {:?}: {event}", text.chars().last())
        }
        BINARY => {
            // Compares only the type of the event and that an object with the magic bytes of Kubernetes' protobuf
            // follows.
            let marked = payload.windows(4).filter(|four| four == b"k8s\0").count();
            format!("{:?} {marked}", String::from_utf8_lossy(&payload[..7]))
        }
        _ => format!("{payload:?}"),
    };
    format!("{head:#x} {content}")
}

/// Removes the descriptions of columns and the ages of objects from a table.
fn mask_table(table: &mut Value) {
    for column in table["columnDefinitions"].as_array_mut().into_iter().flatten() {
        column["description"].take();
    }
    for row in table["rows"].as_array_mut().into_iter().flatten() {
        row["cells"].as_array_mut().and_then(Vec::pop);
    }
}

/// A watch and the frames that the client sends on it.
struct WatchCase {
    query: &'static str,
    headers: Vec<&'static str>,
    sends: &'static [(u8, &'static [u8], bool)],
}

fn cases() -> Vec<WatchCase> {
    let with = |more: &[&'static str]| [&HANDSHAKE[..], more].concat();
    let case = |query, headers, sends| WatchCase { query, headers, sends };
    const ACCEPT_PROTOBUF: &str = "Accept: application/vnd.kubernetes.protobuf";
    const ACCEPT_TABLE: &str = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1";
    vec![
        case("timeoutSeconds=2", with(&[]), &[]),
        case("timeoutSeconds=2", with(&["Sec-WebSocket-Protocol: one"]), &[]),
        case("timeoutSeconds=2", with(&[ACCEPT_PROTOBUF]), &[]),
        case("timeoutSeconds=2", with(&[ACCEPT_TABLE]), &[]),
        case(
            "timeoutSeconds=2",
            with(&[]),
            &[(PING, b"hello", true), (TEXT, b"ignored", true), (PONG, b"", true)],
        ),
        case("timeoutSeconds=60", with(&[]), &[(CLOSE, &[0x03, 0xe8], true)]),
        case("timeoutSeconds=60", with(&[]), &[(TEXT, b"not masked", false)]),
        case("timeoutSeconds=2&fieldSelector=metadata.name%3Dnone", with(&[]), &[]),
        // Rejected handshakes, and requests that are rejected before the handshake.
        case("timeoutSeconds=2", vec![VERSION, ORIGIN], &[]),
        case("timeoutSeconds=2", vec![KEY, ORIGIN], &[]),
        case("timeoutSeconds=2", vec![KEY, "Sec-WebSocket-Version: 8", ORIGIN], &[]),
        case("timeoutSeconds=2", vec![KEY, VERSION], &[]),
        case("timeoutSeconds=2", vec![KEY, VERSION, "Origin: null"], &[]),
        case("timeoutSeconds=2", with(&["Sec-WebSocket-Protocol: one, two"]), &[]),
        case("fieldSelector=data.x%3Dy", with(&[]), &[]),
        case("resourceVersionMatch=Exact&resourceVersion=1", with(&[]), &[]),
    ]
}

/// Runs a case on one server: returns the status code, the chosen subprotocol, the frames, and the answers to pings,
/// whose position among the frames is random.
fn observed(client: &WireClient, case: &WatchCase) -> (u16, Option<String>, Vec<String>, Vec<String>) {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1&{SELECTED}&{}", case.query);
    let mut socket = Socket::open(client, &path, &case.headers);
    let (code, protocol) = (socket.code, socket.header("sec-websocket-protocol").map(str::to_owned));
    if code != 101 {
        return (code, protocol, Vec::new(), Vec::new());
    }
    assert_eq!(socket.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for (kind, payload, is_masked) in case.sends {
        socket.send(*kind, payload, *is_masked);
    }
    let (frames, _) = socket.rest();
    let (pongs, others): (Vec<_>, _) = frames.into_iter().partition(|frame| frame.head & 0x0f == PONG);
    // If a frame of the client ends the watch, events that were due before may or may not be sent.
    let ends = case.sends.iter().any(|(kind, _, is_masked)| *kind == CLOSE || !is_masked);
    let others = others.iter().filter(|frame| !ends || frame.head & 0x0f == CLOSE);
    // kube-apiserver sends a second close frame after it rejected a frame; no client reads after the first.
    let closes = others.clone().position(|frame| frame.head & 0x0f == CLOSE).expect("a close");
    (
        code,
        protocol,
        others.take(closes + 1).map(frame_text).collect(),
        pongs.iter().map(frame_text).collect(),
    )
}

/// A watch with `Upgrade: websocket` was once answered with an endless plain response.
#[test]
#[ignore = "needs etcd, kube-apiserver and kubectl"]
fn kubernetes_sends_the_same_frames() {
    let cluster = Cluster::start_bare(&[]);
    let theirs = WireClient::of(&std::fs::read_to_string(cluster.kubeconfig()).unwrap());
    let server = Server::start(HOLON);
    let ours = WireClient::new(&server);
    for client in [&theirs, &ours] {
        client.create("/api/v1/namespaces", &json!({ "metadata": { "name": NAMESPACE } }));
        for name in ["one", "two"] {
            let map =
                json!({ "metadata": { "name": name, "labels": { "made": "here" } }, "data": { "a": "b" } });
            client.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
        }
    }
    let mut different = Vec::new();
    for case in cases() {
        let (expected, found) = std::thread::scope(|scope| {
            let expected = scope.spawn(|| observed(&theirs, &case));
            let found = observed(&ours, &case);
            (expected.join().unwrap(), found)
        });
        if expected != found {
            let WatchCase { query, headers, sends } = case;
            different.push(format!("{query} {headers:?} {sends:?}\n  they {expected:?}\n  we   {found:?}"));
        }
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    // Events of changes that happen while the watch is open.
    let [expected, found] = [&theirs, &ours].map(live);
    assert_eq!(expected, found);
    assert_eq!(found.len(), 4, "{found:?}");
}

/// Returns the frames about an object that is created, changed and deleted during a watch, and those of its end.
fn live(client: &WireClient) -> Vec<String> {
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let version = client.get(&maps).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("{maps}?watch=1&timeoutSeconds=3&resourceVersion={version}");
    let mut socket = Socket::open(client, &path, &HANDSHAKE);
    client.create(&maps, &json!({ "metadata": { "name": "live" } }));
    let first = socket.next().unwrap();
    assert_eq!(client.ask("PATCH", &format!("{maps}/live"), &json!({ "data": { "a": "b" } })).code, 200);
    assert_eq!(client.ask("DELETE", &format!("{maps}/live"), &Value::Null).code, 200);
    let (rest, _) = socket.rest();
    [first].iter().chain(&rest).map(frame_text).collect()
}

/// A watch over HTTP/1.0 or without `Connection: Upgrade` is an ordinary watch.
#[test]
fn a_request_without_an_upgrade_gets_no_websocket() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let mut stream = client.connect();
    let lines = HANDSHAKE.map(|line| format!("{}\r\n", line.replace("{address}", &client.address))).concat();
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1";
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: close\r\n{lines}\r\n",
        client.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("\"ADDED\""), "{response}");
    // A list is never upgraded.
    let socket = Socket::open(&client, "/api/v1/namespaces/default/configmaps", &HANDSHAKE);
    assert_eq!((socket.code, socket.header("content-type")), (200, Some(JSON)));
}

/// Each event has a frame of its own, also when many come at once; a server that stops closes its WebSockets properly.
#[test]
fn a_server_that_stops_closes_its_websockets() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let maps = "/api/v1/namespaces/default/configmaps";
    for number in 0..50 {
        client.create(maps, &json!({ "metadata": { "name": format!("map-{number}") } }));
    }
    let accept = format!("Accept: {PROTOBUF}");
    let sockets = [&[][..], &[accept.as_str()][..]].map(|more| {
        Socket::open(
            &client,
            &format!("{maps}?watch=1&fieldSelector=metadata.name!%3Dkube-root-ca.crt"),
            &[&HANDSHAKE, more].concat(),
        )
    });
    let figure = "apiserver_longrunning_requests{verb=\"WATCH\"} ";
    let open = || {
        let metrics = client.get("/metrics").text();
        metrics.lines().find_map(|line| line.strip_prefix(figure)?.parse::<usize>().ok()).unwrap()
    };
    let before = open();
    let dropped = Socket::open(&client, &format!("{maps}?watch=1"), &HANDSHAKE);
    assert_eq!(open(), before + 1, "the open watch is counted");
    drop(dropped);
    let started = Instant::now();
    while open() > before {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "the watch is counted after the client disconnected"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let stopping = std::thread::spawn(move || (server.stop(), Instant::now()));
    for (socket, kind) in sockets.into_iter().zip([TEXT, BINARY]) {
        let (frames, _) = socket.rest();
        let kinds: Vec<u8> = frames.iter().map(|frame| frame.head).collect();
        assert_eq!(kinds, [vec![0x80 | kind; 50], vec![0x80 | CLOSE]].concat());
        assert_eq!(frames.last().unwrap().payload, [0x03, 0xe8]);
    }
    let ended = Instant::now();
    let (is_well, stopped) = stopping.join().unwrap();
    assert!(
        is_well && stopped.saturating_duration_since(ended) < Duration::from_secs(8),
        "the server did not close its WebSockets"
    );
}
