//! Clients that ask for much and read nothing.
//!
//! The server is a process of its own, so that what it holds can be told from what its clients hold.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use apiserver::pki::Authority;

use crate::world::{Client, Clients, Connection, World};

const CLIENTS: usize = 200;
/// 10 MB in all, of which the kernel takes less than half for one connection.
const OBJECTS: usize = 10_000;
/// The aim is 64 KB. A compressed list and HTTP/2 are above it in a debug build with the allocator of the C library, and
/// far below what they were; docs/benchmarks.md has the figures.
const BYTES_MAX: usize = 160 << 10;
const WEBSOCKET: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: https://holon\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const IS_SERVER: &str = "HOLON_TEST_STALLED_SERVER";

/// Is started by the tests below as another process, and ends with it.
#[test]
#[ignore = "the server of the other tests in this file, which start it themselves"]
fn server_process() {
    if std::env::var_os(IS_SERVER).is_some() {
        let world = World::holding(OBJECTS);
        println!("\nlistening {} {}", world.address, world.pki().display());
        world.forever();
    }
}

struct Server {
    child: Child,
    clients: Clients,
    /// Open for as long as the server may say something.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start() -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stalled::server_process", "--ignored", "--nocapture"])
            .env(IS_SERVER, "1")
            // Memory that other threads freed would otherwise stay with them.
            .env("MALLOC_ARENA_MAX", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = said.find_map(|line| line.unwrap().strip_prefix("listening ").map(str::to_owned)).unwrap();
        let (address, pki) = line.split_once(' ').unwrap();
        let authority = Authority::open(pki.as_ref()).unwrap();
        let clients = Clients { address: address.parse().unwrap(), authority };
        Server { child, clients, _said: said }
    }

    /// What the process holds, once that no longer changes.
    fn resident_bytes(&self) -> usize {
        let read = || {
            let file = format!("/proc/{}/statm", self.child.id());
            let text = std::fs::read_to_string(file).unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let mut last = read();
        loop {
            thread::sleep(Duration::from_secs(2));
            let now = read();
            if now.abs_diff(last) < 256 << 10 {
                return now;
            }
            last = now;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and does not read the answer.
fn stall(client: &Client, request: &[u8]) -> Connection {
    let mut stream = client.connect().unwrap();
    stream.write_all(request).and_then(|()| stream.flush()).unwrap();
    stream
}

fn http1(path: &str, header: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: holon\r\n{header}\r\n").into_bytes()
}

/// The same in HTTP/2, from a client that takes as much as there is.
fn http2(path: &str) -> Vec<u8> {
    let frame = |kind: u8, flags: u8, stream: u8, body: &[u8]| {
        [&[0, 0, u8::try_from(body.len()).unwrap(), kind, flags, 0, 0, 0, stream], body].concat()
    };
    let length = u8::try_from(path.len()).unwrap();
    // GET, https, a path and an authority, in the words of the static table.
    let headers = [&[0x82, 0x87, 0x44, length], path.as_bytes(), &[0x41, 1, b'a']].concat();
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(8, 0, 0, &[0x7f, 0, 0, 0]),
        frame(1, 5, 1, &headers),
    ]
    .concat()
}

/// How much a server holds for each of many clients that send this and read nothing. It is a new one each time: memory that
/// others gave back would be used again and not be seen.
fn held_per_client(request: &[u8]) -> usize {
    let server = Server::start();
    let admin = server.clients.admin();
    let client = if request.starts_with(b"PRI") { admin.http2() } else { admin };
    let stall_all = || (0..CLIENTS).map(|_| stall(&client, request)).collect::<Vec<_>>();
    // The first of them use up what the allocator had kept of earlier work.
    let _first = stall_all();
    let before = server.resident_bytes();
    let _stalled = stall_all();
    server.resident_bytes().saturating_sub(before) / CLIENTS
}

/// 200 clients asked for 10,000 objects and read nothing of the answer. For each of them the server held 2.9 MB if it was
/// a watch that begins with what is there, and 0.9 MB if it was a list: an event for every object, and 400 KB in HTTP.
#[test]
fn a_client_that_does_not_read_holds_next_to_nothing() {
    let maps = "/api/v1/namespaces/default/configmaps";
    let watch = format!("{maps}?watch=1&resourceVersion=0");
    let initial = format!(
        "{maps}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let nothing = "/api/v1/namespaces/none/configmaps?watch=1";
    let cases = [
        ("a watch without events over HTTP/1.1", http1(nothing, "")),
        ("a list over HTTP/1.1", http1(maps, "")),
        ("a compressed list over HTTP/1.1", http1(maps, "Accept-Encoding: gzip\r\n")),
        ("a watch over HTTP/1.1", http1(&watch, "")),
        ("a watch with initial events over HTTP/1.1", http1(&initial, "")),
        ("a watch without events over WebSocket", http1(nothing, WEBSOCKET)),
        ("a watch over WebSocket", http1(&watch, WEBSOCKET)),
        ("a watch with initial events over WebSocket", http1(&initial, WEBSOCKET)),
        ("a watch without events over HTTP/2", http2(nothing)),
        ("a list over HTTP/2", http2(maps)),
        ("a watch over HTTP/2", http2(&watch)),
        ("a watch with initial events over HTTP/2", http2(&initial)),
    ];
    let measure = |(what, request): &(_, Vec<u8>)| {
        let held = held_per_client(request);
        println!("{what}: {} KB per client", held >> 10);
        (*what, held)
    };
    let measured: Vec<(&str, usize)> = cases.iter().map(measure).collect();
    assert!(measured.iter().all(|(_, held)| *held <= BYTES_MAX), "bytes per client: {measured:?}");
}
