//! Connections of unauthenticated clients.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Client, Clients, Connection, TestServer};

/// More than the limit of unauthenticated connections of one address.
const SILENT: usize = 1_100;

/// Checks that administrators, users with a token and probes get responses.
#[track_caller]
fn all_clients_are_served(clients: &Clients) {
    clients.admin().is_promptly_answered("GET", "/api/v1/namespaces/default/configmaps", "", 200);
    // An authenticated user without the right to do this.
    clients.user("ann").is_promptly_answered("GET", "/api/v1/namespaces/default/configmaps", "", 404);
    clients.anonymous().is_promptly_answered("GET", "/readyz", "", 200);
}

/// One address opened 1,100 connections and sent nothing on any of them. Each held one of 1,024 places for handshakes
/// until its deadline, and the client replaced each connection that was closed. The server closed all other new
/// connections at once: neither administrators nor probes could connect, and the failed probes restarted the process.
#[test]
fn silent_connections_lock_no_client_out() {
    let test = TestServer::new();
    let clients = test.clients();
    all_clients_are_served(&clients);
    let silent: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(test.address).unwrap()).collect();
    all_clients_are_served(&clients);
    drop(silent);
    all_clients_are_served(&clients);
}

/// The same with clients that are never silent for long: each sends a byte of its handshake every now and then.
#[test]
fn slow_handshakes_lock_no_client_out() {
    let test = TestServer::new();
    let clients = test.clients();
    let mut trickling: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(test.address).unwrap()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = {
        let is_over = is_over.clone();
        thread::spawn(move || {
            // A TLS record that announces 512 bytes of a handshake, and is never complete.
            let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc][..], &[0; 300]].concat();
            for byte in hello.iter().cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                trickling.iter_mut().for_each(|stream| {
                    let _ = stream.write_all(&[*byte]);
                });
                thread::sleep(Duration::from_millis(50));
            }
        })
    };
    thread::sleep(Duration::from_secs(1));
    all_clients_are_served(&clients);
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}

/// Returns whether the server ends a connection on which these bytes were sent, well before it would ping the client.
fn is_cut(client: &Client, bytes: &[u8]) -> bool {
    let mut stream = client.connect().unwrap();
    let begun = Instant::now();
    stream.write_all(bytes).and_then(|()| stream.flush()).unwrap();
    let result = stream.read_to_end(&mut Vec::new());
    let is_waiting =
        result.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    !is_waiting && begun.elapsed() < Duration::from_secs(25)
}

/// A client sent the first bytes of HTTP/2, for which the server waited, and then no request. It kept its connection
/// for as long as it answered pings.
#[test]
fn a_connection_without_a_request_is_closed_in_either_version() {
    let test = TestServer::new();
    let clients = test.clients();
    let http2 = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    for (client, bytes) in [
        (clients.anonymous(), b"GET / HT".as_slice()),
        (clients.anonymous().http2(), &http2),
        (clients.anonymous().http2(), b"PRI * HT"),
    ] {
        assert!(is_cut(&client, bytes), "{bytes:?}: the server does not close the connection");
    }
}

/// Authenticated clients keep their connections, whatever unauthenticated ones do: ann has a token, the administrator a
/// certificate, and both have a watch without events.
#[test]
fn anonymous_connections_evict_no_authenticated_ones() {
    let test = TestServer::new();
    let clients = test.clients();
    let maps = format!("{}/api/v1/namespaces/default/configmaps", clients.tenant("a", "ann"));
    let watch = |client: Client| {
        let mut stream = client.connect().unwrap();
        stream.write_all(client.head("GET", &format!("{maps}?watch=1"), 0).as_bytes()).unwrap();
        assert!(until(&mut stream, "kube-root-ca.crt"), "the watch does not start");
        stream
    };
    let mut watching = [watch(clients.user("ann")), watch(clients.admin())];
    for _ in 0..3 {
        let anonymous: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(test.address).unwrap()).collect();
        all_clients_are_served(&clients);
        drop(anonymous);
    }
    clients.admin().create(&maps, &serde_json::json!({ "metadata": { "name": "news" } }));
    for stream in &mut watching {
        assert!(until(stream, "\"news\""), "the connection was closed");
    }
}

/// Reads until this text was received; returns false if the connection ends before that.
fn until(stream: &mut Connection, text: &str) -> bool {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let mut bytes = [0; 16 << 10];
        match stream.read(&mut bytes) {
            Ok(1..) => read.extend_from_slice(&bytes),
            _ => return false,
        }
    }
    true
}
