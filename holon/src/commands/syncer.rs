//! `holon syncer`: runs the syncer of the physical cluster that it runs in.

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

use crate::pull::credential::CredentialStore;
use crate::pull::renew::{CredentialRenewal, SyncerEnd, TOKEN_SECONDS};
use crate::pull::{
    CredentialState, SYNCER_NAMESPACE, Ticket, downstream_config, mailbox_config, obtain_credential,
    read_ticket,
};
use crate::server::StopSignals;
use crate::{clients, state_key};

/// The directory of the desired state, in the state directory.
const DESIRED: &str = "desired";
/// The name of that directory in an older version.
const OLD_DESIRED: &str = "asked";
/// How long a syncer may take to finish its writes.
const STOP_WITHIN: Duration = Duration::from_secs(15);

#[derive(Args)]
pub(crate) struct SyncerCommand {
    /// The ticket: the file `ticket` of the Secret that `holon join --print` makes
    #[arg(long, value_name = "FILE", default_value = "/var/run/holon/ticket")]
    ticket: PathBuf,
    /// The directory for the token and the state of the syncer
    #[arg(long, value_name = "DIR", default_value = "/var/lib/holon")]
    state_dir: PathBuf,
    /// Encrypt the state with the key in this file: 32 bytes in base64
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
    /// The kubeconfig of the physical cluster [default: the service account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Renew the token at this age. For tests: the default is half of its lifetime
    #[arg(long, value_name = "SECONDS", default_value_t = TOKEN_SECONDS / 2, hide = true)]
    renew_after: u64,
}

impl SyncerCommand {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(self.serve())
    }

    async fn serve(self) -> Result<()> {
        let encryption_key = self.state_key_file.as_deref().map(state_key::read).transpose()?;
        std::fs::create_dir_all(&self.state_dir)
            .with_context(|| format!("cannot create {}", self.state_dir.display()))?;
        self.rename_old_state();
        let config = downstream_config(self.kubeconfig.as_deref())
            .await
            .context("cannot connect to the physical cluster")?;
        // One client, so that all requests share its connections.
        let downstream = clients::multiplexed(config.clone())?;
        let credentials =
            CredentialStore::new(&self.state_dir, Remote::new(downstream.clone()), SYNCER_NAMESPACE);
        let mut signals = StopSignals::listen()?;
        let mut stop = std::pin::pin!(signals.next());
        loop {
            let ticket = read_ticket(&self.ticket)?;
            let state = tokio::select! {
                state = obtain_credential(&ticket, &credentials) => state?,
                () = &mut stop => return Ok(()),
            };
            self.remove_other_state(&ticket.mailbox);
            let name = ticket.name.clone();
            match self
                .run_until_ended(
                    ticket,
                    state,
                    &credentials,
                    (&config, &downstream),
                    encryption_key,
                    stop.as_mut(),
                )
                .await?
            {
                SyncerEnd::Signalled => return Ok(()),
                SyncerEnd::Restart => {}
                SyncerEnd::Uninstalled => {
                    credentials.clear();
                    self.remove_other_state("");
                    println!("{name} was removed and its placed objects are deleted; the syncer stops");
                    return Ok(());
                }
            }
        }
    }

    /// Runs the syncer until it has to stop or restart.
    async fn run_until_ended(
        &self,
        ticket: Ticket,
        CredentialState { credential, is_exchange_pending }: CredentialState,
        credentials: &CredentialStore,
        (config, downstream): (&Config, &Client),
        encryption_key: Option<[u8; 32]>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<SyncerEnd> {
        // The disk may be new and empty. If the Secret cannot be written, that is retried and reported later.
        let is_stored = credentials.store(&credential).await;
        let is_stored = is_stored.inspect_err(|error| tracing::warn!("{error:#}; will try again")).is_ok();
        let token = json!({ "tokenFile": credentials.token_file() });
        let mailbox_config = mailbox_config(&ticket, &credential.authority, &token).await?;
        let mailbox = clients::multiplexed(mailbox_config.clone())?;
        let mut tasks = Tasks::new();
        if !credential.is_fenced {
            let settings = Settings {
                name: ticket.name.clone(),
                mailbox: ticket.mailbox.clone(),
                directory: Some(self.state_dir_of(&ticket.mailbox)),
                encryption_key,
            };
            println!(
                "running the syncer of {}; its mailbox is {} at {}",
                ticket.name, ticket.mailbox, ticket.server
            );
            // An upgraded connection cannot be shared.
            let agent = Agent::new(
                clients::single_use(mailbox_config)?,
                clients::single_use(config.clone())?,
                &ticket.name,
            );
            let mut stop = tasks.stop();
            tasks.spawn("tunnel", async move {
                agent.run(stop.requested()).await;
                Ok::<_, Infallible>(())
            });
            let syncer = Syncer::new(mailbox.clone(), downstream.clone(), settings);
            tasks.spawn("syncer", syncer.run(tasks.stop()));
        }
        let renewal = CredentialRenewal {
            mailbox: Remote::new(mailbox),
            downstream: Remote::new(downstream.clone()),
            credentials: credentials.clone(),
            // A fenced credential was rejected before; the rejection need not be logged again.
            refusals: u32::from(credential.is_fenced),
            credential,
            ticket,
            file: self.ticket.clone(),
            is_exchange_pending,
            is_stored,
            renew_after: Duration::from_secs(self.renew_after),
        };
        let (end_sender, end_receiver) = oneshot::channel();
        tasks.spawn("credential", renewal.run(end_sender, tasks.stop()));
        let mut ended = SyncerEnd::Signalled;
        let ended_or_stopped = async {
            tokio::select! {
                () = stop => {}
                Ok(end) = end_receiver => ended = end,
            }
        };
        tasks.run_until(ended_or_stopped, STOP_WITHIN).await?;
        Ok(ended)
    }

    /// Takes over the state of an older version.
    fn rename_old_state(&self) {
        let (old, new) = (self.state_dir.join(OLD_DESIRED), self.state_dir.join(DESIRED));
        if old.exists()
            && !new.exists()
            && let Err(error) = std::fs::rename(&old, &new)
        {
            tracing::warn!(%error, path = %old.display(), "cannot take over the state of an older version");
        }
    }

    /// Returns the state directory of a mailbox.
    fn state_dir_of(&self, mailbox: &str) -> PathBuf {
        self.state_dir.join(DESIRED).join(mailbox)
    }

    /// Removes the state of other mailboxes: the ticket is for this one.
    fn remove_other_state(&self, mailbox: &str) {
        let Ok(entries) = std::fs::read_dir(self.state_dir.join(DESIRED)) else { return };
        for entry in entries.flatten().filter(|entry| entry.file_name() != mailbox) {
            if let Err(error) = std::fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "cannot remove the state of another mailbox");
            }
        }
    }
}
