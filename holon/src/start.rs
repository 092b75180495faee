//! `holon start`: serve logical clusters until told to stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::cluster::{Id, Path};
use apiserver::audit::Audit;
use apiserver::auth::access::Access;
use apiserver::auth::accounts::Accounts;
use apiserver::auth::rbac::index::{self, Index};
use apiserver::births::Birth;
use apiserver::controllers::Controllers;
use apiserver::kinds::{Own, Registry};
use apiserver::newborn::{Newborn, Surroundings, Template};
use apiserver::pki::{Authority, Serving, write_private};
use apiserver::quotas::Quotas;
use apiserver::stack::Stack;
use apiserver::tokens::Tokens;
use apiserver::{births, newborn, server};
use clap::Args;
use controller::tasks::Tasks;
use storage::Store;
use storage::embedded::{Embedded, Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::{fleet, kubeconfig};

/// How long everything together may take to stop. A little more than the server gives its connections.
const STOP_WITHIN: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct Start {
    /// Where to keep the store, the certificates and the administrator's kubeconfig
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Keep the store in this etcd instead, for instance http://127.0.0.1:2379; may be given several times
    #[arg(long = "etcd-endpoints", value_delimiter = ',')]
    etcd_endpoints: Vec<String>,
    /// Once told to stop, fail /readyz and go on serving for so long, until load balancers have noticed
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    shutdown_delay: u64,
    /// Know clients also by the bearer tokens in this file: a line each of token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,
    /// Know clients also by certificates of the authorities in this file; read again when it changes
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
    /// Note who changed what and who was refused in this file, a line of JSON each; it and ten older ones beside it
    /// grow to 100 MB each
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Write a context for this logical cluster, too, into admin.kubeconfig; may be given several times
    #[arg(long = "context", value_name = "PATH", value_delimiter = ',')]
    contexts: Vec<Path>,
    /// Connect to the physical clusters of this logical cluster: whoever writes them decides where the server connects to
    #[arg(long, value_name = "PATH", value_delimiter = ',', default_value = "root")]
    push_from: Vec<Path>,
    /// How long the past is kept: a client that was away for longer has to list everything again
    #[arg(long, default_value_t = 300, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    history_seconds: u64,
}

impl Start {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let begun = Instant::now();
        let mut tasks = Tasks::new();
        let kept = self.store(&mut tasks).await?;
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("listening on {}; choose another address with --listen", self.listen))?;
        let address = listener.local_addr().context("asking for the address")?;
        let authority = Authority::open(&self.data_dir.join("pki"))?;
        let names = [
            address.ip().to_string(),
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        let serving = Serving::new(authority.clone(), names.to_vec(), self.client_ca_file.clone());
        let (offered, offer) = tokio::sync::watch::channel(serving.offer()?);
        tasks.spawn("certificates", serving.renew(offered, tasks.stop()));
        let server = format!("https://{address}");
        write_private(&self.data_dir.join(kubeconfig::ADDRESS), &server)?;
        let kubeconfig = self.data_dir.join("admin.kubeconfig");
        write_private(&kubeconfig, &self.kubeconfig(&authority, &server)?)?;

        let surroundings = Surroundings { authority: authority.certificate(), address };
        let objects = newborn::objects(&surroundings);
        let index = Index::new(kept.clone(), index::shared(&objects));
        let seen: Arc<dyn Store> = Arc::new(Newborn::new(kept.clone(), Template::new(objects)));
        let access = Arc::new(Access::new(seen.clone(), index, Arc::new(Quotas::new(kept.clone()))));
        births::write(&*seen, Id::ROOT, &Birth::root())
            .await
            .context("preparing the root logical cluster")?;
        let accounts = Arc::new(Accounts::new(seen.clone(), server.clone()));
        let kinds = Arc::new(Registry::new(kept.clone()).with_own(Own::read(api::fleet::DEFINITIONS)?));
        // Nobody is answered before it is known what there is.
        kinds.load().await.context("reading what logical clusters define")?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers = Controllers::new(seen.clone(), kept, authority.certificate().to_owned())
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
        let found = seen.clone();
        let stack = Stack::new(seen, address.to_string(), tasks.stop())
            .with_kinds(kinds)
            .with_access(access)
            .with_accounts(accounts);
        let stack = match &self.token_auth_file {
            Some(file) => stack.with_tokens(Tokens::open(file)?),
            None => stack,
        };
        let stack = Arc::new(match &self.audit_log {
            Some(file) => stack.with_audit(
                Audit::open(file).with_context(|| format!("opening the audit log {}", file.display()))?,
            ),
            None => stack,
        });
        let inside = fleet::Inside {
            stack: stack.clone(),
            store: found,
            directory: self.data_dir.join("syncers"),
            push_from: self.push_from.clone(),
        };
        tasks.spawn("fleet", fleet::run(inside, tasks.stop()));
        tasks.spawn("api server", server::serve(listener, offer, stack.clone(), tasks.stop()));
        println!("Holon serves {server}, ready after {:.0?}. Next, type:", begun.elapsed());
        let absolute = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        println!("  export KUBECONFIG={}", absolute.display());
        println!("  kubectl get namespaces");
        let stopped = async {
            stop_signal().await;
            println!("stopping; requests under way may finish");
            stack.retire();
            tokio::time::sleep(Duration::from_secs(self.shutdown_delay)).await;
        };
        let again = async {
            stop_signal().await;
            stop_signal().await;
        };
        tokio::select! {
            done = tasks.run_until(stopped, STOP_WITHIN) => done?,
            () = again => bail!("stopped at once, as asked a second time"),
        }
        Ok(())
    }

    async fn store(&self, tasks: &mut Tasks) -> Result<Arc<dyn Store>> {
        let history_age = Duration::from_secs(self.history_seconds);
        if !self.etcd_endpoints.is_empty() {
            let mut options = storage::etcd::Options::new(self.etcd_endpoints.iter().cloned());
            options.compaction = Some(storage::etcd::Compaction { every: history_age });
            let (store, feed) = storage::etcd::Etcd::connect(options).await?;
            let mut stop = tasks.stop();
            tasks.spawn("etcd feed", async move {
                tokio::select! {
                    () = feed.run() => Err("the feed ended"),
                    () = stop.requested() => Ok(()),
                }
            });
            return Ok(Arc::new(store));
        }
        let dir = self.data_dir.join("store");
        // Reads everything into memory, so off the async threads.
        let options = Options { history_age, ..Options::default() };
        let opened = tokio::task::spawn_blocking(move || Embedded::open(&dir, options)).await;
        Ok(Arc::new(opened.context("opening the store")??))
    }

    fn kubeconfig(&self, authority: &Authority, server: &str) -> Result<String> {
        let admin = authority.client(kubeconfig::ADMIN.0, kubeconfig::ADMIN.1)?;
        let mut paths = vec![Path::root()];
        paths.extend(self.contexts.iter().cloned());
        Ok(kubeconfig::write(server, authority, (kubeconfig::ADMIN.0, &admin), &paths))
    }
}

/// Returns once somebody asks the process to stop from now on.
async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
