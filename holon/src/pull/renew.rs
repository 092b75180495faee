//! Staying known to the server: what is looked at again and again beside the syncer.
//!
//! ```text
//!   another ticket?  ──► begin anew with it
//!   known?           ──► not any more: say what to do; and unless time alone is to blame, enforce nothing
//!   dismissed?       ──► take away what was applied here, and end
//!   other authority? ──► trust it, and begin anew
//!   half of the token's time over? ──► the next one
//! ```

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use api::fleet::PhysicalCluster;
use api::names::{DISMISSED, GROUP, HEARD, TOKEN_EXPIRED, TRUE, VERSION};
use controller::kind::Kind;
use controller::remote::{CallError, Patch, Place, Remote};
use controller::tasks::Stop;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::credential::{Credential, Places, now};
use super::ticket::{NAMESPACE, Ticket, token};
use super::uninstall::depart;

/// As often as a syncer looks whether its physical cluster is there.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Long enough to be cut off for a night, short enough to be worth little to a thief.
pub(crate) const TOKEN_SECONDS: u64 = 24 * 60 * 60;
/// How often in a row somebody is not known before that is believed.
const REFUSALS: u32 = 2;
/// What to do next is said again after so many looks: ten minutes.
const SAY_EVERY: u32 = 60;
/// The reason in a Status that says that somebody is not known.
const UNAUTHORIZED: &str = "Unauthorized";
/// Where every namespace has the server's authority.
const AUTHORITY: &str = "kube-root-ca.crt";

/// Why a syncer stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Somebody asked the process to.
    Asked,
    /// To begin with something else: a ticket, an authority, or being known again.
    Anew,
    /// Its physical cluster has left.
    Left,
}

pub(crate) struct Stay {
    pub(crate) mailbox: Remote,
    pub(crate) below: Remote,
    pub(crate) places: Places,
    pub(crate) credential: Credential,
    pub(crate) ticket: Ticket,
    /// Where the ticket was read.
    pub(crate) file: PathBuf,
    /// The ticket could not be exchanged, because the server was away.
    pub(crate) is_owed: bool,
    pub(crate) is_kept: bool,
    pub(crate) renew_after: Duration,
    /// How often in a row we were not known.
    pub(crate) refusals: u32,
}

/// What it means that the server does not know us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Refusal {
    /// The mailbox is there, and would have known us yesterday.
    Expired,
    /// There is no such mailbox any more, or whoever looks after it took away what we are known by.
    Unknown,
}

/// Whoever is between us and the server, a proxy or a portal that wants a password, has words of their own for `401`. Only a
/// Status with the reason that goes with it is the server's.
fn refusal(error: &CallError) -> Option<Refusal> {
    match error {
        CallError::Refused { code: 401, reason, message } if reason == UNAUTHORIZED => {
            Some(if message == TOKEN_EXPIRED { Refusal::Expired } else { Refusal::Unknown })
        }
        _ => None,
    }
}

impl Stay {
    /// Goes on until told to stop; tells once why the syncer should.
    pub(crate) async fn run(
        mut self,
        tell: oneshot::Sender<Ended>,
        mut stop: Stop,
    ) -> Result<(), std::convert::Infallible> {
        let ended = tokio::select! {
            ended = self.look_until() => ended,
            () = stop.requested() => return Ok(()),
        };
        let _ = tell.send(ended);
        stop.requested().await;
        Ok(())
    }

    async fn look_until(&mut self) -> Ended {
        loop {
            match self.look().await {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "cannot look after the credential; will try again");
                }
            }
            tokio::time::sleep(LOOK_EVERY.min(self.renew_after)).await;
        }
    }

    async fn look(&mut self) -> Result<Option<Ended>> {
        if super::read_ticket(&self.file).is_ok_and(|ticket| ticket.id != self.ticket.id) {
            tracing::info!("there is another ticket");
            return Ok(Some(Ended::Anew));
        }
        let kind = Kind::new(
            GROUP,
            VERSION,
            PhysicalCluster::RESOURCE.plural,
            PhysicalCluster::RESOURCE.kind,
            false,
        );
        let report = match self.mailbox.get(Place::new(&kind, "", &self.ticket.name)).await {
            Ok(report) => report,
            // The syncer says that the mailbox is away.
            Err(error) => match refusal(&error) {
                Some(refusal) => return self.refused(refusal).await,
                None => return Ok(None),
            },
        };
        self.refusals = 0;
        if self.is_owed {
            return Ok(Some(Ended::Anew));
        }
        if self.credential.is_fenced {
            self.credential.is_fenced = false;
            self.places.keep(&self.credential).await?;
            return Ok(Some(Ended::Anew));
        }
        if report.as_ref().is_some_and(is_dismissed) {
            depart(&self.below, &self.ticket.mailbox).await?;
            let heard = json!({ "metadata": { "annotations": { DISMISSED: HEARD } } });
            self.mailbox.patch(Place::new(&kind, "", &self.ticket.name), Patch::Merge, &heard).await?;
            return Ok(Some(Ended::Left));
        }
        if self.trusts_another().await? {
            return Ok(Some(Ended::Anew));
        }
        self.renew().await?;
        Ok(None)
    }

    /// The server does not know us. If our time is over, what was asked for last is enforced all the same: nobody said that
    /// it should not be. If that is not why, somebody has forgotten us.
    async fn refused(&mut self, refusal: Refusal) -> Result<Option<Ended>> {
        // With a ticket that is not exchanged yet it may be otherwise.
        if self.is_owed {
            return Ok(Some(Ended::Anew));
        }
        let name = &self.ticket.name;
        let next = format!("give it another ticket: holon join {name} --print | kubectl apply -f -");
        if self.refusals.is_multiple_of(SAY_EVERY) {
            match refusal {
                Refusal::Expired => tracing::error!(
                    "the token has expired while the server was away; what was asked for last stays enforced. To be heard again, {next}"
                ),
                Refusal::Unknown => tracing::error!(
                    "the server knows this syncer no longer: {name} was forgotten there, or its keys were changed. What was sent here stays, and nothing is enforced. To go on, {next}; to end, kubectl delete namespace/holon-syncer clusterrolebinding/holon-syncer"
                ),
            }
        }
        self.refusals += 1;
        if refusal == Refusal::Unknown && self.refusals >= REFUSALS && !self.credential.is_fenced {
            self.credential.is_fenced = true;
            self.places.keep(&self.credential).await?;
            return Ok(Some(Ended::Anew));
        }
        Ok(None)
    }

    /// Whether the server has another authority, or one more. While it is replaced, both are trusted.
    async fn trusts_another(&mut self) -> Result<bool> {
        let maps = Kind::new("", "v1", "configmaps", "ConfigMap", true);
        let found = self.mailbox.get(Place::new(&maps, NAMESPACE, AUTHORITY)).await?;
        let said = found.as_ref().and_then(|map| map["data"]["ca.crt"].as_str()).unwrap_or_default();
        if said.is_empty() || said == self.credential.authority {
            return Ok(false);
        }
        self.credential.authority = said.to_owned();
        self.places.keep(&self.credential).await?;
        tracing::info!("the server has another authority, which is trusted from now on");
        Ok(true)
    }

    async fn renew(&mut self) -> Result<()> {
        if self.credential.is_older_than(self.renew_after, now()) {
            let token = token(&self.mailbox, TOKEN_SECONDS, None).await.context("cannot renew the token")?;
            (self.credential.token, self.credential.made) = (token, now());
            self.is_kept = false;
        }
        if !self.is_kept {
            self.places.keep(&self.credential).await?;
            self.is_kept = true;
        }
        // Only now: a Pod that ends before its credential is kept needs the ticket once more.
        if !self.credential.is_spent {
            Ticket::spend(&self.credential.ticket, &self.mailbox).await.context("cannot spend the ticket")?;
            self.credential.is_spent = true;
            self.places.keep(&self.credential).await?;
        }
        Ok(())
    }
}

fn is_dismissed(report: &Value) -> bool {
    let said = &report["metadata"]["annotations"][DISMISSED];
    said == TRUE || said == HEARD
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two answers of a proxy that wanted to know who asks once stopped a syncer that the server knew well.
    #[tokio::test]
    async fn only_the_server_itself_can_say_that_somebody_is_unknown() {
        let status = |code: u16, reason: &str, message: &str| {
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                "reason": reason, "message": message,
            })
            .to_string()
        };
        let rows = [
            (401, status(401, UNAUTHORIZED, TOKEN_EXPIRED), Some(Refusal::Expired)),
            (401, status(401, UNAUTHORIZED, UNAUTHORIZED), Some(Refusal::Unknown)),
            (401, "<html>Please log in</html>".to_owned(), None),
            (401, json!({ "error": "Unauthorized", "message": "Unauthorized" }).to_string(), None),
            (401, String::new(), None),
            (403, status(403, "Forbidden", "forbidden"), None),
            (503, status(503, "ServiceUnavailable", "the store does not answer"), None),
        ];
        for (code, body, expected) in rows {
            let answer = body.clone();
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                let body = kube::client::Body::from(answer.clone().into_bytes());
                async move { http::Response::builder().status(code).body(body) }
            });
            let error =
                Remote::new(kube::Client::new(service, "default")).read("/version").await.unwrap_err();
            assert_eq!(refusal(&error), expected, "{code} {body}");
        }
        assert_eq!(refusal(&CallError::Unreachable("no route".to_owned())), None);
    }
}
