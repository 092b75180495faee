//! Connections of those who have not proved who they are.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::world::{Client, Clients, Connection, World};

/// More than one address may have of connections that have not proved who they are.
const SILENT: usize = 1_100;

/// Administrators, users with a token and probes are answered.
#[track_caller]
fn everybody_is_served(clients: &Clients) {
    clients.admin().is_promptly_told("GET", "/api/v1/namespaces/default/configmaps", "", 200);
    // Somebody known, who may not do this.
    clients.user("ann").is_promptly_told("GET", "/api/v1/namespaces/default/configmaps", "", 404);
    clients.anonymous().is_promptly_told("GET", "/readyz", "", 200);
}

/// One address opened 1,100 connections and sent nothing on any of them. Each held one of 1,024 places for handshakes
/// until its deadline, and the client opened another whenever one was closed. The server closed every other connection
/// at once: nobody got in any more, neither administrators nor the probes, which then had the process restarted.
#[test]
fn silent_connections_keep_nobody_out() {
    let world = World::new();
    let clients = world.clients();
    everybody_is_served(&clients);
    let silent: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(world.address).unwrap()).collect();
    everybody_is_served(&clients);
    drop(silent);
    everybody_is_served(&clients);
}

/// The same with clients that are never silent for long: each sends a byte of its handshake every now and then.
#[test]
fn handshakes_that_trickle_in_keep_nobody_out() {
    let world = World::new();
    let clients = world.clients();
    let mut trickling: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(world.address).unwrap()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let sender = {
        let is_over = is_over.clone();
        thread::spawn(move || {
            // A TLS record that announces 512 bytes of a handshake, and never has them all.
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
    everybody_is_served(&clients);
    is_over.store(true, Ordering::Relaxed);
    sender.join().unwrap();
}

/// Whether the server ends a connection on which this was said, well before it would ask whether anybody is there.
fn is_cut(client: &Client, said: &[u8]) -> bool {
    let mut stream = client.connect().unwrap();
    let begun = Instant::now();
    stream.write_all(said).and_then(|()| stream.flush()).unwrap();
    let ended = stream.read_to_end(&mut Vec::new());
    let is_waiting =
        ended.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    !is_waiting && begun.elapsed() < Duration::from_secs(25)
}

/// A client spoke the first bytes of HTTP/2, which was all the server waited for, and asked for nothing afterwards. It
/// kept its connection for as long as it answered pings.
#[test]
fn a_connection_without_a_request_is_closed_in_either_version() {
    let world = World::new();
    let clients = world.clients();
    let http2 = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    for (client, said) in [
        (clients.anonymous(), b"GET / HT".as_slice()),
        (clients.anonymous().http2(), &http2),
        (clients.anonymous().http2(), b"PRI * HT"),
    ] {
        assert!(is_cut(&client, said), "{said:?}: the server still waits");
    }
}

/// Whoever has proved who they are keeps a connection, whatever strangers do: ann is known by a token, the administrator
/// by a certificate, and both watch something that does not change for a while.
#[test]
fn strangers_take_no_connection_of_those_who_proved_who_they_are() {
    let world = World::new();
    let clients = world.clients();
    let maps = format!("{}/api/v1/namespaces/default/configmaps", clients.tenant("a", "ann"));
    let watch = |client: Client| {
        let mut stream = client.connect().unwrap();
        stream.write_all(client.head("GET", &format!("{maps}?watch=1"), 0).as_bytes()).unwrap();
        assert!(until(&mut stream, "kube-root-ca.crt"), "the watch does not begin");
        stream
    };
    let mut watching = [watch(clients.user("ann")), watch(clients.admin())];
    for _ in 0..3 {
        let strangers: Vec<_> = (0..SILENT).map(|_| TcpStream::connect(world.address).unwrap()).collect();
        everybody_is_served(&clients);
        drop(strangers);
    }
    clients.admin().create(&maps, &serde_json::json!({ "metadata": { "name": "news" } }));
    for stream in &mut watching {
        assert!(until(stream, "\"news\""), "the connection was closed");
    }
}

/// Reads until something was said; false if the connection ends before that.
fn until(stream: &mut Connection, said: &str) -> bool {
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(said) {
        let mut bytes = [0; 16 << 10];
        match stream.read(&mut bytes) {
            Ok(1..) => read.extend_from_slice(&bytes),
            _ => return false,
        }
    }
    true
}
