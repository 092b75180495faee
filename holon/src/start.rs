//! `holon start`: serve logical clusters until told to stop.

use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::cluster::{Id, Path};
use apiserver::births::Birth;
use apiserver::controllers::Controllers;
use apiserver::kinds::Registry;
use apiserver::newborn::{Newborn, Surroundings, Template};
use apiserver::pki::Authority;
use apiserver::stack::Stack;
use apiserver::tokens::Tokens;
use apiserver::{births, newborn, server};
use clap::Args;
use controller::tasks::Tasks;
use storage::Store;
use storage::embedded::{Embedded, Options};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::kubeconfig;

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
    /// Write a context for this logical cluster, too, into admin.kubeconfig; may be given several times
    #[arg(long = "context", value_name = "PATH", value_delimiter = ',')]
    contexts: Vec<Path>,
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
        let tls = authority.tls(&authority.serving(&names)?)?;
        let server = format!("https://{address}");
        write_private(&self.data_dir.join(kubeconfig::ADDRESS), &server)?;
        let kubeconfig = self.data_dir.join("admin.kubeconfig");
        write_private(&kubeconfig, &self.kubeconfig(&authority, &server)?)?;

        let surroundings = Surroundings { authority: authority.certificate(), address };
        let template = Template::new(newborn::objects(&surroundings));
        let seen: Arc<dyn Store> = Arc::new(Newborn::new(kept.clone(), template));
        births::write(&*seen, Id::ROOT, &Birth::root())
            .await
            .context("preparing the root logical cluster")?;
        let kinds = Arc::new(Registry::new(kept.clone()));
        // Nobody is answered before it is known what there is.
        kinds.load().await.context("reading what logical clusters define")?;
        tasks.spawn("kinds", kinds.clone().follow(tasks.stop()));
        let controllers = Controllers::new(seen.clone(), kept, authority.certificate().to_owned())
            .with_kinds(kinds.clone());
        match self.etcd_endpoints.is_empty() {
            true => tasks.spawn("controllers", controllers.run(tasks.stop())),
            false => tasks.spawn("controllers", controllers.run_if_leading(tasks.stop())),
        }
        let stack = Stack::new(seen, address.to_string(), tasks.stop()).with_kinds(kinds);
        let stack = Arc::new(match &self.token_auth_file {
            Some(file) => stack.with_tokens(Tokens::open(file)?),
            None => stack,
        });
        tasks.spawn("api server", server::serve(listener, tls, stack.clone(), tasks.stop()));
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
        Ok(kubeconfig::write(server, authority, &admin, &paths))
    }
}

fn write_private(path: &FilePath, contents: &str) -> Result<()> {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(contents.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
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
