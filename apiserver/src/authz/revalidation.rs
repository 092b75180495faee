//! Revalidates the authorization of a watch while it is open.
//!
//! ```text
//!   policies of the logical cluster and its ancestors ────────────┐
//!   the token: expiry, line in the file, objects it is bound to ──├─► a notification or a timer ─► still authorized?
//!   the logical cluster and its ancestors ────────────────────────┘
//! ```
//!
//! The authorization of a watch is decided again when something it depends on changes. So revoking a right ends the
//! watch within a second, and no event from after that change is sent to the client.

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

/// Interval for checking static tokens: a change of the token file sends no notification.
const POLL_EVERY: Duration = Duration::from_secs(1);
/// Watches do not last longer, so later expiries need no timer. Streams without a limit are checked at this interval.
const LASTS_SECONDS_MAX: i64 = 3600;

/// Detects that a watch is no longer authorized.
#[derive(Debug)]
pub(crate) struct Revalidation {
    authorization: Authorization,
    authenticators: Authenticators,
    subscription: PolicySubscription,
    /// The objects of the logical cluster and its ancestors, with their ids. Empty for a watch of all logical clusters.
    lineage_objects: Vec<(Key, Id)>,
    /// The revision of the policies that were used.
    checked_through: Revision,
    /// Whether the credential and the logical cluster must be checked again.
    is_in_doubt: bool,
    /// The time of the next check without a notification.
    due: Option<Pin<Box<Sleep>>>,
    /// Whether the stream has no time limit.
    is_endless: bool,
}

impl Revalidation {
    /// Creates one for a watch of one logical cluster, or of all of them.
    pub(crate) async fn new(
        authorization: &Authorization,
        authenticators: &Authenticators,
        all: bool,
    ) -> Result<Revalidation, Status> {
        let (access, sender) = (authorization.access(), authorization.sender());
        let lineage_objects = match all {
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
        let keys = lineage_objects.iter().map(|(key, _)| key.clone()).chain(bound);
        let subscription = access.notifier().subscribe(topics.chain(keys.map(Topic::Object)).collect());
        Ok(Revalidation {
            due: due(sender, false).map(|due| Box::pin(sleep_until(due))),
            is_endless: false,
            authorization: authorization.clone(),
            authenticators: authenticators.clone(),
            subscription,
            lineage_objects,
            checked_through: authorization.decided(),
            // Changes before the subscription sent no notification.
            is_in_doubt: true,
        })
    }

    /// Creates one for a stream that may last for days, in one logical cluster.
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

    /// Reports whether the policies at a revision, which must exist, still allow the watch.
    pub(crate) async fn holds_at(&mut self, revision: Revision) -> Result<bool, ReadError> {
        self.authorization.access().index().reach(revision).await?;
        Ok(self.is_let_in())
    }

    async fn holds(&mut self) -> bool {
        if !self.is_let_in() {
            return false;
        }
        if self.is_in_doubt {
            // A failed read counts as a lost authorization: the client watches again and is authorized anew.
            if !self.clusters_exist().await.unwrap_or(false) {
                return false;
            }
            self.is_in_doubt = false;
        }
        true
    }

    fn is_let_in(&mut self) -> bool {
        let Some(lineage) = self.authorization.lineage() else { return true };
        let changed = self.authorization.access().changed(lineage);
        if changed > self.checked_through {
            if self.authorization.check().is_err() {
                return false;
            }
            self.checked_through = changed;
        }
        true
    }

    /// Reports whether the credential is still valid and the logical cluster still exists.
    async fn clusters_exist(&self) -> Result<bool, ReadError> {
        Ok(self.authenticators.is_valid(self.authorization.sender()).await?
            && all_exist(self.authorization.access(), &self.lineage_objects).await?)
    }
}

/// Returns the time of the next check without a notification.
fn due(sender: &Identity, is_endless: bool) -> Option<Instant> {
    let Identity::User(user) = sender else { return None };
    let remaining_seconds = user.expires.map(|expires| expires.saturating_sub(Timestamp::now().as_second()));
    match (&user.credential, remaining_seconds) {
        (Credential::TokenFile(_), _) => Some(Instant::now() + POLL_EVERY),
        (_, Some(remaining_seconds)) if is_endless || remaining_seconds <= LASTS_SECONDS_MAX => {
            let remaining_seconds = remaining_seconds.min(LASTS_SECONDS_MAX);
            // A minimum, in case two clocks differ by a fraction of a second.
            let remaining_seconds =
                u64::try_from(remaining_seconds).map_or(Duration::ZERO, Duration::from_secs);
            Some(Instant::now() + remaining_seconds.max(Duration::from_millis(50)))
        }
        _ => None,
    }
}

/// Returns the keys of the objects of a logical cluster and its ancestors, each in its parent, with their ids.
pub(super) fn objects(lineage: &Lineage) -> Vec<(Key, Id)> {
    let pairs = lineage.iter().zip(lineage.iter().skip(1));
    let object = |((id, _), (above, path)): (&(Id, String), &(Id, String))| {
        // The path in the parent begins with the name of the child: `/clusters/name:…`.
        let name = path.strip_prefix("/clusters/")?.split(':').next()?;
        Some((logical_cluster::COLLECTION.key(*above, None, name), *id))
    };
    pairs.filter_map(object).collect()
}

/// Reports whether all of them exist and none is terminating.
pub(super) async fn all_exist(access: &Access, lineage_objects: &[(Key, Id)]) -> Result<bool, ReadError> {
    for (key, id) in lineage_objects {
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

    /// Regression: an event from after the removal of the binding was sent if the stream saw it first. In this test no
    /// task notifies the stream of the binding at all.
    #[tokio::test]
    async fn a_watch_sends_no_event_written_after_a_revocation() {
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
        let stack = Arc::new(Stack::new(store.clone(), String::new(), tasks.stop()));
        let request = Request::get(format!("/api/v1/configmaps?watch=1&resourceVersion={bound}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = stack.respond(Identity::user("ann", &[]), request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let key = Collection { group: GROUP, plural: "clusterrolebindings" }.key(Id::ROOT, None, "one");
        store.commit(key, Expect::Revision(bound), Change::Delete).await.unwrap();
        put("", "configmaps", Some("default"), json!({ "metadata": { "name": "late" } })).await;
        let response = tokio::time::timeout(Duration::from_secs(20), response.into_body().collect()).await;
        assert_eq!(response.expect("the watch has ended").unwrap().to_bytes(), Bytes::new());
    }
}
