//! A server on a socket, and low-level clients of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::cluster::Id;
use apiserver::authn::token_file::Tokens;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::http::pki::{Authority, Serving};
use apiserver::http::server;
use apiserver::keys::Collection;
use apiserver::objects::stored;
use apiserver::stack::Stack;
use controller::tasks::Tasks;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use storage::embedded::{Embedded, Options};
use storage::{Change, Expect, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The limit for a prompt response, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(5);

/// A server with an administrator and some users with tokens.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    authority: Authority,
    _runtime: Runtime,
    _dir: TempDir,
    _tasks: Tasks,
}

pub(crate) type Connection = StreamOwned<ClientConnection, TcpStream>;

impl TestServer {
    pub(crate) fn new() -> TestServer {
        TestServer::holding(0)
    }

    /// The same with so many ConfigMaps of a kilobyte, of which two thirds are metadata.
    pub(crate) fn holding(objects: usize) -> TestServer {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (tasks, authority) = (Tasks::new(), Authority::open(&dir.path().join("pki")).unwrap());
        let address = runtime.block_on(serve(dir.path(), &authority, &tasks, objects));
        TestServer { address, authority, _runtime: runtime, _dir: dir, _tasks: tasks }
    }

    pub(crate) fn clients(&self) -> Clients {
        Clients { address: self.address, authority: self.authority.clone() }
    }
}

async fn serve(dir: &Path, authority: &Authority, tasks: &Tasks, objects: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // A small send buffer, so that the kernel buffers little for a client that does not read.
    socket2::SockRef::from(&listener).set_send_buffer_size(16 << 10).unwrap();
    let address = listener.local_addr().unwrap();
    let template = bootstrap::objects(&BootstrapOptions { authority: "a certificate", address });
    let engine = Embedded::open(&dir.join("store"), Options::default()).unwrap();
    let store = BootstrapStore::open(Arc::new(engine), template).await.unwrap();
    create_objects(&*store, objects).await;
    let tokens = dir.join("tokens.csv");
    std::fs::write(&tokens, "token-of-ann,ann,1\ntoken-of-bob,bob,2\n").unwrap();
    let stack =
        Stack::new(store, address.to_string(), tasks.stop()).with_tokens(Tokens::open(&tokens).unwrap());
    let serving = Serving::new(authority.clone(), vec!["127.0.0.1".to_owned()], None);
    let (offered, offer) = watch::channel(serving.offer().unwrap());
    let stop = tasks.stop();
    tokio::spawn(async move {
        let _offered = offered;
        server::serve(listener, offer, Arc::new(stack), stop).await
    });
    address
}

/// Creates ConfigMaps in the namespace default of the root.
async fn create_objects(store: &dyn Store, objects: usize) {
    let maps = Collection { group: "", plural: "configmaps" };
    let writes = (0..objects).map(|number| {
        let name = format!("map-{number}");
        // Random words, which do not compress well.
        let digits = |range: std::ops::Range<usize>| {
            let digits = range.map(|digit| (number * 32 + digit + 1) as u128 * 0x9e37_79b9_7f4a_7c15_f39c);
            digits.map(|digit| format!("{digit:032x}")).collect::<String>()
        };
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "default", "annotations": { "words": digits(0..20) } },
            "data": { "words": digits(20..32) },
        });
        let put = Change::Put(stored::encode(&object));
        store.commit(maps.key(Id::ROOT, Some("default"), &name), Expect::Absent, put)
    });
    futures::future::try_join_all(writes).await.unwrap();
}

/// A factory of clients of a server.
#[derive(Clone)]
pub(crate) struct Clients {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
}

impl Clients {
    /// Returns a client without credentials.
    pub(crate) fn anonymous(&self) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        Client { address: self.address, tls: Arc::new(tls), token: String::new() }
    }

    /// Returns the client of a user with a token.
    pub(crate) fn user(&self, name: &str) -> Client {
        Client { token: format!("Authorization: Bearer token-of-{name}\r\n"), ..self.anonymous() }
    }

    pub(crate) fn admin(&self) -> Client {
        let certificate = self.authority.client("admin", &["system:masters"]).unwrap();
        Client { tls: self.authority.client_tls(&certificate).unwrap(), ..self.anonymous() }
    }

    /// Creates a logical cluster below the root in which this user has all rights.
    pub(crate) fn tenant(&self, cluster: &str, user: &str) -> String {
        let admin = self.admin();
        let logical = "/apis/holon.dev/v1alpha1/logicalclusters";
        admin.create(logical, &json!({ "metadata": { "name": cluster } }));
        let path = format!("/clusters/root:{cluster}");
        let group = "rbac.authorization.k8s.io";
        for role in ["holon:access", "cluster-admin"] {
            let body = json!({
                "metadata": { "generateName": "made-for-a-test-" },
                "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": role },
                "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
            });
            admin.create(&format!("{path}/apis/{group}/v1/clusterrolebindings"), &body);
        }
        path
    }
}

/// An HTTP/1.1 client over TLS, one connection per request.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
    token: String,
}

impl Client {
    /// Returns the same client for HTTP/2.
    pub(crate) fn http2(mut self) -> Client {
        Arc::make_mut(&mut self.tls).alpn_protocols = vec![b"h2".to_vec()];
        self
    }

    /// Opens a connection on which nothing was sent yet.
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        self.connect_over(TcpStream::connect(self.address)?)
    }

    pub(crate) fn connect_over(&self, tcp: TcpStream) -> io::Result<Connection> {
        tcp.set_read_timeout(Some(Duration::from_secs(30)))?;
        let name = ServerName::try_from("127.0.0.1").unwrap();
        Ok(StreamOwned::new(ClientConnection::new(self.tls.clone(), name).unwrap(), tcp))
    }

    /// Returns the head of a request with a body of this length.
    pub(crate) fn head(&self, method: &str, path: &str, length: usize) -> String {
        let kind = "Content-Type: application/json";
        let token = &self.token;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: holon\r\n{token}{kind}\r\nContent-Length: {length}\r\n\r\n"
        )
    }

    /// Returns the code and the body of the response.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let mut stream = self.connect()?;
        let head =
            self.head(method, path, body.len()).replacen("\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1);
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut bytes = Vec::new();
        // A peer that closes without close_notify is an error to TLS, but not to this client.
        let read = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let answer = text
            .split_once("\r\n\r\n")
            .and_then(|(head, body)| Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned())));
        answer.ok_or_else(|| read.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))
    }

    pub(crate) fn create(&self, path: &str, object: &Value) {
        let (code, body) = self.send("POST", path, &object.to_string()).unwrap();
        assert_eq!(code, 201, "{body}");
    }

    /// Expects this status code, and a prompt response.
    #[track_caller]
    pub(crate) fn is_promptly_answered(&self, method: &str, path: &str, body: &str, expected: u16) {
        let begun = Instant::now();
        let answer = self.send(method, path, body);
        let took = begun.elapsed();
        match answer {
            Ok((code, _)) if code == expected && took < PROMPTLY => {}
            other => panic!("{method} {path}: {other:?} after {took:?}, expected {expected} promptly"),
        }
    }
}
