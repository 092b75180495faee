//! An HTTP/1.1 client over TLS, one connection per request, for arbitrary media types.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use openapi::codec;
use openapi::codec::Syntax;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;
use testkit::Server;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const MERGE: &str = "application/merge-patch+json";

pub(crate) type Connection = StreamOwned<ClientConnection, TcpStream>;

pub(crate) struct WireClient {
    pub(crate) address: String,
    tls: Arc<ClientConfig>,
}

pub(crate) struct WireResponse {
    pub(crate) code: u16,
    pub(crate) media_type: String,
    pub(crate) body: Vec<u8>,
}

impl WireResponse {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Returns the names of the objects of a list.
    pub(crate) fn names(&self) -> Vec<String> {
        let list = self.json();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("no list: {list}")).iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl WireClient {
    pub(crate) fn new(server: &Server) -> WireClient {
        let admin = WireClient::of(&std::fs::read_to_string(server.file("admin.kubeconfig")).unwrap());
        WireClient { address: server.url.replace("https://", ""), ..admin }
    }

    /// Returns a client with the server and credentials of a kubeconfig.
    pub(crate) fn of(kubeconfig: &str) -> WireClient {
        let kubeconfig = codec::decode(kubeconfig.as_bytes(), Syntax::Yaml).unwrap().value;
        let (cluster, user) = (&kubeconfig["clusters"][0]["cluster"], &kubeconfig["users"][0]["user"]);
        let pem = |within: &Value, name: &str| STANDARD.decode(within[name].as_str().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        let authority = pem(cluster, "certificate-authority-data");
        roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(&pem(user, "client-certificate-data")).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(&pem(user, "client-key-data")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
        let server = cluster["server"].as_str().unwrap();
        let address = server.trim_start_matches("https://").split('/').next().unwrap().to_owned();
        WireClient { address, tls: Arc::new(tls) }
    }

    /// Opens a connection on which nothing was sent yet.
    pub(crate) fn connect(&self) -> Connection {
        let tcp = TcpStream::connect(&self.address).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        StreamOwned::new(ClientConnection::new(self.tls.clone(), name).unwrap(), tcp)
    }

    /// Sends a body of one media type and accepts another.
    pub(crate) fn send(&self, method: &str, path: &str, body: (&str, &[u8]), accept: &str) -> WireResponse {
        let mut stream = self.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: holon\r\nConnection: close\r\nContent-Type: {}\r\nAccept: {accept}\r\nContent-Length: {}\r\n\r\n",
            body.0,
            body.1.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.1).unwrap();
        let mut bytes = Vec::new();
        // A peer that closes without close_notify is an error to TLS, but not to this client.
        let _ = stream.read_to_end(&mut bytes);
        parse_response(&bytes)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> WireResponse {
        let media_type = if method == "PATCH" { MERGE } else { JSON };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, (media_type, body.as_bytes()), "")
    }

    pub(crate) fn get(&self, path: &str) -> WireResponse {
        self.ask("GET", path, &Value::Null)
    }

    pub(crate) fn get_as(&self, path: &str, accept: &str) -> WireResponse {
        self.send("GET", path, (JSON, b""), accept)
    }

    /// Creates an object, which must succeed, and returns it.
    pub(crate) fn create(&self, path: &str, object: &Value) -> Value {
        let response = self.ask("POST", path, object);
        assert_eq!(response.code, 201, "{path}: {}", response.text());
        response.json()
    }

    /// Returns the events of a watch that ends after some seconds, in JSON.
    pub(crate) fn watched(&self, path: &str) -> Vec<(String, Value)> {
        let response = self.get(path);
        let text = response.text();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"].clone())).collect()
    }
}

fn parse_response(bytes: &[u8]) -> WireResponse {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a response has a head");
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_default().to_owned()
    };
    let body = &bytes[end + 4..];
    WireResponse {
        code: head.split(' ').nth(1).unwrap().parse().unwrap(),
        media_type: header("content-type"),
        body: if header("transfer-encoding") == "chunked" { dechunk(body) } else { body.to_vec() },
    }
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let length = usize::from_str_radix(str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 2 + length + 2..];
    }
    body
}
