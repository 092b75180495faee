//! Authorizes a watch again, for as long as it is open.
//!
//! ```text
//!   policies of the logical cluster and those above ─┐
//!   the token: its time, its line, what it is bound to ├─► a notification, a timer ─► still authorized?
//!   the logical cluster and those above ───────────────┘
//! ```
//!
//! The authorization of a watch is decided again when something it depends on changes. So a revoked right ends the watch
//! within a second, and no event from after a policy change is sent to a client that it shuts out.

use std::pin::Pin;
use std::time::Duration;

use api::cluster::Id;
use jiff::Timestamp;
use openapi::meta::status::Status;
use storage::{Key, ReadError, Revision};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::authn::credential::{Authenticators, Credential};
use crate::authn::identity::Identity;
use crate::authz::access::{Access, Lineage};
use crate::authz::authorization::Authorization;
use crate::authz::notifier::{PolicySubscription, Topic};
use crate::clusters::logical_cluster;
use crate::objects::store_errors::unreadable;

/// How often the operator's token file is looked at for those who are known by it. A change of the file sends no notification.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// No watch stays longer, so no clock is set for what ends later. Whatever may stay longer is looked at as often.
const LASTS_SECONDS_MAX: i64 = 3600;

/// Notices when a watch would no longer be authorized.
#[derive(Debug)]
pub(crate) struct Revalidation {
    authorization: Authorization,
    authenticators: Authenticators,
    subscription: PolicySubscription,
    /// The objects that stand for the logical cluster and those above it, and their ids; none if it is about all.
    line: Vec<(Key, Id)>,
    /// Decided on policies as of here.
    seen: Revision,
    /// Something may have happened to what the sender is known by, or to the logical cluster.
    is_in_doubt: bool,
    /// When to check, with or without a notification.
    due: Option<Pin<Box<Sleep>>>,
    /// Has no time limit.
    is_endless: bool,
}

impl Revalidation {
    /// `authorization` is for one logical cluster, or for all of them.
    pub(crate) async fn new(
        authorization: &Authorization,
        authenticators: &Authenticators,
        all: bool,
    ) -> Result<Revalidation, Status> {
        let (access, sender) = (authorization.access(), authorization.sender());
        let line = match all {
            true => Vec::new(),
            false => {
                let lineage = access.lineage(authorization.cluster()).await.map_err(unreadable)?;
                objects(&lineage.ok_or_else(Status::unknown_path)?)
            }
        };
        let bound = match sender {
            Identity::User(user) => user.credential.bound(),
            Identity::Anonymous => Vec::new(),
        };
        let policies = authorization.lineage().into_iter().flat_map(|lineage| lineage.iter());
        let topics = policies.map(|(id, _)| Topic::Policy(*id));
        let keys = line.iter().map(|(key, _)| key.clone()).chain(bound);
        let subscription = access.notifier().subscribe(topics.chain(keys.map(Topic::Object)).collect());
        Ok(Revalidation {
            due: due(sender, false).map(|due| Box::pin(sleep_until(due))),
            is_endless: false,
            authorization: authorization.clone(),
            authenticators: authenticators.clone(),
            subscription,
            line,
            seen: authorization.decided(),
            // Changes before the subscription sent no notification.
            is_in_doubt: true,
        })
    }

    /// The same for a stream that may last for days, in one logical cluster.
    pub(crate) async fn endless(
        authorization: &Authorization,
        authenticators: &Authenticators,
    ) -> Result<Revalidation, Status> {
        let mut revalidation = Revalidation::new(authorization, authenticators, false).await?;
        revalidation.is_endless = true;
        revalidation.set_clock();
        Ok(revalidation)
    }

    fn set_clock(&mut self) {
        self.due = due(self.authorization.sender(), self.is_endless).map(|due| Box::pin(sleep_until(due)));
    }

    /// Returns once the watch is no longer authorized. Cancel-safe.
    pub(crate) async fn lost(&mut self) {
        while self.holds().await {
            let clock = async {
                match &mut self.due {
                    Some(due) => due.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.subscription.notified() => {}
                () = clock => self.set_clock(),
            }
            self.is_in_doubt = true;
        }
    }

    /// Whether policies as of a revision, which must have happened, still let them in.
    pub(crate) async fn holds_at(&mut self, revision: Revision) -> Result<bool, ReadError> {
        self.authorization.access().index().reach(revision).await?;
        Ok(self.is_let_in())
    }

    async fn holds(&mut self) -> bool {
        if !self.is_let_in() {
            return false;
        }
        if self.is_in_doubt {
            // What cannot be read is not given the benefit of the doubt: the client comes again, and so does the answer.
            if !self.is_there().await.unwrap_or(false) {
                return false;
            }
            self.is_in_doubt = false;
        }
        true
    }

    fn is_let_in(&mut self) -> bool {
        let Some(lineage) = self.authorization.lineage() else { return true };
        let changed = self.authorization.access().changed(lineage);
        if changed > self.seen {
            if self.authorization.check().is_err() {
                return false;
            }
            self.seen = changed;
        }
        true
    }

    /// Whether sender and logical cluster are still what they were.
    async fn is_there(&self) -> Result<bool, ReadError> {
        Ok(self.authenticators.is_valid(self.authorization.sender()).await?
            && are_there(self.authorization.access(), &self.line).await?)
    }
}

/// When to look at a sender again without being told to.
fn due(sender: &Identity, is_endless: bool) -> Option<Instant> {
    let Identity::User(user) = sender else { return None };
    let left = user.expires.map(|expires| expires.saturating_sub(Timestamp::now().as_second()));
    match (&user.credential, left) {
        (Credential::TokenFile(_), _) => Some(Instant::now() + LOOK_EVERY),
        (_, Some(left)) if is_endless || left <= LASTS_SECONDS_MAX => {
            let left = left.min(LASTS_SECONDS_MAX);
            // At least a little, should two clocks disagree about a fraction of a second.
            let left = u64::try_from(left).map_or(Duration::ZERO, Duration::from_secs);
            Some(Instant::now() + left.max(Duration::from_millis(50)))
        }
        _ => None,
    }
}

/// The objects that stand for a logical cluster and those above it, each in the one above; and whose ids they have.
pub(super) fn objects(lineage: &Lineage) -> Vec<(Key, Id)> {
    let pairs = lineage.iter().zip(lineage.iter().skip(1));
    let object = |((id, _), (above, path)): (&(Id, String), &(Id, String))| {
        // What the first is called in the second is where the path there begins: `/clusters/name:…`.
        let name = path.strip_prefix("/clusters/")?.split(':').next()?;
        Some((logical_cluster::COLLECTION.key(*above, None, name), *id))
    };
    pairs.filter_map(object).collect()
}

/// Whether all of them exist, and none is being deleted.
pub(super) async fn are_there(access: &Access, line: &[(Key, Id)]) -> Result<bool, ReadError> {
    for (key, id) in line {
        if logical_cluster::at(access.store(), key).await? != Some(*id) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use http_body_util::{BodyExt, Full};
    use serde_json::{Value, json};
    use storage::memory::Memory;
    use storage::{Change, Expect, Store};

    use super::*;
    use crate::clusters::records;
    use crate::clusters::records::LogicalClusterRecord;
    use crate::keys::Collection;
    use crate::objects::stored;
    use crate::stack::Stack;

    const GROUP: &str = "rbac.authorization.k8s.io";

    /// An event used to be sent that was written after the binding was gone, if the stream saw it first. Here no task
    /// tells it of the binding at all.
    #[tokio::test]
    async fn what_is_written_after_a_revocation_is_not_told() {
        let store = Arc::new(Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let put = async |group: &str, plural: &str, namespace: Option<&str>, object: Value| {
            let key = Collection { group, plural }.key(Id::ROOT, namespace, "one");
            store.commit(key, Expect::Absent, Change::Put(stored::encode(&object))).await.unwrap().revision
        };
        let rules = json!([
            { "verbs": ["access"], "nonResourceURLs": ["/"] },
            { "verbs": ["watch"], "apiGroups": [""], "resources": ["configmaps"] },
        ]);
        put(GROUP, "clusterroles", None, json!({ "rules": rules })).await;
        let binding = json!({
            "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": "one" },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": "ann" }],
        });
        let bound = put(GROUP, "clusterrolebindings", None, binding).await;

        let tasks = controller::tasks::Tasks::new();
        let stack = Stack::new(store.clone(), String::new(), tasks.stop());
        let request = Request::get(format!("/api/v1/configmaps?watch=1&resourceVersion={bound}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = stack.respond(Identity::user("ann", &[]), request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let key = Collection { group: GROUP, plural: "clusterrolebindings" }.key(Id::ROOT, None, "one");
        store.commit(key, Expect::Revision(bound), Change::Delete).await.unwrap();
        put("", "configmaps", Some("default"), json!({ "metadata": { "name": "late" } })).await;
        let told = tokio::time::timeout(Duration::from_secs(20), response.into_body().collect()).await;
        assert_eq!(told.expect("the watch has ended").unwrap().to_bytes(), Bytes::new());
    }
}
