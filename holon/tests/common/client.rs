//! HTTP/1.1 over TLS, one connection per request, and nothing that a library would add or hide.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::common::Server;

pub(crate) struct Client {
    address: String,
    tls: Arc<ClientConfig>,
    /// Lines that go with every request.
    headers: String,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Every value of a header, in order.
    pub(crate) fn header(&self, name: &str) -> String {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> =
            lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
        values.join(", ")
    }
}

impl Client {
    pub(crate) fn new(server: &Server, with_certificate: bool) -> Client {
        let kubeconfig = std::fs::read_to_string(server.file("admin.kubeconfig")).unwrap();
        let field = |name: &str| {
            let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
            decode64(line.trim_start_matches(':').trim())
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&field("certificate-authority-data")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let tls = if with_certificate {
            let chain = vec![CertificateDer::from_pem_slice(&field("client-certificate-data")).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(&field("client-key-data")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        Client { address: server.url.replace("https://", ""), tls: Arc::new(tls), headers: String::new() }
    }

    /// The same client, sending this line with every request: `Accept: text/plain`.
    pub(crate) fn with(&self, header: &str) -> Client {
        let headers = format!("{}{header}\r\n", self.headers);
        Client { address: self.address.clone(), tls: self.tls.clone(), headers }
    }

    fn open(&self, method: &str, path: &str, body: &str) -> StreamOwned<ClientConnection, TcpStream> {
        let tcp = TcpStream::connect(&self.address).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(self.tls.clone(), name).unwrap(), tcp);
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let kind = match self.headers.contains("Content-Type") {
            true => String::new(),
            false => format!("Content-Type: {kind}\r\n"),
        };
        // Unless somebody wants to lie about it.
        let length = match self.headers.contains("Content-Length") {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: holon\r\nConnection: close\r\n{kind}{}{length}\r\n",
            self.headers
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.say(method, path, &if body.is_null() { String::new() } else { body.to_string() })
    }

    /// The same, with a body that need not be JSON.
    pub(crate) fn say(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut bytes = Vec::new();
        // A peer that closes without saying goodbye first is an error to TLS, and none to us.
        let _ = self.open(method, path, body).read_to_end(&mut bytes);
        // Compressed bodies are not text; what their tests look at is the head.
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { code, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    /// The events of a watch that ends after some seconds.
    pub(crate) fn watched(&self, path: &str) -> Vec<(String, Value)> {
        let body = self.get(path).body;
        // Each event is a line of JSON; what is between them is the framing of the stream.
        let lines = body.lines().filter(|line| line.starts_with('{'));
        let events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"].clone())).collect()
    }
}

fn decode64(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}
