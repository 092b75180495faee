//! How much memory the server holds for clients that request large responses and do not read them.
//!
//! Every byte of the heap is counted, so a few clients are representative. They run in the same process without using
//! the heap: of a client only its socket remains once it has sent its request.

#[path = "hostile/server.rs"]
#[allow(dead_code, reason = "it is shared with tests that do more with it")]
mod server;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use socket2::{Domain, Socket, Type};

use server::{Client, TestServer};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const CLIENTS: usize = 8;
/// Far more than the kernel buffers for a client that does not read.
const OBJECTS: usize = 2_000;
/// The store allocates and frees memory of its own now and then. Only an excess in every try counts.
const TRIES: usize = 3;
/// The number of TLS sessions that the server keeps for all clients together. Each client creates two.
const SESSIONS: usize = 256;
/// How many lists at a time are sent in chunks of 16 KB. Each of them holds at most two of those chunks.
const LARGE_LISTS: usize = 16;
const LARGE_LIST_BYTES_MAX: usize = BYTES_MAX + 2 * (16 << 10);
/// The limit beyond the memory of the store.
const BYTES_MAX: usize = 64 << 10;
/// The minimum for a client whose response waits. With less, the kernel must have buffered the whole response.
const WAITING_BYTES_MIN: usize = 4 << 10;

/// A request.
struct TestRequest {
    description: &'static str,
    path: &'static str,
    accept: &'static str,
    gzip: bool,
}

const fn request(description: &'static str, path: &'static str, accept: &'static str) -> TestRequest {
    TestRequest { description, path, accept, gzip: false }
}

const fn compressed(request: TestRequest) -> TestRequest {
    TestRequest { gzip: true, ..request }
}

const MAPS: &str = "/api/v1/configmaps";
const INITIAL: &str = "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

const IDLE: TestRequest = request("watch without events", "/api/v1/namespaces/none/configmaps?watch=1", JSON);
const REQUESTS: &[TestRequest] = &[
    request("list, JSON", MAPS, JSON),
    compressed(request("list, JSON, gzip", MAPS, JSON)),
    request("list, JSON, limit=1500", "/api/v1/configmaps?limit=1500", JSON),
    request("list, JSON, pretty", "/api/v1/configmaps?pretty=true", JSON),
    compressed(request("list, JSON, pretty, gzip", "/api/v1/configmaps?pretty=true", JSON)),
    request("list, Table", MAPS, TABLE),
    request("list, metadata", MAPS, METADATA),
    request("list, protobuf", MAPS, PROTOBUF),
    compressed(request("list, protobuf, gzip", MAPS, PROTOBUF)),
    request("list, YAML", MAPS, YAML),
    request("watch, initial events, JSON", INITIAL, JSON),
    request("watch, initial events, protobuf", INITIAL, PROTOBUF),
    request("watch, initial events, Table", INITIAL, TABLE),
    request("watch, old events, JSON", "/api/v1/configmaps?watch=1&resourceVersion=1", JSON),
    request("watch, old events, protobuf", "/api/v1/configmaps?watch=1&resourceVersion=1", PROTOBUF),
];

impl TestRequest {
    fn http1(&self) -> Vec<u8> {
        self.with(if self.gzip { "Accept-Encoding: gzip\r\n" } else { "" })
    }

    /// The same as a watch over WebSocket.
    fn websocket(&self) -> Vec<u8> {
        self.with(
            "Upgrade: websocket\r\nConnection: Upgrade\r\nOrigin: https://holon\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        )
    }

    fn with(&self, headers: &str) -> Vec<u8> {
        let TestRequest { path, accept, .. } = self;
        format!("GET {path} HTTP/1.1\r\nHost: holon\r\nAccept: {accept}\r\n{headers}\r\n").into_bytes()
    }

    /// The same over HTTP/2, with an unlimited window.
    fn http2(&self) -> Vec<u8> {
        let frame = |kind: u8, flags: u8, stream: u8, body: &[u8]| {
            let [high, low] = u16::try_from(body.len()).unwrap().to_be_bytes();
            [&[0, high, low, kind, flags, 0, 0, 0, stream], body].concat()
        };
        // Longer texts would have a length of two bytes.
        let text = |text: &str| {
            assert!(text.len() < 127, "{text}");
            [&[text.len() as u8], text.as_bytes()].concat()
        };
        // GET, https, a path, an authority and an Accept, as indexes of the static HPACK table.
        let mut headers =
            [&[0x82, 0x87, 0x04], &*text(self.path), &[0x01, 1, b'a', 0x0f, 4], &*text(self.accept)].concat();
        if self.gzip {
            // accept-encoding: gzip, deflate
            headers.push(0x90);
        }
        [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
            frame(8, 0, 0, &[0x7f, 0, 0, 0]),
            frame(1, 5, 1, &headers),
        ]
        .concat()
    }
}

/// Sends a request and does not read the response.
fn stall(client: &Client, request: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // A small receive buffer, so that the rest of the response stays in the server.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    socket.connect(&client.address.into()).unwrap();
    let mut stream = client.connect_over(socket.into()).unwrap();
    stream.write_all(request).and_then(|()| stream.flush()).unwrap();
    stream.into_parts().1
}

/// Returns the bytes on the heap, once they no longer change.
fn settled_bytes() -> usize {
    let (mut last, mut same) = (HEAP.current_usage(), 0);
    while same < 4 {
        thread::sleep(Duration::from_millis(30));
        let now = HEAP.current_usage();
        same = if now.abs_diff(last) < 2 << 10 { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Returns how much the server holds for each of some clients that send this request and do not read. One client comes
/// first and causes the allocations that all of them share.
fn held_bytes_per_client(client: &Client, request: &[u8]) -> usize {
    let _first = stall(client, request);
    let before = settled_bytes();
    let _stalled: Vec<TcpStream> = (0..CLIENTS).map(|_| stall(client, request)).collect();
    settled_bytes().saturating_sub(before) / CLIENTS
}

/// For each client that did not read 10,000 objects, the server once held 2.9 MB for a watch with initial events, and
/// 0.9 MB for a list.
#[test]
fn a_client_that_does_not_read_holds_at_most_64_kilobytes() {
    let test = TestServer::holding(OBJECTS);
    let admin = test.clients().admin();
    let http2 = admin.clone().http2();
    // Causes the allocations that all clients share before anything is counted.
    (0..SESSIONS / 2).for_each(|_| drop(stall(&admin, &IDLE.http1())));
    let before = settled_bytes();
    let large: Vec<TcpStream> = (0..LARGE_LISTS).map(|_| stall(&http2, &REQUESTS[0].http2())).collect();
    let held_bytes = settled_bytes().saturating_sub(before) / large.len();
    println!("{:35} {held_bytes:>19}", "list in large chunks");
    assert!(held_bytes <= LARGE_LIST_BYTES_MAX, "a list in large chunks holds {held_bytes} bytes");
    let of = |client: &Client, request: &[u8], min: usize| {
        let mut held_bytes = 0;
        for _ in 0..TRIES {
            held_bytes = held_bytes_per_client(client, request);
            if (min..=BYTES_MAX).contains(&held_bytes) {
                break;
            }
        }
        held_bytes
    };
    let held_bytes_of = |request: &TestRequest, min: [usize; 2]| {
        let held_bytes = [of(&admin, &request.http1(), min[0]), of(&http2, &request.http2(), min[1])];
        println!("{:35} {:>9} {:>9}", request.description, held_bytes[0], held_bytes[1]);
        held_bytes
    };
    println!("{:35} {:>9} {:>9}", "bytes per client", "HTTP/1.1", "HTTP/2");
    let min = held_bytes_of(&IDLE, [1; 2]).map(|idle| idle + WAITING_BYTES_MIN);
    let mut wrong = String::new();
    for request in REQUESTS {
        let held_bytes = held_bytes_of(request, min);
        for (version, (held_bytes, min)) in ["HTTP/1.1", "HTTP/2"].iter().zip(held_bytes.iter().zip(min)) {
            if !(min..=BYTES_MAX).contains(held_bytes) {
                let _ = writeln!(
                    wrong,
                    "{} over {version}: {held_bytes} bytes, not {min} to {BYTES_MAX}",
                    request.description
                );
            }
        }
    }
    let idle = of(&admin, &IDLE.websocket(), 1);
    for request in REQUESTS.iter().filter(|request| request.description.starts_with("watch")) {
        let (held_bytes, min) = (of(&admin, &request.websocket(), idle + 1), idle + 1);
        println!("{:35} {held_bytes:>9} over WebSocket, idle {idle}", request.description);
        if !(min..=BYTES_MAX).contains(&held_bytes) {
            let _ = writeln!(
                wrong,
                "{} over WebSocket: {held_bytes} bytes, not {min} to {BYTES_MAX}",
                request.description
            );
        }
    }
    assert!(wrong.is_empty(), "a client holds too much, or nothing waits for it:\n{wrong}");
}
