//! The ticket with which a pull syncer starts.
//!
//! A ticket has a token that is bound to a Secret in the mailbox. After the exchange the syncer deletes the Secret,
//! which revokes the token. The uid of the Secret is the id of the ticket and not confidential.

use anyhow::{Context, Result};
use api::names::SYNCER_ACCOUNT;
use controller::kind::ResourceKind;
use controller::remote::{ObjectPath, Remote};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The namespace of the service account and the Secret, in the mailbox.
pub(super) const NAMESPACE: &str = "kube-system";
/// A day: a manifest is usually applied on the day it is printed.
const TICKET_SECONDS: u64 = 24 * 60 * 60;

/// The data with which a syncer reaches its mailbox.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ticket {
    /// The uid of the Secret that the token is bound to.
    pub(crate) id: String,
    /// The name of the physical cluster.
    pub(crate) name: String,
    /// The id of the mailbox.
    pub(crate) mailbox: String,
    pub(crate) server: String,
    /// The certificate authority of the server, as PEM.
    pub(crate) authority: String,
    /// Additional certificate authorities to trust, as PEM: of a TLS terminator in front of the server, or of a proxy.
    #[serde(default, alias = "alsoTrusted")]
    pub(crate) extra_authorities: String,
    pub(crate) token: String,
}

impl Ticket {
    /// Creates a ticket for the mailbox of a physical cluster, and revokes earlier ones.
    pub(crate) async fn create(
        mailbox: &Remote,
        name: &str,
        id: &str,
        server: &str,
        [authority, extra_authorities]: [&str; 2],
    ) -> Result<Ticket> {
        let secrets = ResourceKind::new("", "v1", "secrets", "Secret", true);
        let place = ObjectPath::new(&secrets, NAMESPACE, SYNCER_ACCOUNT);
        if let Some(old) = mailbox.get(place).await? {
            mailbox.delete(place, old["metadata"]["uid"].as_str().unwrap_or_default()).await?;
        }
        let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": SYNCER_ACCOUNT } });
        let bound = mailbox.create(&secrets, NAMESPACE, &object).await?;
        let uid = bound["metadata"]["uid"].as_str().context("the server created a Secret without a uid")?;
        let bound = json!({ "apiVersion": "v1", "kind": "Secret", "name": SYNCER_ACCOUNT, "uid": uid });
        let token = request_token(mailbox, TICKET_SECONDS, Some(bound)).await?;
        let [id, name, mailbox, server] = [uid, name, id, server].map(str::to_owned);
        let [authority, extra_authorities] = [authority, extra_authorities].map(str::to_owned);
        Ok(Ticket { id, name, mailbox, server, authority, extra_authorities, token })
    }

    /// Revokes a ticket. A ticket that was created since stays valid.
    pub(super) async fn revoke(id: &str, mailbox: &Remote) -> Result<()> {
        let secrets = ResourceKind::new("", "v1", "secrets", "Secret", true);
        mailbox.delete(ObjectPath::new(&secrets, NAMESPACE, SYNCER_ACCOUNT), id).await?;
        Ok(())
    }
}

/// Requests a token of the syncer's service account in a mailbox.
pub(super) async fn request_token(
    mailbox: &Remote,
    seconds: u64,
    bound: Option<serde_json::Value>,
) -> Result<String, controller::remote::CallError> {
    let accounts = ResourceKind::new("", "v1", "serviceaccounts", "ServiceAccount", true);
    let mut request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": seconds },
    });
    if let Some(bound) = bound {
        request["spec"]["boundObjectRef"] = bound;
    }
    let response =
        mailbox.post(ObjectPath::new(&accounts, NAMESPACE, SYNCER_ACCOUNT).part("token"), &request).await?;
    let token = response["status"]["token"].as_str();
    let no_token = || controller::remote::CallError::Garbled("the server returned no token".to_owned());
    token.map(str::to_owned).ok_or_else(no_token)
}
