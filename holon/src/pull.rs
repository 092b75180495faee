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

use self::credential::{Credential, Places, choose, now};
use self::renew::TOKEN_SECONDS;
use crate::clients;

pub(crate) use self::manifest::{HERE, Wanted, manifest};
pub(crate) use self::ticket::Ticket;

/// Before a server that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(5);
/// How the server knows us.
pub(crate) struct Known {
    pub(crate) credential: Credential,
    /// There is a ticket that could not be exchanged yet.
    pub(crate) is_owed: bool,
}

pub(crate) fn read_ticket(file: &Path) -> Result<Ticket> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("reading {}; `holon join NAME --print` makes it", file.display()))?;
    serde_json::from_str(&text).context("the ticket cannot be read")
}

pub(crate) async fn below(kubeconfig: Option<&Path>) -> Result<Config> {
    match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)?;
            clients::by(kubeconfig).await
        }
        None => Ok(Config::incluster()?),
    }
}

/// How to reach the mailbox, by the server's authority as it is now, and by those who may be between.
pub(crate) async fn above(ticket: &Ticket, authority: &str, user: &Value) -> Result<Config> {
    let trusted = STANDARD.encode([authority, &ticket.also_trusted].join("\n"));
    let cluster = json!({ "server": ticket.server, "certificate-authority-data": trusted });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "mailbox",
        "clusters": [{ "name": "mailbox", "cluster": cluster }],
        "users": [{ "name": "mailbox", "user": user }],
        "contexts": [{ "name": "mailbox", "context": { "cluster": "mailbox", "user": "mailbox" } }],
    });
    let kubeconfig = Kubeconfig::from_yaml(&kubeconfig.to_string())?;
    clients::by(kubeconfig).await
}

/// Finds out how the server knows us: by what came of this ticket, by exchanging it, or by what came of another before.
pub(crate) async fn known(ticket: &Ticket, places: &Places) -> Result<Known> {
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
        config.and_then(clients::multiplexed).map_err(|error| CallError::Garbled(error.to_string()))?;
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
