//! What a syncer that dials in begins with.
//!
//! A ticket has a token that is bound to a Secret in the mailbox. Whoever exchanges it deletes the Secret, and with it the
//! ticket. The uid of the Secret tells tickets apart, and is worth nothing to whoever reads it.

use anyhow::{Context, Result};
use api::names::SYNCER_ACCOUNT;
use controller::kind::Kind;
use controller::remote::{Place, Remote};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Where the account and the Secret are, in the mailbox.
pub(super) const NAMESPACE: &str = "kube-system";
/// A manifest is applied on the day it was made.
const SECONDS: u64 = 24 * 60 * 60;

/// Everything a syncer needs to know about where it belongs.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ticket {
    /// Which one: the uid of the Secret it is bound to.
    pub(crate) id: String,
    /// Of the physical cluster.
    pub(crate) name: String,
    /// The id of the mailbox.
    pub(crate) mailbox: String,
    pub(crate) server: String,
    /// The authority of the server, as PEM.
    pub(crate) authority: String,
    /// Whom else to trust on the way there, as PEM: whoever ends TLS in front of the server, or is a proxy.
    #[serde(default)]
    pub(crate) also_trusted: String,
    pub(crate) token: String,
}

impl Ticket {
    /// Makes one for the mailbox of a physical cluster. Those made before are worth nothing from then on.
    pub(crate) async fn make(
        mailbox: &Remote,
        name: &str,
        id: &str,
        server: &str,
        [authority, also_trusted]: [&str; 2],
    ) -> Result<Ticket> {
        let secrets = Kind::new("", "v1", "secrets", "Secret", true);
        let place = Place::new(&secrets, NAMESPACE, SYNCER_ACCOUNT);
        if let Some(old) = mailbox.get(place).await? {
            mailbox.delete(place, old["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        }
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SYNCER_ACCOUNT } });
        let bound = mailbox.create(&secrets, NAMESPACE, &object).await?;
        let uid = bound["metadata"]["uid"].as_str().context("the server made a Secret without a uid")?;
        let bound = json!({ "apiVersion": "v1", "kind": "Secret", "name": SYNCER_ACCOUNT, "uid": uid });
        let token = token(mailbox, SECONDS, Some(bound)).await?;
        let [id, name, mailbox, server] = [uid, name, id, server].map(str::to_owned);
        let [authority, also_trusted] = [authority, also_trusted].map(str::to_owned);
        Ok(Ticket { id, name, mailbox, server, authority, also_trusted, token })
    }

    /// Makes it worth nothing. Another that was made meanwhile stays.
    pub(super) async fn spend(id: &str, mailbox: &Remote) -> Result<()> {
        let secrets = Kind::new("", "v1", "secrets", "Secret", true);
        mailbox.delete(Place::new(&secrets, NAMESPACE, SYNCER_ACCOUNT), id).await?;
        Ok(())
    }
}

/// Asks for a token of the syncer's account in a mailbox.
pub(super) async fn token(
    mailbox: &Remote,
    seconds: u64,
    bound: Option<serde_json::Value>,
) -> Result<String, controller::remote::CallError> {
    let accounts = Kind::new("", "v1", "serviceaccounts", "ServiceAccount", true);
    let mut wanted = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": seconds },
    });
    if let Some(bound) = bound {
        wanted["spec"]["boundObjectRef"] = bound;
    }
    let made = mailbox.post(Place::new(&accounts, NAMESPACE, SYNCER_ACCOUNT).part("token"), &wanted).await?;
    let token = made["status"]["token"].as_str();
    let none = || controller::remote::CallError::Garbled("the server made no token".to_owned());
    token.map(str::to_owned).ok_or_else(none)
}
