//! `holon syncer`: the syncer of the physical cluster it runs in.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use controller::remote::Remote;
use controller::tasks::Tasks;
use kube::{Client, Config};
use serde_json::json;
use syncer::{Settings, Syncer};
use tokio::sync::oneshot;
use tunnel::Agent;

use crate::pull::credential::Places;
use crate::pull::renew::{Ended, Stay, TOKEN_SECONDS};
use crate::pull::{HERE, Known, Ticket, above, below, known, read_ticket};
use crate::server::stop_signal;
use crate::{clients, state_key};

/// As long as a syncer takes to finish what it writes.
const STOP_WITHIN: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct SyncerCommand {
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

impl SyncerCommand {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let seal = self.state_key_file.as_deref().map(state_key::read).transpose()?;
        std::fs::create_dir_all(&self.state_dir)
            .with_context(|| format!("making {}", self.state_dir.display()))?;
        let config =
            below(self.kubeconfig.as_deref()).await.context("the physical cluster cannot be reached")?;
        // One client for all that is asked there, so that they share connections.
        let below = clients::multiplexed(config.clone())?;
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
        let mailbox = clients::multiplexed(above.clone())?;
        let mut tasks = Tasks::new();
        if !credential.is_fenced {
            let settings = Settings {
                name: ticket.name.clone(),
                mailbox: ticket.mailbox.clone(),
                directory: Some(self.state(&ticket.mailbox)),
                encryption_key: seal,
            };
            println!(
                "the syncer of {} runs; its mailbox is {} at {}",
                ticket.name, ticket.mailbox, ticket.server
            );
            // A connection that is upgraded cannot be shared.
            let agent = Agent::new(clients::once(above)?, clients::once(config.clone())?, &ticket.name);
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
