//! `holon join`: a physical cluster comes.

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
use crate::pull::{self, Ticket, Wanted};
use crate::register::{Where, forget, known, make, ready, state_key};

/// How often somebody who waits is told what for.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long an object that is taken back may take to go. The fleet looks at one that leaves every two seconds.
const REMOVE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);
#[derive(Args)]
pub(crate) struct Join {
    /// What to call it
    name: String,
    /// How the server reaches it, if it does
    #[arg(long, value_name = "FILE", required_unless_present = "print")]
    kubeconfig: Option<PathBuf>,
    /// Print what to apply there, so that it reaches the server
    #[arg(long, conflicts_with = "kubeconfig")]
    print: bool,
    /// The image of Holon that is run there
    #[arg(long, requires = "print", default_value = concat!("holon:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Keep the syncer's state on the volume of this PersistentVolumeClaim, in namespace holon-syncer there, so that a new
    /// Pod enforces what was asked for last also while the server is away
    #[arg(long, requires = "print", value_name = "CLAIM")]
    state_claim: Option<String>,
    /// Where the server is reached from there [default: where it last said it is]
    #[arg(long, requires = "print")]
    server: Option<String>,
    /// The proxy through which the server is reached from there, if there is one: http://… or https://…
    #[arg(long, requires = "print", value_name = "URL")]
    proxy: Option<String>,
    /// Whom else to trust there on the way to the server, as PEM: the authority of what ends TLS in front of it, or of the
    /// proxy
    #[arg(long, requires = "print", value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// The context of the kubeconfig, if not the current one
    #[arg(long)]
    context: Option<String>,
    /// A label to choose it by, for instance region=eu; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How long to wait for it
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Keep its object even if it never answers: the server goes on trying
    #[arg(long, conflicts_with = "print")]
    keep: bool,
    #[command(flatten)]
    place: Where,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn block_on(task: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(task)
}

impl Join {
    pub(crate) fn run(self) -> Result<()> {
        let Some(file) = &self.kubeconfig else { return block_on(self.print()) };
        let kubeconfig = clients::whole(file, self.context.as_deref())?;
        block_on(self.join(&kubeconfig))
    }

    /// Makes it known, and prints what to apply there. What is said about it goes to where it does not mix with that.
    async fn print(&self) -> Result<()> {
        let Join { name, place, labels, .. } = self;
        let client = AdminClient::open(&place.data_dir)?;
        let home = client.remote(&place.home).await?;
        let made = make(&home, name, &json!({ "pull": {} }), labels).await?;
        let state_key = state_key(&home, name, &made).await?;
        let path = format!("{}/{name}", place.physical_clusters());
        let begun = Instant::now();
        let id = loop {
            let object = client.ask(Method::GET, &path, None).await?;
            match object["status"]["mailbox"].as_str() {
                Some(id) => break id.to_owned(),
                None if begun.elapsed() > self.timeout() => {
                    bail!("{name} has no mailbox after {:?}; see the server's log", self.timeout())
                }
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        };
        let mailbox = client.remote(&place.home.child(&mailbox(name))?).await?;
        let server = self.server.clone().unwrap_or_else(|| client.url().to_owned());
        let trusted = [&*client.authority()?, &*self.also_trusted()?];
        let ticket = Ticket::make(&mailbox, name, &id, &server, trusted).await?;
        let wanted = Wanted {
            image: &self.image,
            state_key: &state_key,
            state_claim: self.state_claim.as_deref(),
            proxy: self.proxy.as_deref(),
        };
        for object in pull::manifest(&ticket, &wanted)? {
            println!("---\n{}", serde_json::to_string_pretty(&object)?);
        }
        eprintln!(
            "{name} is known. Apply this in it within a day: holon join {name} --print | kubectl apply -f -"
        );
        if self.state_claim.is_none() {
            eprintln!(
                "Without --state-claim a new Pod of the syncer starts with nothing: while the server is away, it enforces nothing"
            );
        }
        Ok(())
    }

    /// The authorities in the file that was given, if one was.
    fn also_trusted(&self) -> Result<String> {
        let Some(file) = &self.certificate_authority else { return Ok(String::new()) };
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let count = CertificateDer::pem_slice_iter(text.as_bytes()).filter(Result::is_ok).count();
        ensure!(count > 0, "{} has no certificate in it, as PEM", file.display());
        Ok(text)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    async fn join(&self, kubeconfig: &Value) -> Result<()> {
        let Join { name, place, labels, .. } = self;
        let client = AdminClient::open(&place.data_dir)?;
        let root = client.remote(&place.home).await?;
        let is_new = client.find(&self.path()).await?.is_none();
        known(&root, name, &kubeconfig.to_string(), labels).await?;
        eprintln!("{name} is known; waiting up to {:?} for it to answer", self.timeout());
        let there = match self.wait(&client).await? {
            Waited::Answered(object) => object,
            Waited::TimedOut { object, reason } => {
                return self.give_up(&client, is_new, &object, &reason).await;
            }
        };
        let status = &there["status"];
        let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
        println!(
            "{name} is there: Kubernetes {}, {} nodes, {} CPU, {} memory. Next, type:",
            text(&status["version"]),
            status["nodes"]["total"].as_i64().map_or("unknown".to_owned(), |total| total.to_string()),
            text(&status["allocatable"]["cpu"]),
            text(&status["allocatable"]["memory"]),
        );
        println!("  kubectl get physicalclusters");
        println!(
            "  holon kubeconfig {}:{}     # its mailbox: what is put there runs there",
            place.home,
            mailbox(name)
        );
        Ok(())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.place.physical_clusters(), self.name)
    }

    /// Waits until the physical cluster answers and has been counted, and says on stderr what it waits for.
    async fn wait(&self, client: &AdminClient) -> Result<Waited> {
        let (begun, path) = (Instant::now(), self.path());
        let (mut said, mut said_at) = (String::new(), Instant::now());
        loop {
            let object = client.ask(Method::GET, &path, None).await?;
            let (ready, counted) = (ready(&object), !object["status"]["version"].is_null());
            if ready["status"] == "True" && counted {
                return Ok(Waited::Answered(object));
            }
            let reason = match (&ready["status"], ready["message"].as_str()) {
                (status, Some(message)) if status != "True" => message.to_owned(),
                // Ready is by the heartbeat of the syncer, which beats before anybody has answered it.
                (status, _) if status == "True" => {
                    "the server connects; the physical cluster has not answered yet".to_owned()
                }
                _ => "the server has not tried to connect yet".to_owned(),
            };
            if reason != said || said_at.elapsed() > SAY_EVERY {
                eprintln!("{} ({:.0?}): {reason}", self.name, begun.elapsed());
                (said, said_at) = (reason.clone(), Instant::now());
            }
            if begun.elapsed() > self.timeout() {
                return Ok(Waited::TimedOut { object, reason });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Fails, and takes the object back if this command made it and the physical cluster was never heard of: nothing can
    /// have been sent there.
    async fn give_up(&self, client: &AdminClient, is_new: bool, object: &Value, reason: &str) -> Result<()> {
        let Join { name, .. } = self;
        let failed = format!("{name} has not answered within {:?}: {reason}", self.timeout());
        let has_answered = !object["status"]["version"].is_null();
        if self.keep || !is_new || has_answered {
            bail!(
                "{failed}. Its object stays, and the server goes on trying: `kubectl describe physicalcluster {name}` says \
                 how it goes, `holon leave {name} --forget` removes it"
            );
        }
        let advice = "Check that the server reaches the address in the kubeconfig, then join again; --timeout waits longer, \
                      --keep lets the server go on trying";
        match self.remove(client).await {
            Ok(()) => bail!("{failed}. Its object was removed again. {advice}"),
            Err(error) => bail!(
                "{failed}. Its object could not be removed again ({error:#}): `holon leave {name} --forget` does. {advice}"
            ),
        }
    }

    async fn remove(&self, client: &AdminClient) -> Result<()> {
        let path = self.path();
        forget(client, &path).await?;
        client.ask(Method::DELETE, &path, None).await?;
        let begun = Instant::now();
        while client.find(&path).await?.is_some() {
            ensure!(begun.elapsed() < REMOVE_WITHIN, "it is still leaving after {REMOVE_WITHIN:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

/// What came of waiting for a physical cluster.
enum Waited {
    Answered(Value),
    /// As the object was last, and why.
    TimedOut {
        object: Value,
        reason: String,
    },
}
