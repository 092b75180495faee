//! Requests whose bodies never arrive.

use std::io::Write;

use serde_json::json;

use crate::server::{Clients, Connection, TestServer};

/// More than all places for concurrent writes.
const HALVES: usize = 205;

/// Begins a write in a tenant's logical cluster and sends half of its body.
fn begin(clients: &Clients, maps: &str, sent: usize) -> Connection {
    let ann = clients.user("ann");
    let mut stream = ann.connect().unwrap();
    stream.write_all(ann.head("POST", maps, 2 * sent).as_bytes()).unwrap();
    let half = format!("{{\"metadata\":{{\"name\":\"half\"}},\"data\":{{\"a\":\"{}", "x".repeat(sent));
    stream.write_all(&half.as_bytes()[..sent]).unwrap();
    stream.flush().unwrap();
    stream
}

fn map(name: &str) -> String {
    json!({ "metadata": { "name": name }, "data": { "a": "b" } }).to_string()
}

/// A tenant began 205 writes and sent half of each body. Each held one of the 200 places for concurrent writes for a
/// minute: no client could write anything, in any logical cluster.
#[test]
fn unfinished_request_bodies_block_no_other_writes() {
    let test = TestServer::new();
    let clients = test.clients();
    let [a, b] = [("a", "ann"), ("b", "bob")].map(|(cluster, user)| {
        let path = clients.tenant(cluster, user);
        format!("{path}/api/v1/namespaces/default/configmaps")
    });
    let _halves: Vec<_> = (0..HALVES).map(|_| begin(&clients, &a, 100)).collect();
    clients.user("bob").is_promptly_answered("POST", &b, &map("one"), 201);
    clients.user("ann").is_promptly_answered("POST", &a, &map("one"), 201);
}

/// The same with bodies of more than a megabyte, which together exceed the buffer for all tenants.
#[test]
fn stalled_large_bodies_are_dropped_for_those_that_arrive() {
    let test = TestServer::new();
    let clients = test.clients();
    let [a, b] = [("a", "ann"), ("b", "bob")].map(|(cluster, user)| {
        let path = clients.tenant(cluster, user);
        format!("{path}/api/v1/namespaces/default/configmaps")
    });
    let _halves: Vec<_> = (0..HALVES).map(|_| begin(&clients, &a, 3 << 19)).collect();
    clients.user("bob").is_promptly_answered("POST", &b, &map("one"), 201);
    clients.user("ann").is_promptly_answered("POST", &a, &map("one"), 201);
}
