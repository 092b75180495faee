//! Connections: those of unauthenticated clients cost little, and no connection outlives the trust in its client.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use apiserver::http::pki::Authority;
use testkit::{Client, Server};

use crate::common::HOLON;

/// Sends these bytes and returns whether the server ends the connection within the timeout.
fn is_disconnected(client: &Client, sent: &str) -> bool {
    let mut stream = client.connect();
    stream.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(sent.as_bytes()).and_then(|()| stream.flush()).unwrap();
    let ended = stream.read_to_end(&mut Vec::new());
    !ended.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// A client that sends nothing, or hardly anything, holds a connection for some seconds and no longer.
#[test]
fn a_silent_connection_is_closed() {
    let server = Server::start(HOLON);
    let client = Client::anonymous(&server);
    for sent in ["", "P", "GET / HT"] {
        assert!(is_disconnected(&client, sent), "{sent:?}: the server still waits");
    }
    assert_eq!(client.get("/healthz").code, 200);
}

/// In 2023 clients brought down all kinds of servers by opening streams and resetting them at once (rapid reset): none
/// of the streams ever counted as open, and each cost a request.
#[test]
fn a_client_that_keeps_resetting_streams_is_disconnected() {
    let server = Server::start(HOLON);
    let mut client = Client::anonymous(&server);
    Arc::make_mut(&mut client.tls).alpn_protocols = vec![b"h2".to_vec()];
    let mut stream = client.connect();
    stream.sock.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for number in 0..100_000u32 {
        // `GET https /` and an authority, as indexes of the static HPACK table.
        sent.extend(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            2 * number + 1,
            &[0x82, 0x87, 0x84, 0x41, 1, b'a'],
        ));
        sent.extend(frame(RESET, 0, 2 * number + 1, &[0, 0, 0, 8]));
    }
    // The server cuts the connection in the middle, so a write may fail.
    let written = stream.write_all(&sent).and_then(|()| stream.flush());
    let mut answered = Vec::new();
    let read = stream.read_to_end(&mut answered);
    let is_goaway = frames(&answered).any(|(kind, body)| kind == GOAWAY && body[4..8] == ENHANCE_YOUR_CALM);
    assert!(is_goaway || written.is_err() || read.is_err(), "{} bytes were answered", answered.len());
    assert_eq!(Client::anonymous(&server).get("/healthz").code, 200);
}

const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// Returns the kinds and bodies of the complete frames.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let head: [u8; 9] = *bytes.first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap();
        let body = bytes.get(9..9 + length)?;
        bytes = &bytes[9 + length..];
        Some((head[3], body))
    })
}

/// The operator can accept client certificates of another authority, and can revoke that.
#[test]
fn certificates_of_another_authority_work_until_it_is_no_longer_trusted() {
    let (dir, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let theirs = Authority::open(theirs.path()).unwrap();
    let trusted = dir.path().join("clients.crt");
    std::fs::write(&trusted, theirs.certificate()).unwrap();
    let server = Server::start_in(HOLON, dir, &["--client-ca-file", trusted.to_str().unwrap()]);
    let certificate = theirs.client("ann", &["system:masters"]).unwrap();
    let ann = Client::anonymous(&server).showing(&certificate.certificate, &certificate.key);
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(ann.get(maps).code, 200);
    std::thread::scope(|scope| {
        let watch = format!("GET {maps}?watch=1 HTTP/1.1\r\nHost: holon\r\n\r\n");
        let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: https://holon\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        let socket = watch.replace("\r\n\r\n", &format!("\r\n{upgrade}\r\n\r\n"));
        let ann = &ann;
        let watching = [watch, socket].map(|watch| scope.spawn(move || is_disconnected(ann, &watch)));
        std::thread::sleep(Duration::from_secs(1));
        assert!(!watching.iter().any(|watching| watching.is_finished()));
        // The operator replaces the authority.
        let other = tempfile::tempdir().unwrap();
        std::fs::write(&trusted, Authority::open(other.path()).unwrap().certificate()).unwrap();
        for watching in watching {
            assert!(watching.join().unwrap(), "the watch continues");
        }
    });
    assert!(ann.try_get(maps).is_none(), "a certificate of the removed authority is refused");
    assert_eq!(Client::admin(&server).get(maps).code, 200);
}
