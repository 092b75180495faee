//! The syncer inside a physical cluster: `holon join --print` makes what is applied there, `holon syncer` is what then runs.
//!
//! ```text
//!   join --print:  a ticket for the mailbox, good for a day and for one exchange ─► a manifest
//!   syncer:        ticket ─► token ─► the next token ─► …  each replaced when half of its time is over
//!                               └──► on disk and in a Secret there: a new Pod goes on with it
//! ```
//!
//! All connections are opened from the physical cluster's side. A token leads to one mailbox; whoever steals the manifest
//! before it was used has that, and whoever steals it later has nothing: the first exchange makes it worthless. Another
//! ticket, given in the same way, is exchanged when it is seen: that is how a syncer goes on that was cut off for too long.

mod credential;
mod depart;
mod manifest;
mod stay;
mod ticket;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use controller::remote::{CallError, Remote};
use controller::tasks::Tasks;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde_json::{Value, json};
use syncer::{Settings, Syncer};
use tokio::sync::oneshot;
use tunnel::Agent;

use self::credential::{Credential, Places, choose, now};
use self::stay::{Ended, Stay, TOKEN_SECONDS};
use crate::start::stop_signal;
use crate::{reach, seal};

pub(crate) use self::manifest::{HERE, Wanted, manifest};
pub(crate) use self::ticket::Ticket;

/// Before a server that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
/// As long as a syncer takes to finish what it writes.
const STOP_WITHIN: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct Seat {
    /// What `holon join --print` made: the file `ticket` of its Secret
    #[arg(long, value_name = "FILE", default_value = "/var/run/holon/ticket")]
    ticket: PathBuf,
    /// Where to keep the token and what was asked for last
    #[arg(long, value_name = "DIR", default_value = "/var/lib/holon")]
    state_dir: PathBuf,
    /// Seal what was asked for last with the key in this file: 32 bytes, as base64
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
    /// How to reach the physical cluster, if not from inside it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Replace the token when it is so old. For tests: half of its time is as good
    #[arg(long, value_name = "SECONDS", default_value_t = TOKEN_SECONDS / 2, hide = true)]
    renew_after: u64,
}

/// How the server knows us.
struct Known {
    credential: Credential,
    /// There is a ticket that could not be exchanged yet.
    is_owed: bool,
}

impl Seat {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let seal = self.state_key_file.as_deref().map(seal::read).transpose()?;
        std::fs::create_dir_all(&self.state_dir)
            .with_context(|| format!("making {}", self.state_dir.display()))?;
        let config =
            below(self.kubeconfig.as_deref()).await.context("the physical cluster cannot be reached")?;
        // One client for all that is asked there, so that they share connections.
        let below = reach::multiplexed(config.clone())?;
        let places = Places::new(&self.state_dir, Remote::new(below.clone()), HERE);
        let mut stop = std::pin::pin!(stop_signal());
        loop {
            let ticket = read_ticket(&self.ticket)?;
            let known = tokio::select! {
                known = known(&ticket, &places) => known?,
                () = &mut stop => return Ok(()),
            };
            self.forget_others(&ticket.mailbox);
            let name = ticket.name.clone();
            match self.sit(ticket, known, &places, (&config, &below), seal, stop.as_mut()).await? {
                Ended::Asked => return Ok(()),
                Ended::Anew => {}
                Ended::Left => {
                    places.clear();
                    self.forget_others("");
                    println!("{name} has left, and nothing that was sent here is here; its syncer ends");
                    return Ok(());
                }
            }
        }
    }

    /// Runs the syncer until there is a reason to stop.
    async fn sit(
        &self,
        ticket: Ticket,
        Known { credential, is_owed }: Known,
        places: &Places,
        (config, below): (&Config, &Client),
        seal: Option<[u8; 32]>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Ended> {
        // A disk that is new has nothing yet. That the Secret is not there is found out again, and said, later.
        let is_kept = places.keep(&credential).await;
        let is_kept = is_kept.inspect_err(|error| tracing::warn!("{error:#}; will try again")).is_ok();
        let token = json!({ "tokenFile": places.token() });
        let above = above(&ticket, &credential.authority, &token).await?;
        let mailbox = reach::multiplexed(above.clone())?;
        let mut tasks = Tasks::new();
        if !credential.is_fenced {
            let settings = Settings {
                name: ticket.name.clone(),
                mailbox: ticket.mailbox.clone(),
                directory: Some(self.state(&ticket.mailbox)),
                seal,
            };
            println!(
                "the syncer of {} runs; its mailbox is {} at {}",
                ticket.name, ticket.mailbox, ticket.server
            );
            // A connection that is upgraded cannot be shared.
            let agent = Agent::new(reach::once(above)?, reach::once(config.clone())?, &ticket.name);
            let mut stop = tasks.stop();
            tasks.spawn("tunnel", async move {
                agent.run(stop.requested()).await;
                Ok::<_, Infallible>(())
            });
            let syncer = Syncer::new(mailbox.clone(), below.clone(), settings);
            tasks.spawn("syncer", syncer.run(tasks.stop()));
        }
        let stay = Stay {
            mailbox: Remote::new(mailbox),
            below: Remote::new(below.clone()),
            places: places.clone(),
            // It was not known when this began. Whether it is now is to be found out, and not to be said again.
            refusals: u32::from(credential.is_fenced),
            credential,
            ticket,
            file: self.ticket.clone(),
            is_owed,
            is_kept,
            renew_after: Duration::from_secs(self.renew_after),
        };
        let (tell, told) = oneshot::channel();
        tasks.spawn("credential", stay.run(tell, tasks.stop()));
        let mut ended = Ended::Asked;
        let over = async {
            tokio::select! {
                () = stop => {}
                Ok(told) = told => ended = told,
            }
        };
        tasks.run_until(over, STOP_WITHIN).await?;
        Ok(ended)
    }

    /// Where what a mailbox asked for is kept.
    fn state(&self, mailbox: &str) -> PathBuf {
        self.state_dir.join("asked").join(mailbox)
    }

    /// What other mailboxes asked for is nobody's wish any more, once there is a ticket for this one.
    fn forget_others(&self, mailbox: &str) {
        let Ok(entries) = std::fs::read_dir(self.state_dir.join("asked")) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_name() != mailbox) {
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "cannot forget on disk");
            }
        }
    }
}

fn read_ticket(file: &Path) -> Result<Ticket> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("reading {}; `holon join NAME --print` makes it", file.display()))?;
    serde_json::from_str(&text).context("the ticket cannot be read")
}

async fn below(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)?;
            reach::by(kubeconfig).await
        }
        None => Ok(Config::incluster()?),
    }
}

/// How to reach the mailbox, by the server's authority as it is now, and by those who may be between.
async fn above(ticket: &Ticket, authority: &str, user: &Value) -> Result<Config> {
    let trusted = STANDARD.encode([authority, &ticket.also_trusted].join("\n"));
    let cluster = json!({ "server": ticket.server, "certificate-authority-data": trusted });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mailbox",
        "clusters": [{ "name": "mailbox", "cluster": cluster }],
        "users": [{ "name": "mailbox", "user": user }],
        "contexts": [{ "name": "mailbox", "context": { "cluster": "mailbox", "user": "mailbox" } }],
    });
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string())?;
    reach::by(kubeconfig).await
}

/// Finds out how the server knows us: by what came of this ticket, by exchanging it, or by what came of another before.
async fn known(ticket: &Ticket, places: &Places) -> Result<Known> {
    loop {
        let disk = places.on_disk();
        let is_of_ticket = |one: &Credential| one.ticket == ticket.id && one.mailbox == ticket.mailbox;
        let below = match places.below().await {
            Ok(found) => found,
            Err(_) if disk.as_ref().is_some_and(is_of_ticket) => None,
            // Without an answer nobody knows whether the ticket was exchanged by another Pod.
            Err(error) => {
                tracing::warn!(%error, "cannot look for a credential in the physical cluster; will try again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let at_hand = choose(disk.into_iter().chain(below).collect(), &ticket.id, &ticket.mailbox);
        if let Some(credential) = at_hand.clone().filter(is_of_ticket) {
            return Ok(Known { credential, is_owed: false });
        }
        match (exchange(ticket).await, at_hand) {
            (Ok(credential), _) => return Ok(Known { credential, is_owed: false }),
            (Err(error), Some(credential)) => {
                let is_owed = !is_no(&error);
                tracing::warn!(%error, is_owed, "the ticket is not exchanged; going on with what came of the one before");
                return Ok(Known { credential, is_owed });
            }
            (Err(error), None) if is_no(&error) => bail!(
                "the ticket is not accepted ({error}); make another: holon join {} --print | kubectl apply -f -",
                ticket.name
            ),
            (Err(error), None) => {
                tracing::warn!(%error, "the server does not answer; will try again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Whether the server knows the ticket and wants nothing of it, and will not tomorrow.
fn is_no(error: &CallError) -> bool {
    matches!(error.code(), 401 | 403 | 404)
}

/// Exchanges a ticket for a token. The ticket is spent once that is kept.
async fn exchange(ticket: &Ticket) -> Result<Credential, CallError> {
    let config = above(ticket, &ticket.authority, &json!({ "token": ticket.token })).await;
    let client =
        config.and_then(reach::multiplexed).map_err(|error| CallError::Garbled(error.to_string()))?;
    let token = ticket::token(&Remote::new(client), TOKEN_SECONDS, None).await?;
    Ok(Credential {
        mailbox: ticket.mailbox.clone(),
        ticket: ticket.id.clone(),
        is_spent: false,
        token,
        made: now(),
        authority: ticket.authority.clone(),
        is_fenced: false,
    })
}
