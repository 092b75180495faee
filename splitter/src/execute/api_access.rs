//! How pods reach the logical cluster they were applied to, from wherever they run.
//!
//! ```text
//!   ServiceAccount bot ──asks for──► a token ─┐
//!   whom Holon is vouched for by, namespace ──┴─► Secret holon-api-access-bot, in every mailbox where pods of bot are
//! ```
//!
//! The Secret is made here and goes below as everything that is placed does; pods are [rewritten](crate::transform::api_access) to
//! mount it where clients look for it. Its token is one of the user's own service account, so what it may do is decided by
//! the roles of the user's logical cluster, it leads nowhere else, and it ends when the account does. Each place has a token
//! of its own. When it is to be renewed is written on the Secret: whoever looks after it next needs to know nothing else.
//!
//! What pods have is what was asked for when they were last changed. A Job and a bare Pod cannot be changed, so they keep
//! the address they were given.

mod secret;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use api::names::API_HOME;
use controller::informer::Object;
use controller::queue::Outcome;
use controller::remote::{CallError, Place};
use serde_json::{Value, json};

use crate::controller::{Splitter, WorkItem, lock};
use crate::reconcile::{OWN_WRITE_REQUEUE, PREREQUISITE_REQUEUE};
use crate::snapshot::mailbox_objects::{MailboxObject, namespace_on};
use crate::snapshot::placement_index::PlacementEntry;
use crate::snapshot::{MemberCluster, ObjectRef, WatchedKind};
use crate::transform::api_access::{ApiAccess, projects};
use crate::transform::group_kind;
use crate::transform::references::pod_spec_at;
use secret::AccessSecret;

/// Where pods find Holon, and whom they trust when they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiEndpoint {
    pub host: String,
    pub port: u16,
    /// The certificate of the authority that vouches for Holon, as PEM.
    pub authority: String,
}

/// The service account of a user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceAccountRef {
    pub cluster: Id,
    pub namespace: String,
    pub name: String,
}

/// As whom the pods of an object call the API, if they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PodApiAccess {
    account: String,
    /// Whether that is so whatever the account says.
    always: bool,
}

/// Made in every namespace by itself, and so no view has it.
const DEFAULT: &str = "default";
/// What the account says may change without anybody telling us.
const MISSING_ACCOUNT_REQUEUE: Duration = Duration::from_secs(1);
/// Kinds whose pods are never others than they were.
const FIXED: &[(&str, &str)] = &[("", "Pod"), ("batch", "Job")];

impl PodApiAccess {
    pub(crate) fn of(object: &Value) -> Option<PodApiAccess> {
        let spec = pod_spec_at(object).and_then(|at| object.pointer(at))?;
        let mounts = spec["automountServiceAccountToken"].as_bool();
        let always = mounts == Some(true) || projects(spec);
        (always || mounts.is_none()).then(|| PodApiAccess { account: account_of(spec).to_owned(), always })
    }
}

/// Pods that name no account are of the one every namespace has.
fn account_of(spec: &Value) -> &str {
    let named = |field: &str| spec[field].as_str().filter(|name| !name.is_empty());
    named("serviceAccountName").or_else(|| named("serviceAccount")).unwrap_or(DEFAULT)
}

/// How the pods of an object reach its logical cluster. None if it has no pods, or nobody said where Holon is.
pub(crate) async fn of(
    splitter: &Splitter,
    subject: &ObjectRef,
    object: &Value,
    copies: &[MailboxObject],
) -> Result<Option<ApiAccess>, CallError> {
    let spec = pod_spec_at(object).and_then(|at| object.pointer(at));
    let (Some(api_endpoint), Some(spec)) = (&splitter.api_endpoint, spec) else { return Ok(None) };
    let account = ServiceAccountRef::of(subject, account_of(spec));
    let mounts = match spec["automountServiceAccountToken"].as_bool() {
        Some(mounts) => mounts,
        None => match account.seen(splitter) {
            Some(seen) => automounts(&seen),
            // What was sent asked the server; if that has become otherwise, the account has been seen.
            None if copies.iter().any(mounts_already) => true,
            None => account.read(splitter).await?.is_none_or(|account| automounts(&account)),
        },
    };
    let (host, port) = (api_endpoint.host.clone(), api_endpoint.port);
    Ok(Some(ApiAccess { host, port, secret: secret::name(&account.name), mounts }))
}

/// The same for one copy, which may have to stay as it is.
pub(crate) fn at<'a>(
    api_access: Option<&'a ApiAccess>,
    object: &Value,
    copy: &MailboxObject,
) -> Option<Cow<'a, ApiAccess>> {
    match &copy.object {
        Some(present) if FIXED.contains(&group_kind(object)) => {
            let said = present["metadata"]["annotations"][API_HOME].as_str()?;
            serde_json::from_str(said).ok().map(Cow::Owned)
        }
        _ => api_access.map(Cow::Borrowed),
    }
}

fn mounts_already(copy: &MailboxObject) -> bool {
    let said = copy.object.as_ref().and_then(|object| object["metadata"]["annotations"][API_HOME].as_str());
    said.and_then(|said| serde_json::from_str::<ApiAccess>(said).ok()).is_some_and(|access| access.mounts)
}

fn automounts(account: &Value) -> bool {
    account["automountServiceAccountToken"] != false
}

/// Looks after the Secrets of those whose pods an object had or has.
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

/// A service account is another: its tokens are of the one before, and it may say something else about its pods.
pub(crate) fn handle_service_account(splitter: &Splitter, object: &Object) {
    let (namespace, name) = (object.key.namespace.clone(), object.key.name.clone());
    let Some(cluster) = object.key.cluster else { return };
    let account = ServiceAccountRef { cluster, namespace, name };
    account.enqueue_users(splitter);
    splitter.queue.add(WorkItem::ApiAccess(account));
}

/// Whose Secret something in a mailbox is, if it is one.
pub(crate) fn account_of_secret(object: &Object) -> Option<ServiceAccountRef> {
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

    /// What stands for its Secret where writes are remembered until they are seen.
    fn subject(&self, secrets: &WatchedKind) -> ObjectRef {
        let key = controller::informer::Key {
            cluster: Some(self.cluster),
            namespace: self.namespace.clone(),
            name: secret::name(&self.name),
        };
        ObjectRef { kind: secrets.name.clone(), key }
    }

    /// As the view has it, if somebody wrote it.
    fn seen(&self, splitter: &Splitter) -> Option<Value> {
        let accounts = splitter.caches.by_group_kind("", "ServiceAccount")?;
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        accounts.get(&controller::informer::Key { cluster: Some(self.cluster), namespace, name })
    }

    async fn read(&self, splitter: &Splitter) -> Result<Option<Value>, CallError> {
        let Some(accounts) = splitter.caches.by_group_kind("", "ServiceAccount") else { return Ok(None) };
        let place = Place::new(&accounts.kind, &self.namespace, &self.name);
        splitter.caches.server.within(self.cluster).get(place).await
    }

    /// Looks after everything whose pods are of this account.
    fn enqueue_users(&self, splitter: &Splitter) {
        let placement_index = lock(&splitter.placement_index);
        let is_user = |entry: &PlacementEntry| {
            entry.api_access.as_ref().is_some_and(|access| access.account == self.name)
        };
        let users = placement_index.within(self.cluster, &self.namespace).filter(|(_, entry)| is_user(entry));
        users.for_each(|(subject, _)| splitter.queue.add(WorkItem::Object(subject.clone())));
    }

    /// The physical clusters where pods are that call the API as this account.
    fn places(&self, splitter: &Splitter, automounts: bool) -> BTreeSet<String> {
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

/// The Secrets of an account: there where its pods are, with a token that is good, and nowhere else.
pub(crate) async fn reconcile(
    splitter: &Splitter,
    account: &ServiceAccountRef,
) -> Result<Outcome, CallError> {
    let (Some(api_endpoint), Some(secrets)) =
        (&splitter.api_endpoint, splitter.caches.by_group_kind("", "Secret"))
    else {
        return Ok(Outcome::Done);
    };
    if splitter.expectations.is_pending(&account.subject(&secrets)) {
        return Ok(Outcome::Again(OWN_WRITE_REQUEUE));
    }
    let found = account.read(splitter).await?;
    let places = account.places(splitter, found.as_ref().is_none_or(automounts));
    let mut used = splitter.visible_from(account.cluster);
    used.retain(|member| places.contains(member.name()));
    if !delete_unused_secrets(splitter, &secrets, account, &used).await? {
        return Ok(Outcome::Again(PREREQUISITE_REQUEUE));
    }
    let mut again = Outcome::Done;
    for member in used.iter().filter(|member| !member.object.metadata.is_being_deleted()) {
        // Nobody's pods start without their account, here as anywhere.
        let Some(found) = &found else { return Ok(Outcome::Again(MISSING_ACCOUNT_REQUEUE)) };
        if let Some(left) = ensure_secret(splitter, &secrets, api_endpoint, account, found, member).await? {
            again = requeue_sooner(again, left);
        }
    }
    Ok(again)
}

/// Deletes the Secrets of an account where it is not used. False if it is not known yet whether it is.
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
        // It may be unused because the account has just said so: then pods that still mount it are to be others.
        account.enqueue_users(splitter);
        let namespace = namespace_on(member, account.cluster, &account.namespace);
        let place = Place::new(&secrets.kind, &namespace, &secret.name);
        splitter.caches.server.within(mailbox).delete(place, &secret.uid).await?;
    }
    Ok(true)
}

fn requeue_sooner(outcome: Outcome, left: Duration) -> Outcome {
    match outcome {
        Outcome::Again(earlier) => Outcome::Again(earlier.min(left)),
        _ => Outcome::Again(left),
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

/// Makes the Secret in one mailbox as it should be. How long it may stay so.
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
    let left = present.as_ref().and_then(|present| present.good_for(uid, api_endpoint));
    if let Some(left) = left {
        return Ok(Some(left));
    }
    let token = request_token(splitter, account).await?;
    let namespace = namespace_on(member, account.cluster, &account.namespace);
    let (wanted, left) = secret::written(account, uid, &namespace, api_endpoint, &token, present.as_ref());
    let there = splitter.caches.server.within(mailbox);
    let written = match &present {
        None => there.create(&secrets.kind, &namespace, &wanted).await?,
        Some(present) => there.replace(Place::new(&secrets.kind, &namespace, &present.name), &wanted).await?,
    };
    splitter.expectations.expect_write(&account.subject(secrets), &secrets.view, mailbox, &written);
    Ok(Some(left))
}

/// How long a token is asked for: long enough that a day without Holon does not end it at once.
const SECONDS: u64 = 24 * 60 * 60;

/// A token of the account, as its logical cluster issues it.
async fn request_token(splitter: &Splitter, account: &ServiceAccountRef) -> Result<Value, CallError> {
    let Some(accounts) = splitter.caches.by_group_kind("", "ServiceAccount") else { return Ok(Value::Null) };
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": SECONDS },
    });
    let place = Place::new(&accounts.kind, &account.namespace, &account.name).part("token");
    splitter.caches.server.within(account.cluster).post(place, &request).await
}

#[cfg(test)]
mod tests;
