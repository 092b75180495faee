//! A minimal HTTP/1.1 client over TLS, one connection per request, without the additions and omissions of a library.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

use crate::objects::items;
use crate::server::Server;

/// A client of one server, with its credentials and headers.
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
    authority: Vec<u8>,
    pub tls: Arc<ClientConfig>,
    /// Header lines of every request.
    headers: String,
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    head: String,
    pub body: String,
}

impl Answer {
    /// Returns whether the body ends with a WebSocket close frame with code 1000. Not all of that is valid text.
    pub fn is_closed(&self) -> bool {
        self.body.ends_with(&*String::from_utf8_lossy(&[0x88, 2, 0x03, 0xe8]))
    }

    /// Returns the body as JSON. Panics if it is not JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        let body = self.decoded_body();
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Returns the body, decoded if it is chunked.
    fn decoded_body(&self) -> String {
        if self.header("Transfer-Encoding") != "chunked" {
            return self.body.clone();
        }
        let (mut decoded_body, mut rest) = (String::new(), self.body.as_str());
        while let Some((length, after)) = rest.split_once("\r\n") {
            let chunk =
                usize::from_str_radix(length, 16).ok().and_then(|length| after.split_at_checked(length));
            let Some((chunk, left)) = chunk.filter(|(chunk, _)| !chunk.is_empty()) else { break };
            decoded_body += chunk;
            rest = left.trim_start_matches("\r\n");
        }
        decoded_body
    }

    /// Returns all values of a header, in order.
    pub fn header(&self, name: &str) -> String {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> =
            lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
        values.join(", ")
    }
}

/// A connection over TLS.
pub type Connection = StreamOwned<ClientConnection, TcpStream>;

fn tls(authority: &[u8], client_certificate: Option<(&[u8], &[u8])>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for trusted in CertificateDer::pem_slice_iter(authority) {
        roots.add(trusted.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    match client_certificate {
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key).unwrap()).unwrap()
        }
        None => builder.with_no_client_auth(),
    }
}

impl Client {
    /// Returns a client with the administrator's certificate.
    #[track_caller]
    pub fn admin(server: &Server) -> Client {
        Client::new(server, true)
    }

    /// Returns a client without credentials.
    #[track_caller]
    pub fn anonymous(server: &Server) -> Client {
        Client::new(server, false)
    }

    #[track_caller]
    fn new(server: &Server, with_certificate: bool) -> Client {
        let kubeconfig = std::fs::read_to_string(server.file("admin.kubeconfig")).unwrap();
        let field = |name: &str| {
            let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(name)).unwrap();
            from_base64(line.trim_start_matches(':').trim())
        };
        let client_certificate =
            with_certificate.then(|| (field("client-certificate-data"), field("client-key-data")));
        let authority = field("certificate-authority-data");
        let client_certificate =
            client_certificate.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let tls = Arc::new(tls(&authority, client_certificate));
        Client { address: server.url.replace("https://", ""), authority, tls, headers: String::new() }
    }

    /// Returns a client that knows the server's address and authority, and has no credentials.
    pub fn trusting(address: &str, authority: &str) -> Client {
        let authority = authority.as_bytes().to_vec();
        let tls = Arc::new(tls(&authority, None));
        Client { address: address.to_owned(), authority, tls, headers: String::new() }
    }

    /// Returns the same client with this client certificate.
    pub fn showing(&self, certificate: &str, key: &str) -> Client {
        let tls = Arc::new(tls(&self.authority, Some((certificate.as_bytes(), key.as_bytes()))));
        Client { tls, ..self.with("") }
    }

    /// Returns the same client with this additional header line, for example `Accept: text/plain`.
    pub fn with(&self, header: &str) -> Client {
        let line = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        let headers = format!("{}{line}", self.headers);
        let (address, authority) = (self.address.clone(), self.authority.clone());
        Client { address, authority, tls: self.tls.clone(), headers }
    }

    /// Returns the same client, which requests an upgrade to WebSocket.
    pub fn over_websocket(&self) -> Client {
        let upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"];
        let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        upgrade.iter().fold(self.with(key).with("Origin: https://holon"), |client, line| client.with(line))
    }

    /// Returns the same client for a server whose address may have changed.
    pub fn at(&self, server: &Server) -> Client {
        Client { address: server.url.replace("https://", ""), ..self.with("") }
    }

    /// Opens a connection on which nothing was sent yet.
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> io::Result<Connection> {
        let tcp = TcpStream::connect(&self.address)?;
        tcp.set_read_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Ok(StreamOwned::new(ClientConnection::new(self.tls.clone(), name).unwrap(), tcp))
    }

    fn open(&self, method: &str, path: &str, body: &str) -> io::Result<Connection> {
        let mut stream = self.try_connect()?;
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let kind = match self.headers.contains("Content-Type") {
            true => String::new(),
            false => format!("Content-Type: {kind}\r\n"),
        };
        // Unless the test sets a wrong length on purpose.
        let length = match self.headers.contains("Content-Length") {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: holon\r\nConnection: close\r\n{kind}{}{length}\r\n",
            self.headers
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        Ok(stream)
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.say(method, path, &if body.is_null() { String::new() } else { body.to_string() })
    }

    /// The same with a body that need not be JSON.
    pub fn say(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_say(method, path, body).unwrap_or_else(|| panic!("no response to {method} {path}"))
    }

    /// Returns `None` if the server cannot be reached.
    pub fn try_get(&self, path: &str) -> Option<Answer> {
        self.try_say("GET", path, "")
    }

    /// The same with a body that need not be JSON. Returns `None` if the server cannot be reached.
    pub fn try_say(&self, method: &str, path: &str, body: &str) -> Option<Answer> {
        let mut bytes = Vec::new();
        // A peer that closes without close_notify is an error to TLS, but not to this client.
        let _ = self.open(method, path, body).ok()?.read_to_end(&mut bytes);
        // Compressed bodies are not text; tests of them only check the head.
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { code, head: head.to_owned(), body: body.to_owned() })
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &Value::Null)
    }

    /// Returns the objects of a collection.
    pub fn list(&self, path: &str) -> Vec<Value> {
        items(&self.get(path).json())
    }

    /// Creates an object, which must succeed, and returns it.
    #[track_caller]
    pub fn create(&self, path: &str, object: &Value) -> Value {
        let answer = self.ask("POST", path, object);
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
        answer.json()
    }

    /// Creates the logical cluster of a path, for example `root:team-a`. Returns the prefix of its URLs.
    #[track_caller]
    pub fn create_logical_cluster(&self, path: &str) -> String {
        let (parent, name) = path.rsplit_once(':').expect("the path of a logical cluster in another one");
        let collection = format!("/clusters/{parent}/apis/holon.dev/v1alpha1/logicalclusters");
        self.create(&collection, &json!({ "metadata": { "name": name } }));
        format!("/clusters/{path}")
    }

    /// Binds a cluster role to `User ann` or `Group dev`, in the logical cluster at `/clusters/…`, or in the root.
    #[track_caller]
    pub fn bind(&self, cluster: &str, role: &str, subject: &str) {
        let (kind, name) = subject.split_once(' ').expect("a kind and a name");
        let group = "rbac.authorization.k8s.io";
        let body = json!({
            "metadata": { "generateName": "made-for-a-test-" },
            "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
            "subjects": [{ "apiGroup": group, "kind": kind, "name": name }],
        });
        self.create(&format!("{cluster}/apis/{group}/v1/clusterrolebindings"), &body);
    }

    /// Returns the events of a watch that ends after some seconds.
    pub fn watched(&self, path: &str) -> Vec<(String, Value)> {
        let body = self.get(path).body;
        // Each event is a line of JSON; the lines between are the framing of the chunks.
        let lines = body.lines().filter(|line| line.starts_with('{'));
        let events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.map(|event| (event["type"].as_str().unwrap().to_owned(), event["object"].clone())).collect()
    }
}

/// Encodes text as base64.
pub fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

/// Decodes base64. Panics if it is not valid.
#[track_caller]
pub fn from_base64(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}
