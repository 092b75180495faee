//! `holon join`: joins a physical cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::names::mailbox;
use clap::Args;
use hyper::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::clients;
use crate::clients::admin::AdminClient;
use crate::pull::{SyncerManifest, Ticket};
use crate::register::{
    PhysicalClusterLocation, apply_physical_cluster, forget, ready_condition, register_push, state_key,
};

/// How often the command prints what it waits for.
const PRINT_EVERY: Duration = Duration::from_secs(5);
/// How long the removal of the object may take. The fleet controller checks a leaving one every two seconds.
const REMOVE_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Join {
    /// The name of the physical cluster
    name: String,
    /// The kubeconfig with which the server connects to it (push). It needs a client certificate or a token; exec plugins
    /// are not supported
    #[arg(long, value_name = "FILE", required_unless_present = "print")]
    kubeconfig: Option<PathBuf>,
    /// Print a manifest to apply in the physical cluster; its syncer connects to the server (pull)
    #[arg(long, conflicts_with = "kubeconfig")]
    print: bool,
    /// The image of the syncer
    #[arg(long, requires = "print", default_value = concat!("holon:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Keep the syncer's state on the volume of this PersistentVolumeClaim, in namespace holon-syncer of the physical
    /// cluster, so that a new pod can enforce the last desired state while the server is unreachable
    #[arg(long, requires = "print", value_name = "CLAIM")]
    state_claim: Option<String>,
    /// The address at which the physical cluster reaches the server [default: the one it advertises]
    #[arg(long, requires = "print")]
    server: Option<String>,
    /// The proxy from the physical cluster to the server, if any: http://… or https://…
    #[arg(long, requires = "print", value_name = "URL")]
    proxy: Option<String>,
    /// Additional certificate authorities that the syncer trusts, as PEM: that of a TLS terminator in front of the
    /// server, or of the proxy
    #[arg(long, requires = "print", value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long)]
    context: Option<String>,
    /// A label of the physical cluster, for example region=eu; can be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How long to wait for the physical cluster to answer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Keep the PhysicalCluster object even if it does not answer, so that the server keeps trying
    #[arg(long, conflicts_with = "print")]
    keep: bool,
    #[command(flatten)]
    location: PhysicalClusterLocation,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn block_on(task: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(task)
}

impl Join {
    pub(crate) fn run(self) -> Result<()> {
        let Some(file) = &self.kubeconfig else { return block_on(self.print()) };
        let kubeconfig = clients::inline_kubeconfig(file, self.context.as_deref())?;
        block_on(self.join(&kubeconfig))
    }

    /// Registers the physical cluster, and prints the manifest to stdout and everything else to stderr.
    async fn print(&self) -> Result<()> {
        let Join { name, location, labels, .. } = self;
        let client = AdminClient::open(&location.data_dir)?;
        let home = client.remote(&location.home).await?;
        let created = apply_physical_cluster(&home, name, &json!({ "pull": {} }), labels).await?;
        let state_key = state_key(&home, name, &created).await?;
        let path = format!("{}/{name}", location.physical_clusters());
        let started = Instant::now();
        let id = loop {
            let object = client.request(Method::GET, &path, None).await?;
            match object["status"]["mailbox"].as_str() {
                Some(id) => break id.to_owned(),
                None if started.elapsed() > self.timeout() => {
                    bail!("{name} has no mailbox after {:?}; see the log of the server", self.timeout())
                }
                None => tokio::time::sleep(POLL_EVERY).await,
            }
        };
        let mailbox = client.remote(&location.home.child(&mailbox(name))?).await?;
        let server = self.server.clone().unwrap_or_else(|| client.url().to_owned());
        let trusted = [&*client.authority()?, &*self.extra_authorities()?];
        let ticket = Ticket::create(&mailbox, name, &id, &server, trusted).await?;
        let manifest = SyncerManifest {
            image: &self.image,
            state_key: &state_key,
            state_claim: self.state_claim.as_deref(),
            proxy: self.proxy.as_deref(),
        };
        for object in manifest.objects(&ticket)? {
            println!("---\n{}", serde_json::to_string_pretty(&object)?);
        }
        eprintln!(
            "registered {name}. Apply the manifest in the physical cluster within 24 hours: \
             holon join {name} --print | kubectl apply -f -"
        );
        if self.state_claim.is_none() {
            eprintln!(
                "Without --state-claim, a new pod of the syncer has no state: while the server is unreachable, it enforces nothing"
            );
        }
        Ok(())
    }

    /// Returns the certificate authorities in --certificate-authority.
    fn extra_authorities(&self) -> Result<String> {
        let Some(file) = &self.certificate_authority else { return Ok(String::new()) };
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let count = CertificateDer::pem_slice_iter(text.as_bytes()).filter(Result::is_ok).count();
        ensure!(count > 0, "{} has no PEM certificate", file.display());
        Ok(text)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    async fn join(&self, kubeconfig: &Value) -> Result<()> {
        let Join { name, location, labels, .. } = self;
        let client = AdminClient::open(&location.data_dir)?;
        let root = client.remote(&location.home).await?;
        let is_new = client.find(&self.path()).await?.is_none();
        register_push(&root, name, &kubeconfig.to_string(), labels).await?;
        eprintln!("registered {name}; waiting up to {:?} for it to answer", self.timeout());
        let joined = match self.wait(&client).await? {
            JoinWait::Answered(object) => object,
            JoinWait::TimedOut { object, reason } => {
                return self.give_up(&client, is_new, &object, &reason).await;
            }
        };
        let status = &joined["status"];
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        println!(
            "joined {name}: Kubernetes {}, {} nodes, {} CPU, {} memory. Next, type:",
            text(&status["version"]),
            status["nodes"]["total"].as_i64().map_or("unknown".to_owned(), |total| total.to_string()),
            text(&status["allocatable"]["cpu"]),
            text(&status["allocatable"]["memory"]),
        );
        println!("  kubectl --context {} get physicalclusters", location.home);
        println!(
            "  holon kubeconfig {}:{}     # its mailbox: objects placed there run on it",
            location.home,
            mailbox(name)
        );
        Ok(())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.location.physical_clusters(), self.name)
    }

    /// Waits until the physical cluster answers and its capacity is known, and prints to stderr what it waits for.
    async fn wait(&self, client: &AdminClient) -> Result<JoinWait> {
        let (started, path) = (Instant::now(), self.path());
        let (mut printed, mut printed_at) = (String::new(), Instant::now());
        loop {
            let object = client.request(Method::GET, &path, None).await?;
            let (ready, counted) = (ready_condition(&object), !object["status"]["version"].is_null());
            if ready["status"] == "True" && counted {
                return Ok(JoinWait::Answered(object));
            }
            let reason = match (&ready["status"], ready["message"].as_str()) {
                (status, Some(message)) if status != "True" => message.to_owned(),
                // Ready follows the heartbeat of the syncer, which starts before the physical cluster has answered.
                (status, _) if status == "True" => {
                    "the server is connecting; the physical cluster has not answered yet".to_owned()
                }
                _ => "the server has not tried to connect yet".to_owned(),
            };
            if reason != printed || printed_at.elapsed() > PRINT_EVERY {
                eprintln!("{} ({:.0?}): {reason}", self.name, started.elapsed());
                (printed, printed_at) = (reason.clone(), Instant::now());
            }
            if started.elapsed() > self.timeout() {
                return Ok(JoinWait::TimedOut { object, reason });
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    /// Fails, and deletes the object if this command created it and the physical cluster never answered: nothing can
    /// have been placed there.
    async fn give_up(&self, client: &AdminClient, is_new: bool, object: &Value, reason: &str) -> Result<()> {
        let Join { name, .. } = self;
        let failed = format!("{name} has not answered within {:?}: {reason}", self.timeout());
        let has_answered = !object["status"]["version"].is_null();
        if self.keep || !is_new || has_answered {
            bail!(
                "{failed}. The PhysicalCluster stays, and the server keeps trying: `kubectl describe physicalcluster {name}` shows \
                 its state, `holon leave {name} --forget` removes it"
            );
        }
        let advice = "Check that the server reaches the address in the kubeconfig, then join again; --timeout waits longer, \
                      --keep lets the server keep trying";
        match self.remove(client).await {
            Ok(()) => bail!("{failed}. The PhysicalCluster was deleted. {advice}"),
            Err(error) => bail!(
                "{failed}. The PhysicalCluster could not be deleted ({error:#}): run `holon leave {name} --forget`. {advice}"
            ),
        }
    }

    async fn remove(&self, client: &AdminClient) -> Result<()> {
        let path = self.path();
        forget(client, &path).await?;
        client.request(Method::DELETE, &path, None).await?;
        let started = Instant::now();
        while client.find(&path).await?.is_some() {
            ensure!(started.elapsed() < REMOVE_WITHIN, "it still exists after {REMOVE_WITHIN:?}");
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }
}

/// The result of waiting for a physical cluster.
enum JoinWait {
    Answered(Value),
    /// The last state of the object, and the condition that was not met.
    TimedOut {
        object: Value,
        reason: String,
    },
}
