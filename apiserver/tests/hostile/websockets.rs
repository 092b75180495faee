//! Watches over WebSocket with misbehaving clients.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::server::{Client, Connection, TestServer};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Far more than a tenant may send in ten seconds.
const FLOOD: usize = 100_000;
/// More than any buffer on the way.
const FRAME_BYTES: usize = 16 << 20;

/// The limit of connections of one tenant, and how many more it opens.
const CONNECTIONS_MAX: usize = 2048;
const MORE: usize = 20;

/// Opens an upgraded watch without events, in a logical cluster.
fn open(client: &Client, cluster: &str) -> Connection {
    let mut stream = client.connect().unwrap();
    let watch = format!("{cluster}{MAPS}?watch=1&fieldSelector=metadata.name%3Dnone");
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: https://holon\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let head = client.head("GET", &watch, 0).replacen("\r\n\r\n", &format!("\r\n{upgrade}\r\n\r\n"), 1);
    stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    stream
}

/// Returns a masked frame; the mask is zero.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u64::try_from(payload.len()).unwrap();
    let length =
        if length < 126 { vec![0x80 | length as u8] } else { [&[0xff], &length.to_be_bytes()[..]].concat() };
    [&[0x80 | kind], &*length, &[0; 4], payload].concat()
}

/// Returns the code with which the server closes a connection on which these bytes were sent.
fn code(client: &Client, bytes: &[u8]) -> u16 {
    let mut stream = open(client, "");
    // The server closes the connection in the middle, so a write may fail.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut received = Vec::new();
    let result = stream.read_to_end(&mut received);
    let times_out =
        result.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!times_out, "the server does not close the connection");
    let close = received.windows(2).position(|two| two == [0x88, 2]).expect("a close");
    u16::from_be_bytes([received[close + 2], received[close + 3]])
}

/// A client sends nothing useful on a watch. Frames that announce megabytes are rejected before they are read.
#[test]
fn a_client_that_sends_huge_frames_is_disconnected() {
    let test = TestServer::new();
    let admin = test.clients().admin();
    assert_eq!(code(&admin, &frame(2, &vec![0; FRAME_BYTES])), 1009);
    // A frame that announces 2^62 bytes and sends none of them.
    assert_eq!(code(&admin, &[&[0x82, 0xff], &(1u64 << 62).to_be_bytes()[..], &[0; 4]].concat()), 1009);
    // A ping that is longer than the protocol allows.
    assert_eq!(code(&admin, &frame(9, &[0; 126])), 1002);
    admin.is_promptly_answered("GET", MAPS, "", 200);
}

#[test]
fn a_client_that_floods_a_watch_is_disconnected_and_others_are_served() {
    let test = TestServer::new();
    let clients = test.clients();
    for (kind, payload) in [(9, &b"ping"[..]), (1, b"data"), (1, b"")] {
        let flood = frame(kind, payload).repeat(FLOOD);
        let admin = clients.admin();
        let flooding = std::thread::spawn(move || code(&admin, &flood));
        clients.admin().is_promptly_answered("GET", MAPS, "", 200);
        assert_eq!(flooding.join().unwrap(), 1008, "frames of kind {kind}");
    }
}

/// One tenant opened more watches than its limit of connections. After the upgrade they are no longer HTTP requests,
/// but still count: the server closes the oldest of that tenant, and no other tenant's.
#[test]
fn upgraded_watches_of_one_tenant_evict_each_other() {
    let test = TestServer::new();
    let clients = test.clients();
    let path = clients.tenant("a", "ann");
    let (ann, mut other) = (clients.user("ann"), open(&clients.admin(), ""));
    let mut sockets: Vec<_> = (0..CONNECTIONS_MAX + MORE).map(|_| open(&ann, &path)).collect();
    // Pings whose answers the client does not read: the server writes one answer, and then waits.
    let pings = frame(9, &[b'x'; 100]).repeat(50);
    for socket in sockets.iter_mut().rev().take(100) {
        socket.write_all(&pings).and_then(|()| socket.flush()).unwrap();
    }
    clients.admin().is_promptly_answered("GET", MAPS, "", 200);
    clients.user("ann").is_promptly_answered("GET", &format!("{path}{MAPS}"), "", 200);
    // Only a read detects a closed connection; on an open one it returns nothing.
    let is_closed = |socket: &mut Connection| {
        socket.sock.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let read = socket.read(&mut [0; 16]);
        !read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    let closed = sockets.iter_mut().take(10 * MORE).map(&is_closed).filter(|is_closed| *is_closed).count();
    assert!(closed >= MORE, "{closed} of {} were closed", sockets.len());
    assert!(!is_closed(&mut other), "the watch of another tenant was closed");
}
