//! Lets pods reach the logical cluster they were applied to, from whichever physical cluster they run on.
//!
//! ```text
//!   ServiceAccount bot ──TokenRequest──► token ─┐
//!   certificate authority, namespace ───────────┴─► Secret holon-api-access-bot, in every mailbox with pods of bot
//! ```
//!
//! The splitter writes the Secret, and the syncer applies it like every placed object; pods are
//! [rewritten](crate::transform::api_access) to mount it at the standard path. The token belongs to the user's own
//! service account, so RBAC of the user's logical cluster decides what it may do, it is valid nowhere else, and it ends
//! with the account. Every mailbox has a token of its own. The time of renewal is an annotation on the Secret, so a
//! restarted splitter needs no other state.
//!
//! Pods keep the address they were created with until they change. A Job and a bare Pod cannot be changed, so they keep
//! it for good.

mod secret;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use api::names::API_HOME;
use controller::informer::CachedObject;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath};
use serde_json::{Value, json};

use crate::context::PREREQUISITE_REQUEUE;
use crate::context::{ApiEndpoint, ServiceAccountRef, Splitter, WorkItem, lock};
use crate::snapshot::mailbox_objects::{MailboxObject, namespace_on};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::{MemberCluster, ObjectRef, WatchedKind};
use crate::transform::api_access::{ApiAccess, account_of};
use crate::transform::references::pod_spec_at;
use secret::AccessSecret;

/// The service account does not exist, or is not cached: no event requeues when it changes.
const MISSING_ACCOUNT_REQUEUE: Duration = Duration::from_secs(1);
/// How the pods of an object reach its logical cluster. None if it has no pods, or the server has no address for pods.
pub(crate) async fn of(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    mailbox_objects: &[MailboxObject],
) -> Result<Option<ApiAccess>, CallError> {
    let spec = pod_spec_at(object).and_then(|at| object.pointer(at));
    let (Some(api_endpoint), Some(spec)) = (&splitter.api_endpoint, spec) else { return Ok(None) };
    let account = ServiceAccountRef::of(subject, account_of(spec));
    let mounts = match spec["automountServiceAccountToken"].as_bool() {
        Some(mounts) => mounts,
        None => match account.cached(splitter) {
            Some(cached) => automounts(&cached),
            // An existing mailbox object mounts a token, so the account allowed it. If that had changed, the account
            // would be in the cache.
            None if mailbox_objects.iter().any(mounts_already) => true,
            None => account.read(splitter).await?.is_none_or(|account| automounts(&account)),
        },
    };
    let (host, port) = (api_endpoint.host.clone(), api_endpoint.port);
    Ok(Some(ApiAccess { host, port, secret: secret::name(&account.name), mounts }))
}

fn mounts_already(mailbox_object: &MailboxObject) -> bool {
    let annotation = mailbox_object
        .object
        .as_ref()
        .and_then(|object| object["metadata"]["annotations"][API_HOME].as_str());
    annotation
        .and_then(|annotation| serde_json::from_str::<ApiAccess>(annotation).ok())
        .is_some_and(|access| access.mounts)
}

fn automounts(account: &Value) -> bool {
    account["automountServiceAccountToken"] != false
}

/// Queues the service accounts of the pods that an object has or had.
pub(crate) fn enqueue_accounts(
    splitter: &Splitter,
    subject: &ObjectRef,
    entries: &[Option<&PlacementEntry>],
) {
    let accesses = entries.iter().copied().flatten().filter_map(|entry| entry.api_access.as_ref());
    for access in accesses {
        splitter.queue.add(WorkItem::ApiAccess(ServiceAccountRef::of(subject, &access.account)));
    }
}

/// A service account changed: its tokens are invalid if it was recreated, and its pods may mount tokens or not.
pub(crate) fn handle_service_account(splitter: &Splitter, object: &CachedObject) {
    let (namespace, name) = (object.key.namespace.clone(), object.key.name.clone());
    let Some(cluster) = object.key.cluster else { return };
    let account = ServiceAccountRef { cluster, namespace, name };
    account.enqueue_users(splitter);
    splitter.queue.add(WorkItem::ApiAccess(account));
}

/// The service account that a Secret in a mailbox belongs to, if it is one of these.
pub(crate) fn account_of_secret(object: &CachedObject) -> Option<ServiceAccountRef> {
    secret::owner(&object.parse()?).map(|(account, _)| account)
}

impl ServiceAccountRef {
    fn of(subject: &ObjectRef, name: &str) -> ServiceAccountRef {
        ServiceAccountRef {
            cluster: subject.cluster(),
            namespace: subject.key.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// The account in the cache. The default account is not cached.
    fn cached(&self, splitter: &Splitter) -> Option<Value> {
        let accounts = splitter.caches.by_group_kind("", "ServiceAccount")?;
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        accounts.get(&controller::informer::Key { cluster: Some(self.cluster), namespace, name })
    }

    async fn read(&self, splitter: &Splitter) -> Result<Option<Value>, CallError> {
        let Some(accounts) = splitter.caches.by_group_kind("", "ServiceAccount") else { return Ok(None) };
        let place = ObjectPath::new(&accounts.kind, &self.namespace, &self.name);
        splitter.caches.server.within(self.cluster).get(place).await
    }

    /// Queues all objects whose pods use this account.
    fn enqueue_users(&self, splitter: &Splitter) {
        let placement_index = lock(&splitter.placement_index);
        let is_user = |entry: &PlacementEntry| {
            entry.api_access.as_ref().is_some_and(|access| access.account == self.name)
        };
        let users = placement_index.within(self.cluster, &self.namespace).filter(|(_, entry)| is_user(entry));
        users.for_each(|(subject, _)| splitter.queue.add(WorkItem::Object(subject.clone())));
    }

    /// The physical clusters with pods that call the API with this account.
    fn target_clusters(&self, splitter: &Splitter, automounts: bool) -> BTreeSet<String> {
        let placement_index = lock(&splitter.placement_index);
        let entries = placement_index.within(self.cluster, &self.namespace).map(|(_, entry)| entry);
        let calls = |entry: &&PlacementEntry| {
            let access = entry.api_access.as_ref().filter(|access| access.account == self.name);
            access.is_some_and(|access| access.always || automounts)
        };
        let targets = entries.filter(calls).flat_map(|entry| &entry.targets);
        targets.map(|target| target.cluster.clone()).collect()
    }
}

/// Keeps the Secrets of an account: one with a valid token in every mailbox where its pods are, none elsewhere.
pub(crate) async fn reconcile(
    splitter: &Splitter,
    account: &ServiceAccountRef,
) -> Result<Outcome, CallError> {
    let (Some(api_endpoint), Some(secrets)) =
        (&splitter.api_endpoint, splitter.caches.by_group_kind("", "Secret"))
    else {
        return Ok(Outcome::Done);
    };
    let found = account.read(splitter).await?;
    let target_clusters = account.target_clusters(splitter, found.as_ref().is_none_or(automounts));
    let mut used = splitter.visible_from(account.cluster);
    used.retain(|member| target_clusters.contains(member.name()));
    if !delete_unused_secrets(splitter, &secrets, account, &used).await? {
        return Ok(Outcome::RequeueAfter(PREREQUISITE_REQUEUE));
    }
    let mut outcome = Outcome::Done;
    for member in used.iter().filter(|member| !member.object.metadata.is_being_deleted()) {
        // As in Kubernetes, pods do not start before their service account exists.
        let Some(found) = &found else { return Ok(Outcome::RequeueAfter(MISSING_ACCOUNT_REQUEUE)) };
        if let Some(left) = ensure_secret(splitter, &secrets, api_endpoint, account, found, member).await? {
            outcome = requeue_sooner(outcome, left);
        }
    }
    Ok(outcome)
}

/// Deletes the Secrets of an account where it is not used. False if the placement index is not complete yet.
async fn delete_unused_secrets(
    splitter: &Splitter,
    secrets: &WatchedKind,
    account: &ServiceAccountRef,
    used: &[Arc<MemberCluster>],
) -> Result<bool, CallError> {
    let members = {
        let clusters = splitter.caches.clusters();
        splitter.caches.members().all(&clusters)
    };
    let is_used = |member: &MemberCluster| {
        used.iter().any(|user| (user.owner, user.name()) == (member.owner, member.name()))
    };
    for member in members.iter().filter(|member| !is_used(member)) {
        let Some((mailbox, Some(secret))) = present(secrets, account, member) else { continue };
        if secret.is_being_deleted {
            continue;
        }
        if !splitter.is_indexed(account.cluster, &account.namespace) {
            return Ok(false);
        }
        // If the account disabled automounting, pods that mount the Secret have to be rewritten.
        account.enqueue_users(splitter);
        let namespace = namespace_on(member, account.cluster, &account.namespace);
        let place = ObjectPath::new(&secrets.kind, &namespace, &secret.name);
        splitter.caches.server.within(mailbox).delete(place, &secret.uid).await?;
        splitter.own_writes.add_deletion(account);
    }
    Ok(true)
}

fn requeue_sooner(outcome: Outcome, left: Duration) -> Outcome {
    match outcome {
        Outcome::RequeueAfter(earlier) => Outcome::RequeueAfter(earlier.min(left)),
        _ => Outcome::RequeueAfter(left),
    }
}

/// The mailbox of a physical cluster, and the Secret of an account in it.
fn present(
    secrets: &WatchedKind,
    account: &ServiceAccountRef,
    member: &Arc<MemberCluster>,
) -> Option<(Id, Option<AccessSecret>)> {
    let mailbox = member.mailbox()?;
    let key = controller::informer::Key {
        cluster: Some(mailbox),
        namespace: namespace_on(member, account.cluster, &account.namespace),
        name: secret::name(&account.name),
    };
    let found = secrets.get(&key).and_then(|object| AccessSecret::read(&object));
    Some((mailbox, found.filter(|secret| secret.account == *account)))
}

/// Creates or renews the Secret in one mailbox. Returns how long it is valid.
async fn ensure_secret(
    splitter: &Splitter,
    secrets: &Arc<WatchedKind>,
    api_endpoint: &ApiEndpoint,
    account: &ServiceAccountRef,
    found: &Value,
    member: &Arc<MemberCluster>,
) -> Result<Option<Duration>, CallError> {
    let Some((mailbox, present)) = present(secrets, account, member) else { return Ok(None) };
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
    if present.as_ref().is_some_and(|present| present.is_being_deleted) {
        return Ok(Some(PREREQUISITE_REQUEUE));
    }
    let left = present.as_ref().and_then(|present| present.valid_for(uid, api_endpoint));
    if let Some(left) = left {
        return Ok(Some(left));
    }
    let token = request_token(splitter, account).await?;
    let namespace = namespace_on(member, account.cluster, &account.namespace);
    let (desired, left) = secret::written(account, uid, &namespace, api_endpoint, &token, present.as_ref());
    let client = splitter.caches.server.within(mailbox);
    let written = match &present {
        None => client.create(&secrets.kind, &namespace, &desired).await?,
        Some(present) => {
            client.replace(ObjectPath::new(&secrets.kind, &namespace, &present.name), &desired).await?
        }
    };
    splitter.own_writes.add(account, &written);
    Ok(Some(left))
}

/// The lifetime of tokens. Pods keep working while the server is down for most of a day.
const SECONDS: u64 = 24 * 60 * 60;

/// A token of the account, as its logical cluster issues it.
async fn request_token(splitter: &Splitter, account: &ServiceAccountRef) -> Result<Value, CallError> {
    let Some(accounts) = splitter.caches.by_group_kind("", "ServiceAccount") else { return Ok(Value::Null) };
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": SECONDS },
    });
    let place = ObjectPath::new(&accounts.kind, &account.namespace, &account.name).part("token");
    splitter.caches.server.within(account.cluster).post(place, &request).await
}

#[cfg(test)]
mod tests;
