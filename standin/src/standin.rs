//! Starting, killing and restarting a stand-in.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use api::metrics;
use apiserver::authn::service_accounts::Accounts;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore, Template};
use apiserver::clusters::records;
use apiserver::clusters::records::LogicalClusterRecord;
use apiserver::controllers::Controllers;
use apiserver::http::pki::{Authority, PkiError, Serving};
use apiserver::http::server;
use apiserver::kinds::Registry;
use apiserver::stack::Stack;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::tasks::{TaskError, Tasks};
use storage::memory::Memory;
use storage::{CommitError, ReadError, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::containers::{Containers, Files};
use crate::counts::{Counter, Counts};
use crate::door::Door;
use crate::faults::Faults;
use crate::hands::Hands;
use crate::link;
use crate::local::Caller;
use crate::logs::Logs;
use crate::node::pace::Pace;
use crate::node::register::NodeShape;
use crate::run::Runner;

/// How long everything may take to stop when asked to.
const STOP_WITHIN: Duration = Duration::from_secs(15);
/// What every stand-in has at first: enough for examples, little enough to run out of.
const NODES: usize = 2;

/// What a stand-in is like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its nodes are called after it.
    pub name: String,
    pub nodes: Vec<NodeShape>,
    pub pace: Pace,
    pub clock: Clock,
    /// Whether it says how much is used, as one with a metrics server does.
    pub measures: bool,
    /// Where its objects are kept; in memory if nobody says.
    pub store: Option<Arc<dyn Store>>,
    /// Where its certificates are; in a directory of its own that goes with it if nobody says.
    pub dir: Option<PathBuf>,
    /// Where it listens; on a port of the kernel's choice if nobody says.
    pub listen: SocketAddr,
}

impl Options {
    /// Two nodes, everything at once, in memory.
    pub fn new(name: impl Into<String>) -> Options {
        let name = name.into();
        let node = |number| NodeShape::new(format!("{name}-{number}"), "8", "32Gi", 110);
        Options {
            nodes: (1..=NODES).map(node).collect(),
            name,
            pace: Pace::INSTANT,
            clock: Clock::running(),
            measures: false,
            store: None,
            dir: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use a directory for certificates: {0}")]
    Dir(io::Error),
    #[error("cannot listen: {0}")]
    Listen(io::Error),
    #[error("cannot make certificates: {0}")]
    Certificates(#[from] PkiError),
    #[error("cannot prepare the store: {0}")]
    Prepare(#[from] CommitError),
    #[error("cannot read the store: {0}")]
    Read(#[from] ReadError),
    #[error("cannot make a client: {0}")]
    Client(#[from] kube::Error),
}

/// A stand-in for a physical cluster. Dropping it kills it.
#[derive(Debug)]
pub struct Standin {
    options: Options,
    store: Arc<dyn Store>,
    authority: Authority,
    /// Where clients reach it, whatever becomes of what is behind.
    address: SocketAddr,
    faults: Arc<Faults>,
    counter: Arc<Counter>,
    logs: Arc<Logs>,
    files: Arc<Files>,
    frozen: watch::Sender<bool>,
    /// The door while it lives.
    door: watch::Sender<Option<Arc<Door>>>,
    /// All its tasks, as one.
    running: JoinSet<Result<(), TaskError>>,
    /// Goes when the stand-in does.
    _dir: Option<TempDir>,
}

impl Standin {
    /// Starts one, and returns when it answers.
    pub async fn start(options: Options) -> Result<Standin, StartError> {
        let own = match &options.dir {
            Some(_) => None,
            None => Some(tempfile::tempdir().map_err(StartError::Dir)?),
        };
        let dir =
            own.as_ref().map(|own| own.path().to_owned()).or_else(|| options.dir.clone()).unwrap_or_default();
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
            door: watch::Sender::new(None),
            running: JoinSet::new(),
            _dir: own,
        };
        standin.launch(listener).await?;
        Ok(standin)
    }

    async fn launch(&mut self, listener: TcpListener) -> Result<(), StartError> {
        let mut tasks = Tasks::new();
        let surroundings =
            BootstrapOptions { authority: self.authority.certificate(), address: self.address };
        let template = Template::new(bootstrap::objects(&surroundings));
        let seen: Arc<dyn Store> = Arc::new(BootstrapStore::new(self.store.clone(), template));
        records::write(&*seen, Id::ROOT, &LogicalClusterRecord::root()).await?;
        let kinds = Arc::new(Registry::new(self.store.clone()));
        kinds.load().await?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let certificate = self.authority.certificate().to_owned();
        let accounts = Arc::new(Accounts::new(seen.clone(), format!("https://{}", self.address)));
        let controllers = Controllers::new(seen.clone(), self.store.clone(), certificate)
            .with_kinds(kinds.clone())
            .with_accounts(accounts.clone());
        tasks.spawn("cluster controllers", controllers.run(tasks.stop()));
        let containers = Arc::new(Containers::new(self.logs.clone(), self.files.clone()));
        let stack = Stack::new(seen.clone(), self.address.to_string(), tasks.stop())
            .with_kinds(kinds)
            .with_accounts(accounts)
            .with_connect(containers.clone());
        let stack = Arc::new(stack);
        containers.behind(&stack);
        let hands =
            Hands::new(stack.clone(), self.logs.clone(), self.files.clone(), self.options.clock.clone());
        if self.options.measures {
            hands.define(metrics::definitions()).await;
        }
        let runner = Runner {
            store: seen,
            hands,
            clock: self.options.clock.clone(),
            pace: self.options.pace,
            nodes: self.options.nodes.clone(),
            frozen: self.frozen.subscribe(),
        };
        tasks.spawn("workloads and nodes", runner.run(tasks.stop()));
        let door = Arc::new(Door { stack, faults: self.faults.clone(), counter: self.counter.clone() });
        self.listen(listener, door.clone(), &mut tasks).await?;
        self.door.send_replace(Some(door));
        self.running.spawn(tasks.run_until(std::future::pending(), STOP_WITHIN));
        Ok(())
    }

    async fn listen(
        &self,
        listener: TcpListener,
        door: Arc<Door>,
        tasks: &mut Tasks,
    ) -> Result<(), StartError> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let own = self.address.ip().to_string();
        let names: Vec<String> = names.into_iter().filter(|name| *name != own).chain([own.clone()]).collect();
        let serving = Serving::new(self.authority.clone(), names, None);
        let (offered, offer) = watch::channel(serving.offer()?);
        tasks.spawn("certificates", serving.renew(offered, tasks.stop()));
        let behind =
            TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.map_err(StartError::Listen)?;
        let address = behind.local_addr().map_err(StartError::Listen)?;
        tasks.spawn("api server", server::serve(behind, offer, door, tasks.stop()));
        tasks.spawn("link", link::relay(listener, address, self.faults.link(), tasks.stop()));
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Where it is reached over TLS. It stays the same when it is killed and restarted.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What an administrator needs to reach it, as kubectl takes it.
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

    /// An administrator's client without a socket. Link, faults and counts are the same; it outlives a restart.
    pub fn client(&self) -> kube::Client {
        let caller = Caller { door: self.door.subscribe(), link: self.faults.link() };
        kube::Client::new(caller, "default")
    }

    /// What may go wrong between it and its clients.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What it was asked for from outside, since it was first started.
    pub fn requests(&self) -> Counts {
        self.counter.read()
    }

    pub fn clock(&self) -> &Clock {
        &self.options.clock
    }

    /// Stops controllers and nodes: what is written is kept, and nothing comes of it.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Ends it in the middle of whatever it does. Connections break; the store stays as it is.
    pub async fn kill(&mut self) {
        self.door.send_replace(None);
        self.running.shutdown().await;
    }

    /// Starts it again where it was, on the same store and the same port.
    pub async fn restart(&mut self) -> Result<(), StartError> {
        self.kill().await;
        let listener = link::bind(self.address).await;
        self.launch(listener).await
    }

    /// Returns if a part of it ends by itself, with its name: for whoever keeps one running.
    pub async fn ended(&mut self) -> String {
        match self.running.join_next().await {
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(error)) => error.to_string(),
            Some(Ok(Ok(()))) | None => "it was stopped".to_owned(),
        }
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        // Clients in this process may outlive it, and must not reach half of it.
        self.door.send_replace(None);
    }
}
