//! Assembles a server: store, certificates, API server, controllers and physical clusters.

mod advertise;
mod upgrade;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::cluster::Path;
use apiserver::audit::Audit;
use apiserver::authn::service_accounts::Accounts;
use apiserver::authn::token_file::Tokens;
use apiserver::authz::access::Access;
use apiserver::authz::policy_index;
use apiserver::authz::policy_index::Index;
use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::{BootstrapOptions, BootstrapStore};
use apiserver::controllers::Controllers;
use apiserver::http::pki::{Authority, Offer, Serving, write_private};
use apiserver::http::server;
use apiserver::kinds::{Own, Registry};
use apiserver::quota::Quotas;
use apiserver::stack::Stack;
use clap::Args;
use controller::tasks::Tasks;
use splitter::ApiEndpoint;
use storage::Store;
use storage::embedded::{Embedded, Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use self::advertise::{AdvertiseAddress, AdvertisedAddress};
use crate::authz::reserved::ReservedObjects;
use crate::authz::roles;
use crate::fleet::streams::PodStreams;
use crate::process::version;
use crate::{data_dir, fleet, kubeconfig, state_key};

/// How long all tasks together may take to stop. A little longer than the API server waits for its connections.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

const HISTORY_SECONDS: u64 = 300;

#[derive(Args)]
pub(crate) struct ServerOptions {
    /// The directory for the store, the certificates and the administrator's kubeconfig
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// The address at which pods and other clients reach the server [default: the address it listens on]. Servers
    /// that share an etcd must use the same address
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise_address: Option<AdvertiseAddress>,
    /// Keep the store in this etcd, for example http://127.0.0.1:2379; can be repeated. Servers that share an etcd
    /// also share their certificate authority
    #[arg(long = "etcd-endpoints", value_delimiter = ',')]
    etcd_endpoints: Vec<String>,
    /// After a signal to stop, fail /readyz and keep serving for this long, so that load balancers notice
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    shutdown_delay: u64,
    /// Authenticate bearer tokens with this file. Each line is: token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Authenticate client certificates that are signed by an authority in this file. The server reloads the file
    /// when it changes
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Write an audit log of writes and denied requests to this file, as JSON lines. It is rotated at 100 MB; ten old
    /// files are kept
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Add a context for this logical cluster to admin.kubeconfig; can be repeated
    #[arg(long = "context", value_name = "PATH", value_delimiter = ',')]
    contexts: Vec<Path>,
    /// Connect to the physical clusters that are registered in this logical cluster; can be repeated. Its users
    /// decide which addresses the server connects to
    #[arg(long, value_name = "PATH", value_delimiter = ',', default_value = "root")]
    push_from: Vec<Path>,
    /// Encrypt the state of syncers on disk, which includes Secrets, with the key in this file: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
    /// How long to keep the history. A watch that was disconnected for longer has to list again
    #[arg(long, default_value_t = HISTORY_SECONDS, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    history_seconds: u64,
}

/// A running server.
pub(crate) struct RunningServer {
    pub(crate) stack: Arc<Stack>,
    /// `https://127.0.0.1:6443`
    pub(crate) server: String,
    /// The absolute path of the administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// When the server began to start.
    pub(crate) started: Instant,
}

/// The store and its access control.
struct OpenStore {
    /// The store as the API server reads it, with the bootstrap objects of every logical cluster.
    store_with_bootstrap: Arc<dyn Store>,
    access: Arc<Access>,
    kinds: Arc<Registry>,
    accounts: Arc<Accounts>,
}

impl ServerOptions {
    /// Returns the options of `holon dev`: the defaults, this directory, and these contexts in the administrator's
    /// kubeconfig.
    pub(crate) fn for_dev(data_dir: PathBuf, listen: SocketAddr, contexts: Vec<Path>) -> ServerOptions {
        ServerOptions {
            data_dir,
            listen,
            contexts,
            advertise_address: None,
            etcd_endpoints: Vec::new(),
            shutdown_delay: 0,
            token_auth_file: None,
            client_ca_file: None,
            audit_log: None,
            push_from: vec![Path::root()],
            state_key_file: None,
            history_seconds: HISTORY_SECONDS,
        }
    }

    /// Serves until a signal to stop. `ready` is called once the server answers; its result is kept until the end.
    pub(crate) async fn serve<T>(self, ready: impl AsyncFnOnce(&RunningServer) -> Result<T>) -> Result<()> {
        let started = Instant::now();
        let mut tasks = Tasks::new();
        let store = self.store(&mut tasks).await?;
        upgrade::upgrade(&*store).await?;
        let listener = TcpListener::bind(self.listen).await.with_context(|| {
            format!("cannot listen on {}; choose another address with --listen", self.listen)
        })?;
        let address = listener.local_addr().context("cannot read the address of the listener")?;
        let (server, advertised) =
            (format!("https://{address}"), AdvertisedAddress::new(self.advertise_address.as_ref(), address));
        let authority = self.authority(&*store).await?;
        let offer = self.certificates(&authority, address, &advertised, &mut tasks)?;
        let advertised_url = format!("https://{advertised}");
        write_private(&self.data_dir.join(data_dir::ADDRESS), &advertised_url)?;
        let kubeconfig = self.data_dir.join("admin.kubeconfig");
        write_private(&kubeconfig, &self.kubeconfig(&authority, &advertised_url)?)?;
        let open = self.open(store, &authority, address, &advertised, &mut tasks).await?;
        let store_with_bootstrap = open.store_with_bootstrap.clone();
        let streams = Arc::new(PodStreams::default());
        let stack = Arc::new(self.stack(open, &advertised, &tasks)?.with_connect(streams.clone()));
        let context = fleet::FleetContext {
            stack: stack.clone(),
            store: store_with_bootstrap,
            streams,
            directory: self.data_dir.join("syncers"),
            encryption_key: self.state_key_file.as_deref().map(state_key::read).transpose()?,
            push_from: self.push_from.clone(),
            pod_access: self.pod_access(&authority, &advertised),
            is_shared: !self.etcd_endpoints.is_empty(),
        };
        tasks.spawn("fleet", fleet::run(context, tasks.stop()));
        tasks.spawn("api server", server::serve(listener, offer, stack.clone(), tasks.stop()));
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        let running = RunningServer { stack: stack.clone(), server, kubeconfig, started };
        // As soon as the address is printed, a signal must not kill the process.
        let (mut first, mut both) = (StopSignals::listen()?, StopSignals::listen()?);
        let run_ready = async {
            let _kept = ready(&running).await?;
            std::future::pending::<Result<()>>().await
        };
        let stopped = async {
            first.next().await;
            println!("shutting down; waiting for requests in progress");
            stack.retire();
            tokio::time::sleep(Duration::from_secs(self.shutdown_delay)).await;
        };
        let second_signal = async {
            both.next().await;
            both.next().await;
        };
        tokio::select! {
            ended = tasks.run_until(stopped, STOP_TIMEOUT) => Ok(ended?),
            failed = run_ready => failed,
            () = second_signal => bail!("stopped immediately after a second signal"),
        }
    }

    /// Returns the certificate authority: that of this server, or the one that all servers of the etcd share.
    async fn authority(&self, store: &dyn Store) -> Result<Authority> {
        let dir = data_dir::pki(&self.data_dir);
        Ok(match self.etcd_endpoints.is_empty() {
            true => Authority::open(&dir)?,
            false => Authority::shared(&dir, store).await?,
        })
    }

    /// Returns the serving certificate, which is renewed while the server runs.
    fn certificates(
        &self,
        authority: &Authority,
        address: SocketAddr,
        advertised: &AdvertisedAddress,
        tasks: &mut Tasks,
    ) -> Result<watch::Receiver<Offer>> {
        let host = address.ip().to_string();
        let names = [&*host, &advertised.host, "127.0.0.1", "localhost", "kubernetes.default.svc"];
        let names: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        let names = names.into_iter().collect();
        let serving = Serving::new(authority.clone(), names, self.client_ca_file.clone());
        let (offered, offer) = watch::channel(serving.offer()?);
        tasks.spawn("certificates", serving.renew(offered, tasks.stop()));
        Ok(offer)
    }

    /// Opens the parts that the API server needs above the store, and starts its controllers.
    async fn open(
        &self,
        store: Arc<dyn Store>,
        authority: &Authority,
        listens: SocketAddr,
        advertised: &AdvertisedAddress,
        tasks: &mut Tasks,
    ) -> Result<OpenStore> {
        let address = advertised.address().unwrap_or(listens);
        let options = BootstrapOptions { authority: authority.certificate(), address };
        let mut objects = bootstrap::objects(&options);
        objects.extend(roles::bootstrap_objects());
        let index = Index::new(store.clone(), policy_index::shared(&objects));
        let store_with_bootstrap = BootstrapStore::open(store.clone(), objects).await;
        let store_with_bootstrap = store_with_bootstrap.context("cannot create the root logical cluster")?;
        let quotas = Arc::new(Quotas::new(store.clone()));
        let access = Arc::new(Access::new(store_with_bootstrap.clone(), index, quotas));
        let accounts = Arc::new(Accounts::new(store_with_bootstrap.clone(), format!("https://{advertised}")));
        let kinds = Arc::new(Registry::new(store.clone()).with_own(Own::read(api::fleet::DEFINITIONS)?));
        // No request may be answered before all definitions are loaded.
        kinds.load().await.context("cannot read the definitions of custom kinds")?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers =
            Controllers::new(store_with_bootstrap.clone(), store.clone(), authority.certificate().to_owned())
                .with_kinds(kinds.clone())
                .with_accounts(accounts.clone());
        match self.etcd_endpoints.is_empty() {
            true => tasks.spawn("controllers", controllers.run(tasks.stop())),
            false => tasks.spawn("controllers", controllers.run_if_leading(tasks.stop())),
        }
        let (following, mut stop) = (access.clone(), tasks.stop());
        tasks.spawn("roles and bindings", async move {
            tokio::select! {
                never = following.follow() => match never {},
                () = stop.requested() => Ok::<_, std::convert::Infallible>(()),
            }
        });
        Ok(OpenStore { store_with_bootstrap, access, kinds, accounts })
    }

    /// Returns the endpoint at which pods reach the server. `None` if its address is not known.
    fn pod_access(&self, authority: &Authority, advertised: &AdvertisedAddress) -> Option<ApiEndpoint> {
        if !advertised.is_specified() {
            tracing::warn!(
                "pods cannot reach their logical clusters: set --advertise-address to an address that they reach"
            );
            return None;
        }
        let AdvertisedAddress { host, port } = advertised.clone();
        Some(ApiEndpoint { host, port, authority: authority.certificate().to_owned() })
    }

    fn stack(&self, open: OpenStore, address: &AdvertisedAddress, tasks: &Tasks) -> Result<Stack> {
        let mut stack = Stack::new(open.store_with_bootstrap.clone(), address.to_string(), tasks.stop())
            .with_commit(version::COMMIT)
            .with_kinds(open.kinds)
            .with_guard(Arc::new(ReservedObjects::new(open.store_with_bootstrap)))
            .with_access(open.access)
            .with_accounts(open.accounts);
        if let Some(file) = &self.token_auth_file {
            stack = stack.with_tokens(Tokens::open(file)?);
        }
        if let Some(file) = &self.audit_log {
            let audit = Audit::open(file);
            stack = stack
                .with_audit(audit.with_context(|| format!("cannot open the audit log {}", file.display()))?);
        }
        Ok(stack)
    }

    async fn store(&self, tasks: &mut Tasks) -> Result<Arc<dyn Store>> {
        let history_age = Duration::from_secs(self.history_seconds);
        if !self.etcd_endpoints.is_empty() {
            let mut options = storage::etcd::Options::new(self.etcd_endpoints.iter().cloned());
            options.compaction = Some(storage::etcd::Compaction { every: history_age });
            let (store, feed) = storage::etcd::Etcd::connect(options).await?;
            // Controllers release their leases when they stop, and need the store for that.
            tasks.spawn_beneath("etcd feed", async move {
                feed.run().await;
                Err::<(), _>("the feed ended")
            });
            return Ok(Arc::new(store));
        }
        let dir = data_dir::store(&self.data_dir);
        // Opening reads all objects into memory, so it runs on a blocking thread.
        let options = Options { history_age, ..Options::default() };
        let opened = tokio::task::spawn_blocking(move || Embedded::open(&dir, options)).await;
        let opened = opened.context("cannot open the store")?;
        Ok(Arc::new(opened.map_err(|error| data_dir::explain(&self.data_dir, error))?))
    }

    fn kubeconfig(&self, authority: &Authority, server: &str) -> Result<String> {
        let admin = authority.client(kubeconfig::ADMIN.0, kubeconfig::ADMIN.1)?;
        // An explicit root keeps its position; otherwise it comes first.
        let mut paths = self.contexts.clone();
        if !paths.contains(&Path::root()) {
            paths.insert(0, Path::root());
        }
        Ok(kubeconfig::write(server, authority, (kubeconfig::ADMIN.0, &admin), &paths))
    }
}

/// The signals that ask the process to stop. While this value exists they do not kill it.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Counts the signals from now on.
    pub(crate) fn listen() -> Result<StopSignals> {
        let kind = |kind| signal(kind).context("cannot listen for signals");
        Ok(StopSignals {
            terminate: kind(SignalKind::terminate())?,
            interrupt: kind(SignalKind::interrupt())?,
        })
    }

    /// Returns at the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
