//! The syncer inside a physical cluster: `holon join --print` makes what is applied there, `holon syncer` is what then runs.
//!
//! ```text
//!   join --print:  a token for the mailbox, good for a day and for one exchange ─► a manifest
//!   syncer:        token ─► the next token ─► the one after that …  each replaced when half of its time is over
//! ```
//!
//! All connections are opened from the physical cluster's side. A token leads to one mailbox; whoever steals the manifest
//! before it was used has that, and whoever steals it later has nothing: the first exchange makes it worthless.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::names::SYNCER_ACCOUNT;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use controller::kind::Kind;
use controller::remote::{Place, Remote};
use controller::tasks::{Stop, Tasks};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use syncer::{Settings, Syncer};

use apiserver::pki::write_private;

use crate::start::stop_signal;

/// Where the account and the Secret are, in the mailbox.
const NAMESPACE: &str = "kube-system";
/// A manifest is applied on the day it was made.
const BOOTSTRAP_SECONDS: u64 = 24 * 60 * 60;
/// Long enough to be cut off for a night, short enough to be worth little to a thief.
const TOKEN_SECONDS: u64 = 24 * 60 * 60;
/// Before a token that could not be replaced is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// As long as a syncer takes to finish what it writes.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// Everything a syncer needs to know about where it belongs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ticket {
    /// Of the physical cluster.
    pub(crate) name: String,
    /// The id of the mailbox.
    pub(crate) mailbox: String,
    pub(crate) server: String,
    /// The authority of the server, as PEM.
    pub(crate) authority: String,
    pub(crate) token: String,
}

#[derive(Args)]
pub(crate) struct Seat {
    /// What `holon join --print` made: the file `ticket` of its Secret
    #[arg(long, value_name = "FILE", default_value = "/var/run/holon/ticket")]
    ticket: PathBuf,
    /// Where to keep the token and what was asked for last
    #[arg(long, value_name = "DIR", default_value = "/var/lib/holon")]
    state_dir: PathBuf,
    /// How to reach the physical cluster, if not from inside it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Seat {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let text = std::fs::read_to_string(&self.ticket).with_context(|| {
            format!("reading {}; `holon join NAME --print` makes it", self.ticket.display())
        })?;
        let ticket: Ticket = serde_json::from_str(&text).context("the ticket cannot be read")?;
        std::fs::create_dir_all(&self.state_dir)
            .with_context(|| format!("making {}", self.state_dir.display()))?;
        let token = self.state_dir.join("token");
        if !token.exists() {
            first(&ticket, &token).await?;
        }
        let mailbox = mailbox(&ticket, &token).await?;
        let below =
            below(self.kubeconfig.as_deref()).await.context("the physical cluster cannot be reached")?;
        let settings = Settings {
            name: ticket.name.clone(),
            mailbox: ticket.mailbox.clone(),
            directory: Some(self.state_dir.join("asked")),
            seal: None,
        };
        println!(
            "the syncer of {} runs; its mailbox is {} at {}",
            ticket.name, ticket.mailbox, ticket.server
        );
        let mut tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.spawn("syncer", Syncer::new(mailbox.clone(), below, settings).run(stop));
        tasks.spawn("token", renew(Remote::new(mailbox), token, tasks.stop()));
        tasks.run_until(stop_signal(), STOP_WITHIN).await?;
        Ok(())
    }
}

async fn below(kubeconfig: Option<&Path>) -> Result<Client> {
    let config = match kubeconfig {
        Some(file) => {
            Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &KubeConfigOptions::default())
                .await?
        }
        None => Config::incluster()?,
    };
    Ok(Client::try_from(config)?)
}

/// A client of the mailbox, by the token in a file, which is read again when it is replaced.
async fn mailbox(ticket: &Ticket, token: &Path) -> Result<Client> {
    client(ticket, &json!({ "tokenFile": token })).await
}

async fn client(ticket: &Ticket, user: &Value) -> Result<Client> {
    let cluster = json!({
        "server": ticket.server, "certificate-authority-data": STANDARD.encode(&ticket.authority),
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mailbox",
        "clusters": [{ "name": "mailbox", "cluster": cluster }],
        "users": [{ "name": "mailbox", "user": user }],
        "contexts": [{ "name": "mailbox", "context": { "cluster": "mailbox", "user": "mailbox" } }],
    });
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string())?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?)
}

/// Exchanges the ticket's token for one of our own, after which it is worth nothing.
async fn first(ticket: &Ticket, token: &Path) -> Result<()> {
    let with_ticket = Remote::new(client(ticket, &json!({ "token": ticket.token })).await?);
    let (text, _) = next(&with_ticket)
        .await
        .context("the ticket is not accepted; make another with `holon join --print`")?;
    write_private(token, &text)?;
    let own = Remote::new(mailbox(ticket, token).await?);
    let secrets = Kind::new("", "v1", "secrets", "Secret", true);
    let place = Place::new(&secrets, NAMESPACE, SYNCER_ACCOUNT);
    if let Some(secret) = own.get(place).await? {
        own.delete(place, secret["metadata"]["uid"].as_str().unwrap_or_default()).await?;
    }
    Ok(())
}

/// The next token, and after how long to replace it.
async fn next(mailbox: &Remote) -> Result<(String, Duration)> {
    let accounts = Kind::new("", "v1", "serviceaccounts", "ServiceAccount", true);
    let place = Place::new(&accounts, NAMESPACE, SYNCER_ACCOUNT).part("token");
    let wanted = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": TOKEN_SECONDS },
    });
    let made = mailbox.post(place, &wanted).await?;
    let token = made["status"]["token"].as_str().context("the server made no token")?;
    Ok((token.to_owned(), Duration::from_secs(TOKEN_SECONDS / 2)))
}

/// Replaces the token until told to stop. How old the one at hand is nobody knows, so it begins with that.
async fn renew(mailbox: Remote, token: PathBuf, mut stop: Stop) -> Result<(), std::convert::Infallible> {
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.requested() => return Ok(()),
        }
        let renewed = async {
            let (text, wait) = next(&mailbox).await?;
            let new = token.with_extension("new");
            write_private(&new, &text)?;
            std::fs::rename(&new, &token).context("replacing the token")?;
            Ok::<_, anyhow::Error>(wait)
        };
        wait = renewed.await.unwrap_or_else(|error| {
            tracing::warn!(error = format!("{error:#}"), "cannot renew the token; will try again");
            RETRY
        });
    }
}

/// Makes a ticket for the mailbox of a physical cluster.
pub(crate) async fn ticket(
    mailbox: &Remote,
    name: &str,
    id: &str,
    server: &str,
    authority: &str,
) -> Result<Ticket> {
    let secrets = Kind::new("", "v1", "secrets", "Secret", true);
    let place = Place::new(&secrets, NAMESPACE, SYNCER_ACCOUNT);
    // One that was made before is worth nothing from now on.
    if let Some(old) = mailbox.get(place).await? {
        mailbox.delete(place, old["metadata"]["uid"].as_str().unwrap_or_default()).await?;
    }
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SYNCER_ACCOUNT } });
    let bound = mailbox.create(&secrets, NAMESPACE, &object).await?;
    let accounts = Kind::new("", "v1", "serviceaccounts", "ServiceAccount", true);
    let wanted = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {
            "expirationSeconds": BOOTSTRAP_SECONDS,
            "boundObjectRef": {
                "apiVersion": "v1", "kind": "Secret", "name": SYNCER_ACCOUNT, "uid": bound["metadata"]["uid"],
            },
        },
    });
    let made = mailbox.post(Place::new(&accounts, NAMESPACE, SYNCER_ACCOUNT).part("token"), &wanted).await?;
    let Some(token) = made["status"]["token"].as_str() else { bail!("the server made no token") };
    let [name, mailbox, server, authority, token] = [name, id, server, authority, token].map(str::to_owned);
    Ok(Ticket { name, mailbox, server, authority, token })
}

/// What is applied in the physical cluster.
pub(crate) fn manifest(ticket: &Ticket, image: &str) -> Result<Vec<Value>> {
    const HERE: &str = "holon-syncer";
    let metadata = json!({ "name": HERE, "namespace": HERE });
    let labels = json!({ "app": HERE });
    let container = json!({
        "name": "syncer", "image": image, "args": ["syncer"],
        "volumeMounts": [
            { "name": "ticket", "mountPath": "/var/run/holon", "readOnly": true },
            { "name": "state", "mountPath": "/var/lib/holon" },
        ],
        "securityContext": {
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true, "runAsUser": 65532,
            "capabilities": { "drop": ["ALL"] }, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "resources": { "requests": { "cpu": "10m", "memory": "32Mi" }, "limits": { "memory": "512Mi" } },
    });
    let pod = json!({
        "serviceAccountName": HERE,
        "securityContext": { "fsGroup": 65532 },
        "containers": [container],
        "volumes": [
            { "name": "ticket", "secret": { "secretName": HERE } },
            { "name": "state", "emptyDir": {} },
        ],
    });
    let subject = json!({ "kind": "ServiceAccount", "name": HERE, "namespace": HERE });
    Ok(vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HERE } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": HERE },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [subject],
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": { "ticket": serde_json::to_string(ticket)? },
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {
                "replicas": 1,
                "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        }),
    ])
}
