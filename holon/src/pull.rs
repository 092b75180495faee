//! The syncer inside a physical cluster (pull): `holon join --print` prints its manifest, and `holon syncer` runs it.
//!
//! ```text
//!   join --print:  a ticket for the mailbox, valid for a day and for one exchange ─► a manifest
//!   syncer:        ticket ─► token ─► the next token ─► …  each renewed at half of its lifetime
//!                               └──► on disk and in a Secret there: a new pod continues with it
//! ```
//!
//! The syncer opens all connections. A token gives access to one mailbox. A ticket that is stolen before it is
//! exchanged gives the same access; afterwards it is worthless. A syncer that was disconnected for longer than its
//! token is valid needs a new ticket, from a manifest that is applied again.

pub(crate) mod credential;
mod manifest;
pub(crate) mod renew;
mod ticket;
mod uninstall;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::remote::{CallError, Remote};
use kube::Config;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use self::credential::{Credential, CredentialStore, newest, now};
use self::renew::TOKEN_SECONDS;
use crate::clients;

pub(crate) use self::manifest::{SYNCER_NAMESPACE, SyncerManifest};
pub(crate) use self::ticket::Ticket;

/// The delay before the next request to a server that did not answer.
const RETRY: Duration = Duration::from_secs(5);
/// The credential of a syncer.
pub(crate) struct CredentialState {
    pub(crate) credential: Credential,
    /// Whether the current ticket could not be exchanged yet.
    pub(crate) is_exchange_pending: bool,
}

pub(crate) fn read_ticket(file: &Path) -> Result<Ticket> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read {}; `holon join NAME --print` makes it", file.display()))?;
    serde_json::from_str(&text).context("the ticket is not valid JSON")
}

pub(crate) async fn downstream_config(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)?;
            clients::config_from(kubeconfig).await
        }
        None => Ok(Config::incluster()?),
    }
}

/// Returns the client configuration of the mailbox. It trusts the server's current authority, and the authorities of
/// TLS terminators and proxies.
pub(crate) async fn mailbox_config(ticket: &Ticket, authority: &str, user: &Value) -> Result<Config> {
    let trusted = STANDARD.encode([authority, &ticket.extra_authorities].join("\n"));
    let cluster = json!({ "server": ticket.server, "certificate-authority-data": trusted });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mailbox",
        "clusters": [{ "name": "mailbox", "cluster": cluster }],
        "users": [{ "name": "mailbox", "user": user }],
        "contexts": [{ "name": "mailbox", "context": { "cluster": "mailbox", "user": "mailbox" } }],
    });
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string())?;
    clients::config_from(kubeconfig).await
}

/// Returns the credential of this ticket. If none is stored, exchanges the ticket for one, or returns the credential of
/// an earlier ticket.
pub(crate) async fn obtain_credential(
    ticket: &Ticket,
    credentials: &CredentialStore,
) -> Result<CredentialState> {
    loop {
        let disk = credentials.read_disk();
        let is_of_ticket =
            |credential: &Credential| credential.ticket == ticket.id && credential.mailbox == ticket.mailbox;
        let in_secret = match credentials.read_secret().await {
            Ok(credential) => credential,
            Err(_) if disk.as_ref().is_some_and(is_of_ticket) => None,
            // Another pod may have exchanged the ticket already; then only the Secret has the credential.
            Err(error) => {
                tracing::warn!(%error, "cannot read the credential from the physical cluster; will try again");
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let newest_stored = newest(disk.into_iter().chain(in_secret).collect(), &ticket.id, &ticket.mailbox);
        if let Some(credential) = newest_stored.clone().filter(is_of_ticket) {
            return Ok(CredentialState { credential, is_exchange_pending: false });
        }
        match (exchange(ticket).await, newest_stored) {
            (Ok(credential), _) => return Ok(CredentialState { credential, is_exchange_pending: false }),
            (Err(error), Some(credential)) => {
                let is_exchange_pending = !is_final(&error);
                tracing::warn!(%error, is_exchange_pending, "cannot exchange the ticket; continuing with the credential of an earlier one");
                return Ok(CredentialState { credential, is_exchange_pending });
            }
            (Err(error), None) if is_final(&error) => bail!(
                "the server refuses the ticket ({error}); make another one: holon join {} --print | kubectl apply -f -",
                ticket.name
            ),
            (Err(error), None) => {
                tracing::warn!(%error, "the server did not answer; will try again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Returns whether the server rejects the ticket for good.
fn is_final(error: &CallError) -> bool {
    matches!(error.code(), 401 | 403 | 404)
}

/// Exchanges a ticket for a token. The ticket is revoked once the token is stored.
async fn exchange(ticket: &Ticket) -> Result<Credential, CallError> {
    let config = mailbox_config(ticket, &ticket.authority, &json!({ "token": ticket.token })).await;
    let client =
        config.and_then(clients::multiplexed).map_err(|error| CallError::Garbled(error.to_string()))?;
    let token = ticket::request_token(&Remote::new(client), TOKEN_SECONDS, None).await?;
    Ok(Credential {
        mailbox: ticket.mailbox.clone(),
        ticket: ticket.id.clone(),
        is_revoked: false,
        token,
        made: now(),
        authority: ticket.authority.clone(),
        is_fenced: false,
    })
}
