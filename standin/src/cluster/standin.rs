//! Starts, kills and restarts a stand-in.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::metrics;
use apiserver::authn::service_accounts::Accounts;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::http::pki::{Authority, PkiError, Serving};
use apiserver::http::server;
use apiserver::kinds::Registry;
use apiserver::stack::Stack;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::tasks::{KeyedTasks, TaskError, Tasks};
use storage::memory::Memory;
use storage::{CommitError, ReadError, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::link;
use crate::clock::Clock;
use crate::cluster::executor::Executor;
use crate::cluster::faults::Faults;
use crate::cluster::frontend::Frontend;
use crate::cluster::local::LocalTransport;
use crate::cluster::requests::{RequestCounter, RequestCounts};
use crate::cluster::runner::Runner;
use crate::containers::logs::Logs;
use crate::containers::{ContainerFiles, Containers};
use crate::node::delays::Delays;
use crate::node::nodes::NodeShape;

/// How long its tasks may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// The default number of nodes: enough for examples, few enough to exhaust.
const NODES: usize = 2;

/// The configuration of a stand-in.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its nodes have this prefix.
    pub name: String,
    pub nodes: Vec<NodeShape>,
    pub delays: Delays,
    pub clock: Clock,
    /// Whether it serves metrics.k8s.io, as a cluster with a metrics server does.
    pub metrics_server: bool,
    /// The store of its objects; by default in memory.
    pub store: Option<Arc<dyn Store>>,
    /// The directory of its certificates; by default a temporary one.
    pub dir: Option<PathBuf>,
    /// The address on which it listens; by default a free port.
    pub listen: SocketAddr,
}

impl Options {
    /// Returns the default options: two nodes, no delays, in memory.
    pub fn new(name: impl Into<String>) -> Options {
        let name = name.into();
        let node = |number| NodeShape::new(format!("{name}-{number}"), "8", "32Gi", 110);
        Options {
            nodes: (1..=NODES).map(node).collect(),
            name,
            delays: Delays::NONE,
            clock: Clock::running(),
            metrics_server: false,
            store: None,
            dir: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot create a directory for certificates: {0}")]
    Dir(io::Error),
    #[error("cannot listen: {0}")]
    Listen(io::Error),
    #[error("cannot create certificates: {0}")]
    Certificates(#[from] PkiError),
    #[error("cannot prepare the store: {0}")]
    Prepare(#[from] CommitError),
    #[error("cannot read the store: {0}")]
    Read(#[from] ReadError),
    #[error("cannot create a client: {0}")]
    Client(#[from] kube::Error),
}

/// A stand-in for a physical cluster. Dropping it kills it.
#[derive(Debug)]
pub struct Standin {
    options: Options,
    store: Arc<dyn Store>,
    authority: Authority,
    /// The address for clients. It stays the same across restarts.
    address: SocketAddr,
    faults: Arc<Faults>,
    counter: Arc<RequestCounter>,
    logs: Arc<Logs>,
    files: Arc<ContainerFiles>,
    frozen: watch::Sender<bool>,
    /// The frontend; `None` while the stand-in is killed.
    frontend: watch::Sender<Option<Arc<Frontend>>>,
    /// The one group of all its tasks.
    running: KeyedTasks<(), Result<(), TaskError>>,
    /// Deleted with the stand-in.
    _dir: Option<TempDir>,
}

impl Standin {
    /// Starts a stand-in, and returns when it serves requests.
    pub async fn start(options: Options) -> Result<Standin, StartError> {
        let temporary = match &options.dir {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(StartError::Dir)?),
        };
        let dir = temporary
            .as_ref()
            .map(|dir| dir.path().to_owned())
            .or_else(|| options.dir.clone())
            .unwrap_or_default();
        let listener = TcpListener::bind(options.listen).await.map_err(StartError::Listen)?;
        let mut standin = Standin {
            store: options.store.clone().unwrap_or_else(|| Arc::new(Memory::new())),
            authority: Authority::open(&dir)?,
            address: listener.local_addr().map_err(StartError::Listen)?,
            options,
            faults: Arc::default(),
            counter: Arc::default(),
            logs: Arc::default(),
            files: Arc::default(),
            frozen: watch::Sender::new(false),
            frontend: watch::Sender::new(None),
            running: KeyedTasks::default(),
            _dir: temporary,
        };
        standin.launch(listener).await?;
        Ok(standin)
    }

    async fn launch(&mut self, listener: TcpListener) -> Result<(), StartError> {
        let mut tasks = Tasks::new();
        let options = BootstrapOptions { authority: self.authority.certificate(), address: self.address };
        let bootstrap_store = BootstrapStore::open(self.store.clone(), bootstrap::objects(&options)).await?;
        let kinds = Arc::new(Registry::new(self.store.clone()));
        kinds.load().await?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let certificate = self.authority.certificate().to_owned();
        let accounts = Arc::new(Accounts::new(bootstrap_store.clone(), format!("https://{}", self.address)));
        let controllers = Controllers::new(bootstrap_store.clone(), self.store.clone(), certificate)
            .with_kinds(kinds.clone())
            .with_accounts(accounts.clone());
        tasks.spawn("cluster controllers", controllers.run(tasks.stop()));
        let containers = Arc::new(Containers::new(self.logs.clone(), self.files.clone()));
        let stack = Stack::new(bootstrap_store.clone(), self.address.to_string(), tasks.stop())
            .with_kinds(kinds)
            .with_accounts(accounts)
            .with_connect(containers.clone());
        let stack = Arc::new(stack);
        containers.set_server(&stack);
        let executor =
            Executor::new(stack.clone(), self.logs.clone(), self.files.clone(), self.options.clock.clone());
        if self.options.metrics_server {
            executor.create_definitions(metrics::definitions()).await;
        }
        let runner = Runner {
            store: bootstrap_store,
            executor,
            clock: self.options.clock.clone(),
            delays: self.options.delays,
            nodes: self.options.nodes.clone(),
            frozen: self.frozen.subscribe(),
        };
        tasks.spawn("workloads and nodes", runner.run(tasks.stop()));
        let frontend =
            Arc::new(Frontend { stack, faults: self.faults.clone(), counter: self.counter.clone() });
        self.listen(listener, frontend.clone(), &mut tasks).await?;
        self.frontend.send_replace(Some(frontend));
        self.running.spawn((), tasks.run_until(std::future::pending(), STOP_TIMEOUT));
        Ok(())
    }

    async fn listen(
        &self,
        listener: TcpListener,
        frontend: Arc<Frontend>,
        tasks: &mut Tasks,
    ) -> Result<(), StartError> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let own_address = self.address.ip().to_string();
        let names: Vec<String> =
            names.into_iter().filter(|name| *name != own_address).chain([own_address.clone()]).collect();
        let serving = Serving::new(self.authority.clone(), names, None);
        let (offered, offer) = watch::channel(serving.offer()?);
        tasks.spawn("certificates", serving.renew(offered, tasks.stop()));
        let behind_link =
            TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.map_err(StartError::Listen)?;
        let address = behind_link.local_addr().map_err(StartError::Listen)?;
        tasks.spawn("api server", server::serve(behind_link, offer, frontend, tasks.stop()));
        tasks.spawn("link", link::relay(listener, address, self.faults.link(), tasks.stop()));
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Returns its TLS address, which stays the same across restarts.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> Result<String, StartError> {
        let admin = self.authority.client("standin-admin", &["system:masters"])?;
        let [ca, certificate, key] =
            [self.authority.certificate(), &admin.certificate, &admin.key].map(|text| STANDARD.encode(text));
        let (name, address) = (&self.options.name, self.address);
        Ok(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\n\
             clusters:\n- name: {name}\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {ca}\n\
             contexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n\
             users:\n- name: {name}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
        ))
    }

    /// Returns a client of an administrator without a socket. Link, faults and counts apply to it; it works again after
    /// a restart.
    pub fn client(&self) -> kube::Client {
        let transport = LocalTransport { frontend: self.frontend.subscribe(), link: self.faults.link() };
        kube::Client::new(transport, "default")
    }

    /// Returns the faults between the stand-in and its clients.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the requests of its clients since it was first started.
    pub fn requests(&self) -> RequestCounts {
        self.counter.read()
    }

    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// Stops controllers and nodes. The API server continues.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Aborts all its tasks. Connections break; the store stays as it is.
    pub async fn kill(&mut self) {
        self.frontend.send_replace(None);
        self.running.shutdown().await;
    }

    /// Kills it and starts it again on the same store and port.
    pub async fn restart(&mut self) -> Result<(), StartError> {
        self.kill().await;
        let listener = link::bind(self.address).await;
        self.launch(listener).await
    }

    /// Waits until one of its tasks ends by itself. Returns its name and the reason.
    pub async fn ended(&mut self) -> String {
        match self.running.next_ended().await {
            Some((_, Ok(Err(error)))) => error.to_string(),
            Some((_, Err(panic))) => panic,
            Some((_, Ok(Ok(())))) | None => "it was stopped".to_owned(),
        }
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        // Clients in this process may outlive it.
        self.frontend.send_replace(None);
    }
}
