//! Renews the credential of a pull syncer while the syncer runs. Each round checks:
//!
//! ```text
//!   a new ticket?                ──► restart with it
//!   credential rejected?         ──► log what to do; unless it has expired, enforce nothing
//!   physical cluster removed?    ──► uninstall, and end
//!   another authority?           ──► trust it, and restart
//!   half of the lifetime over?   ──► renew the token
//! ```

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use api::fleet::PhysicalCluster;
use api::names::{ACKNOWLEDGED, GROUP, TOKEN_EXPIRED, TRUE, UNINSTALL, VERSION};
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use controller::tasks::Stop;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::credential::{Credential, CredentialStore, now};
use super::ticket::{NAMESPACE, Ticket, request_token};
use super::uninstall::uninstall;

/// As often as a syncer reports.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// Long enough for a night without a connection, short enough to limit the use of a stolen token.
pub(crate) const TOKEN_SECONDS: u64 = 24 * 60 * 60;
/// How many rejections in a row count, because one alone may be temporary.
const REFUSALS_MIN: u32 = 2;
/// A rejection is logged again after this many rounds: ten minutes.
const LOG_EVERY_ROUNDS: u32 = 60;
/// The reason of a Status with code 401.
const UNAUTHORIZED: &str = "Unauthorized";
/// The ConfigMap with the server's certificate authority, in every namespace.
const AUTHORITY_CONFIG_MAP: &str = "kube-root-ca.crt";

/// The reason why a syncer stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SyncerEnd {
    /// A signal to stop.
    Signalled,
    /// It restarts with another ticket, authority or credential.
    Restart,
    /// Its physical cluster was removed, and the syncer has uninstalled itself.
    Uninstalled,
}

pub(crate) struct CredentialRenewal {
    pub(crate) mailbox: Remote,
    pub(crate) downstream: Remote,
    pub(crate) credentials: CredentialStore,
    pub(crate) credential: Credential,
    pub(crate) ticket: Ticket,
    /// The file of the ticket.
    pub(crate) file: PathBuf,
    /// Whether the ticket could not be exchanged yet, because the server did not answer.
    pub(crate) is_exchange_pending: bool,
    pub(crate) is_stored: bool,
    pub(crate) renew_after: Duration,
    /// Rejections in a row.
    pub(crate) refusals: u32,
}

/// Why the server rejects the credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RefusalReason {
    /// The token has expired.
    Expired,
    /// The mailbox was deleted, or its service account or keys were replaced.
    Unknown,
}

/// Returns why the server rejects the credential. A proxy or a login portal may answer `401` too: only a Status with
/// the reason Unauthorized comes from the server.
fn refusal(error: &CallError) -> Option<RefusalReason> {
    match error {
        CallError::Refused { code: 401, reason, message } if reason == UNAUTHORIZED => {
            Some(if message == TOKEN_EXPIRED { RefusalReason::Expired } else { RefusalReason::Unknown })
        }
        _ => None,
    }
}

impl CredentialRenewal {
    /// Runs until `stop`, and sends once why the syncer should stop.
    pub(crate) async fn run(
        mut self,
        end: oneshot::Sender<SyncerEnd>,
        mut stop: Stop,
    ) -> Result<(), std::convert::Infallible> {
        let ended = tokio::select! {
            ended = self.run_until_end() => ended,
            () = stop.requested() => return Ok(()),
        };
        let _ = end.send(ended);
        stop.requested().await;
        Ok(())
    }

    async fn run_until_end(&mut self) -> SyncerEnd {
        loop {
            match self.run_round().await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "cannot renew the credential; will try again");
                }
            }
            tokio::time::sleep(CHECK_EVERY.min(self.renew_after)).await;
        }
    }

    async fn run_round(&mut self) -> Result<Option<SyncerEnd>> {
        if super::read_ticket(&self.file).is_ok_and(|ticket| ticket.id != self.ticket.id) {
            tracing::info!("found a new ticket");
            return Ok(Some(SyncerEnd::Restart));
        }
        let kind = ResourceKind::new(
            GROUP,
            VERSION,
            PhysicalCluster::RESOURCE.plural,
            PhysicalCluster::RESOURCE.kind,
            false,
        );
        let report = match self.mailbox.get(ObjectPath::new(&kind, "", &self.ticket.name)).await {
            Ok(report) => report,
            // The syncer itself logs that the mailbox is unreachable.
            Err(error) => match refusal(&error) {
                Some(refusal) => return self.handle_refusal(refusal).await,
                None => return Ok(None),
            },
        };
        self.refusals = 0;
        if self.is_exchange_pending {
            return Ok(Some(SyncerEnd::Restart));
        }
        if self.credential.is_fenced {
            self.credential.is_fenced = false;
            self.credentials.store(&self.credential).await?;
            return Ok(Some(SyncerEnd::Restart));
        }
        if report.as_ref().is_some_and(is_uninstall_requested) {
            uninstall(&self.downstream, &self.ticket.mailbox).await?;
            let acknowledged = json!({ "metadata": { "annotations": { UNINSTALL: ACKNOWLEDGED } } });
            self.mailbox
                .patch(ObjectPath::new(&kind, "", &self.ticket.name), Patch::Merge, &acknowledged)
                .await?;
            return Ok(Some(SyncerEnd::Uninstalled));
        }
        if self.update_authority().await? {
            return Ok(Some(SyncerEnd::Restart));
        }
        self.renew().await?;
        Ok(None)
    }

    /// Handles a rejected credential. If the token has expired, the last desired state stays enforced, because it was
    /// not withdrawn. Otherwise the physical cluster was removed.
    async fn handle_refusal(&mut self, refusal: RefusalReason) -> Result<Option<SyncerEnd>> {
        // A pending ticket may bring a valid credential.
        if self.is_exchange_pending {
            return Ok(Some(SyncerEnd::Restart));
        }
        let name = &self.ticket.name;
        let next = format!("apply a new ticket: holon join {name} --print | kubectl apply -f -");
        if self.refusals.is_multiple_of(LOG_EVERY_ROUNDS) {
            match refusal {
                RefusalReason::Expired => tracing::error!(
                    "the token has expired while the server was unreachable; the last desired state stays enforced. To reconnect, {next}"
                ),
                RefusalReason::Unknown => tracing::error!(
                    "the server no longer accepts the token of this syncer: {name} was removed there, or its keys were replaced. Placed objects stay, and nothing is enforced. To continue, {next}; to uninstall, kubectl delete namespace/holon-syncer clusterrolebinding/holon-syncer"
                ),
            }
        }
        self.refusals += 1;
        if refusal == RefusalReason::Unknown && self.refusals >= REFUSALS_MIN && !self.credential.is_fenced {
            self.credential.is_fenced = true;
            self.credentials.store(&self.credential).await?;
            return Ok(Some(SyncerEnd::Restart));
        }
        Ok(None)
    }

    /// Returns whether the server's certificate authority changed. During a rotation both are trusted.
    async fn update_authority(&mut self) -> Result<bool> {
        let maps = ResourceKind::new("", "v1", "configmaps", "ConfigMap", true);
        let found = self.mailbox.get(ObjectPath::new(&maps, NAMESPACE, AUTHORITY_CONFIG_MAP)).await?;
        let authority = found.as_ref().and_then(|map| map["data"]["ca.crt"].as_str()).unwrap_or_default();
        if authority.is_empty() || authority == self.credential.authority {
            return Ok(false);
        }
        self.credential.authority = authority.to_owned();
        self.credentials.store(&self.credential).await?;
        tracing::info!("the certificate authority of the server has changed; trusting the new one");
        Ok(true)
    }

    async fn renew(&mut self) -> Result<()> {
        if self.credential.is_older_than(self.renew_after, now()) {
            let token =
                request_token(&self.mailbox, TOKEN_SECONDS, None).await.context("cannot renew the token")?;
            (self.credential.token, self.credential.made) = (token, now());
            self.is_stored = false;
        }
        if !self.is_stored {
            self.credentials.store(&self.credential).await?;
            self.is_stored = true;
        }
        // Revoked only now: a pod that ends before its credential is stored needs the ticket again.
        if !self.credential.is_revoked {
            Ticket::revoke(&self.credential.ticket, &self.mailbox)
                .await
                .context("cannot revoke the ticket")?;
            self.credential.is_revoked = true;
            self.credentials.store(&self.credential).await?;
        }
        Ok(())
    }
}

fn is_uninstall_requested(report: &Value) -> bool {
    let state = &report["metadata"]["annotations"][UNINSTALL];
    state == TRUE || state == ACKNOWLEDGED
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two `401` responses of a proxy once stopped a syncer that the server accepted.
    #[tokio::test]
    async fn only_the_server_itself_can_refuse_a_credential() {
        let status = |code: u16, reason: &str, message: &str| {
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                "reason": reason, "message": message,
            })
            .to_string()
        };
        let rows = [
            (401, status(401, UNAUTHORIZED, TOKEN_EXPIRED), Some(RefusalReason::Expired)),
            (401, status(401, UNAUTHORIZED, UNAUTHORIZED), Some(RefusalReason::Unknown)),
            (401, "<html>Please log in</html>".to_owned(), None),
            (401, json!({ "error": "Unauthorized", "message": "Unauthorized" }).to_string(), None),
            (401, String::new(), None),
            (403, status(403, "Forbidden", "forbidden"), None),
            (503, status(503, "ServiceUnavailable", "the store does not answer"), None),
        ];
        for (code, body, expected) in rows {
            let text = body.clone();
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let body = kube::client::Body::from(text.clone().into_bytes());
                async move { http::Response::builder().status(code).body(body) }
            });
            let error =
                Remote::new(kube::Client::new(service, "default")).read("/version").await.unwrap_err();
            assert_eq!(refusal(&error), expected, "{code} {body}");
        }
        assert_eq!(refusal(&CallError::Unreachable("no route".to_owned())), None);
    }
}
