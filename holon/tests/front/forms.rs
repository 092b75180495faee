//! Forms of response bodies: indentation for people, compression, and headers for caches.

use serde_json::{Value, json};
use testkit::{Client, Server};

use crate::common::HOLON;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn curl_gets_indented_bodies_and_other_clients_do_not() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let lines = |client: &Client, path: &str| client.get(path).body.lines().count();
    let path = "/api/v1/namespaces/default";
    assert_eq!(lines(&client, path), 1);
    assert!(lines(&client, &format!("{path}?pretty=true")) > 10);
    let curl = client.with("User-Agent: curl/8.5.0");
    assert!(lines(&curl, path) > 10);
    assert_eq!(lines(&curl, &format!("{path}?pretty=false")), 1);
    assert_eq!(curl.get(path).json(), client.get(path).json());
    assert!(lines(&curl, "/api/v1/namespaces/nowhere") > 5, "errors are indented too");
    // A watch has one line per event, for every client.
    let watch = "/api/v1/namespaces?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Ddefault";
    assert_eq!(curl.watched(watch).len(), 1);
}

#[test]
fn large_bodies_are_compressed_for_clients_that_accept_gzip() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let gzip = client.with("Accept-Encoding: gzip");
    let small = gzip.get(MAPS);
    assert_eq!((small.header("Content-Encoding"), small.header("Vary")), (String::new(), String::new()));
    let text = "all work and no play ".repeat(10_000);
    let large = json!({ "metadata": { "name": "large" }, "data": { "text": text } });
    assert_eq!(client.ask("POST", MAPS, &large).code, 201);
    for path in
        [MAPS.to_owned(), format!("{MAPS}/large"), "/openapi/v2".to_owned(), "/openapi/v3/api/v1".to_owned()]
    {
        let (plain, compressed) = (client.get(&path), gzip.get(&path));
        assert_eq!((plain.code, plain.header("Content-Encoding").as_str()), (200, ""), "{path}");
        assert_eq!(
            (compressed.code, compressed.header("Content-Encoding").as_str()),
            (200, "gzip"),
            "{path}"
        );
        let varies = plain.header("Vary").to_lowercase();
        assert_eq!(varies.matches("accept-encoding").count(), 1, "{path}: {varies}");
        assert!(compressed.body.len() * 4 < plain.body.len(), "{path}");
    }
    let watched = gzip.get(&format!("{MAPS}?watch=1&timeoutSeconds=1"));
    assert_eq!(watched.header("Content-Encoding"), "");
}

#[test]
fn a_head_response_has_the_headers_of_the_get_response() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    for path in ["/api/v1/namespaces", "/readyz", "/openapi/v3/apis/apps/v1", "/nothing"] {
        let (get, head) = (client.get(path), client.ask("HEAD", path, &Value::Null));
        assert_eq!((head.code, head.body.as_str()), (get.code, ""), "{path}");
        assert_eq!(head.header("Content-Length"), get.body.len().to_string(), "{path}");
        assert_eq!(head.header("Content-Type"), get.header("Content-Type"), "{path}");
    }
}

#[test]
fn a_document_requested_by_its_hash_is_cacheable() {
    let server = Server::start(HOLON);
    let client = Client::admin(&server);
    let index = client.get("/clusters/root/openapi/v3").json();
    let address = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(address.starts_with("/openapi/v3/apis/apps/v1?hash="), "{address}");
    let cacheable = client.get(address);
    assert_eq!((cacheable.code, cacheable.header("Cache-Control").as_str()), (200, "public, immutable"));
    assert!(cacheable.header("Expires").ends_with("GMT") && cacheable.header("Vary").starts_with("Accept"));
    // A request with another hash gets the current document, which is then not cacheable.
    let other = client.get("/openapi/v3/apis/apps/v1?hash=0");
    assert_eq!((other.code, other.header("Cache-Control").as_str()), (200, "no-cache, private"));
    assert!(other.body == cacheable.body && other.header("Expires").is_empty());
    let gzip = client.with("Accept-Encoding: gzip");
    let not_modified = gzip.with(&format!("If-None-Match: {}", cacheable.header("ETag"))).get(address);
    assert_eq!(
        (not_modified.code, not_modified.body.as_str(), not_modified.header("Content-Encoding").as_str()),
        (304, "", "")
    );
}
