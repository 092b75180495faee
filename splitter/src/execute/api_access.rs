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

use crate::controller::{Item, Splitter, lock};
use crate::reconcile::{MOMENT, SOON};
use crate::snapshot::mailbox_objects::{Copy, namespace_there};
use crate::snapshot::placement_index::Entry;
use crate::snapshot::{Followed, Member, Subject};
use crate::transform::api_access::{Home, projects};
use crate::transform::group_kind;
use crate::transform::references::pod_spec_at;
use secret::Secret;

/// Where pods find Holon, and whom they trust when they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Door {
    pub host: String,
    pub port: u16,
    /// The certificate of the authority that vouches for Holon, as PEM.
    pub authority: String,
}

/// The service account of a user.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Account {
    pub cluster: Id,
    pub namespace: String,
    pub name: String,
}

/// As whom the pods of an object call the API, if they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    account: String,
    /// Whether that is so whatever the account says.
    always: bool,
}

/// Made in every namespace by itself, and so no view has it.
const DEFAULT: &str = "default";
/// What the account says may change without anybody telling us.
const NO_ACCOUNT_YET: Duration = Duration::from_secs(1);
/// Kinds whose pods are never others than they were.
const FIXED: &[(&str, &str)] = &[("", "Pod"), ("batch", "Job")];

impl Access {
    pub(crate) fn of(object: &Value) -> Option<Access> {
        let spec = pod_spec_at(object).and_then(|at| object.pointer(at))?;
        let mounts = spec["automountServiceAccountToken"].as_bool();
        let always = mounts == Some(true) || projects(spec);
        (always || mounts.is_none()).then(|| Access { account: account_of(spec).to_owned(), always })
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
    subject: &Subject,
    object: &Value,
    copies: &[Copy],
) -> Result<Option<Home>, CallError> {
    let spec = pod_spec_at(object).and_then(|at| object.pointer(at));
    let (Some(door), Some(spec)) = (&splitter.door, spec) else { return Ok(None) };
    let account = Account::of(subject, account_of(spec));
    let mounts = match spec["automountServiceAccountToken"].as_bool() {
        Some(mounts) => mounts,
        None => match account.seen(splitter) {
            Some(seen) => automounts(&seen),
            // What was sent asked the server; if that has become otherwise, the account has been seen.
            None if copies.iter().any(mounts_already) => true,
            None => account.read(splitter).await?.is_none_or(|account| automounts(&account)),
        },
    };
    let (host, port) = (door.host.clone(), door.port);
    Ok(Some(Home { host, port, secret: secret::name(&account.name), mounts }))
}

/// The same for one copy, which may have to stay as it is.
pub(crate) fn at<'a>(home: Option<&'a Home>, object: &Value, copy: &Copy) -> Option<Cow<'a, Home>> {
    match &copy.object {
        Some(present) if FIXED.contains(&group_kind(object)) => {
            let said = present["metadata"]["annotations"][API_HOME].as_str()?;
            serde_json::from_str(said).ok().map(Cow::Owned)
        }
        _ => home.map(Cow::Borrowed),
    }
}

fn mounts_already(copy: &Copy) -> bool {
    let said = copy.object.as_ref().and_then(|object| object["metadata"]["annotations"][API_HOME].as_str());
    said.and_then(|said| serde_json::from_str::<Home>(said).ok()).is_some_and(|home| home.mounts)
}

fn automounts(account: &Value) -> bool {
    account["automountServiceAccountToken"] != false
}

/// Looks after the Secrets of those whose pods an object had or has.
pub(crate) fn add(splitter: &Splitter, subject: &Subject, entries: &[Option<&Entry>]) {
    let accesses = entries.iter().copied().flatten().filter_map(|entry| entry.access.as_ref());
    for access in accesses {
        splitter.queue.add(Item::Access(Account::of(subject, &access.account)));
    }
}

/// A service account is another: its tokens are of the one before, and it may say something else about its pods.
pub(crate) fn hear_of_account(splitter: &Splitter, object: &Object) {
    let (namespace, name) = (object.key.namespace.clone(), object.key.name.clone());
    let Some(cluster) = object.key.cluster else { return };
    let account = Account { cluster, namespace, name };
    account.add_users(splitter);
    splitter.queue.add(Item::Access(account));
}

/// Whose Secret something in a mailbox is, if it is one.
pub(crate) fn whose(object: &Object) -> Option<Account> {
    secret::owner(&object.parse()?).map(|(account, _)| account)
}

impl Account {
    fn of(subject: &Subject, name: &str) -> Account {
        Account {
            cluster: subject.cluster(),
            namespace: subject.key.namespace.clone(),
            name: name.to_owned(),
        }
    }

    /// What stands for its Secret where writes are remembered until they are seen.
    fn subject(&self, secrets: &Followed) -> Subject {
        let key = controller::informer::Key {
            cluster: Some(self.cluster),
            namespace: self.namespace.clone(),
            name: secret::name(&self.name),
        };
        Subject { kind: secrets.name.clone(), key }
    }

    /// As the view has it, if somebody wrote it.
    fn seen(&self, splitter: &Splitter) -> Option<Value> {
        let accounts = splitter.world.named("", "ServiceAccount")?;
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        accounts.get(&controller::informer::Key { cluster: Some(self.cluster), namespace, name })
    }

    async fn read(&self, splitter: &Splitter) -> Result<Option<Value>, CallError> {
        let Some(accounts) = splitter.world.named("", "ServiceAccount") else { return Ok(None) };
        let place = Place::new(&accounts.kind, &self.namespace, &self.name);
        splitter.world.server.within(self.cluster).get(place).await
    }

    /// Looks after everything whose pods are of this account.
    fn add_users(&self, splitter: &Splitter) {
        let book = lock(&splitter.book);
        let is_user = |entry: &Entry| entry.access.as_ref().is_some_and(|access| access.account == self.name);
        let users = book.within(self.cluster, &self.namespace).filter(|(_, entry)| is_user(entry));
        users.for_each(|(subject, _)| splitter.queue.add(Item::Object(subject.clone())));
    }

    /// The physical clusters where pods are that call the API as this account.
    fn places(&self, splitter: &Splitter, automounts: bool) -> BTreeSet<String> {
        let book = lock(&splitter.book);
        let entries = book.within(self.cluster, &self.namespace).map(|(_, entry)| entry);
        let calls = |entry: &&Entry| {
            let access = entry.access.as_ref().filter(|access| access.account == self.name);
            access.is_some_and(|access| access.always || automounts)
        };
        let targets = entries.filter(calls).flat_map(|entry| &entry.targets);
        targets.map(|target| target.cluster.clone()).collect()
    }
}

/// The Secrets of an account: there where its pods are, with a token that is good, and nowhere else.
pub(crate) async fn look(splitter: &Splitter, account: &Account) -> Result<Outcome, CallError> {
    let (Some(door), Some(secrets)) = (&splitter.door, splitter.world.named("", "Secret")) else {
        return Ok(Outcome::Done);
    };
    if splitter.unseen.waits(&account.subject(&secrets)) {
        return Ok(Outcome::Again(MOMENT));
    }
    let found = account.read(splitter).await?;
    let places = account.places(splitter, found.as_ref().is_none_or(automounts));
    let mut used = splitter.seen_from(account.cluster);
    used.retain(|member| places.contains(member.name()));
    if !clear(splitter, &secrets, account, &used).await? {
        return Ok(Outcome::Again(SOON));
    }
    let mut again = Outcome::Done;
    for member in used.iter().filter(|member| !member.object.metadata.is_being_deleted()) {
        // Nobody's pods start without their account, here as anywhere.
        let Some(found) = &found else { return Ok(Outcome::Again(NO_ACCOUNT_YET)) };
        if let Some(left) = keep(splitter, &secrets, door, account, found, member).await? {
            again = sooner(again, left);
        }
    }
    Ok(again)
}

/// Deletes the Secrets of an account where it is not used. False if it is not known yet whether it is.
async fn clear(
    splitter: &Splitter,
    secrets: &Followed,
    account: &Account,
    used: &[Arc<Member>],
) -> Result<bool, CallError> {
    let everybody = {
        let clusters = splitter.world.clusters();
        splitter.world.members().all(&clusters)
    };
    let is_used =
        |member: &Member| used.iter().any(|user| (user.home, user.name()) == (member.home, member.name()));
    for member in everybody.iter().filter(|member| !is_used(member)) {
        let Some((mailbox, Some(secret))) = present(secrets, account, member) else { continue };
        if secret.is_being_deleted {
            continue;
        }
        if !splitter.is_entered(account.cluster, &account.namespace) {
            return Ok(false);
        }
        // It may be unused because the account has just said so: then pods that still mount it are to be others.
        account.add_users(splitter);
        let namespace = namespace_there(member, account.cluster, &account.namespace);
        let place = Place::new(&secrets.kind, &namespace, &secret.name);
        splitter.world.server.within(mailbox).delete(place, &secret.uid).await?;
    }
    Ok(true)
}

fn sooner(outcome: Outcome, left: Duration) -> Outcome {
    match outcome {
        Outcome::Again(earlier) => Outcome::Again(earlier.min(left)),
        _ => Outcome::Again(left),
    }
}

/// The mailbox of a physical cluster, and the Secret of an account in it.
fn present(secrets: &Followed, account: &Account, member: &Arc<Member>) -> Option<(Id, Option<Secret>)> {
    let mailbox = member.mailbox()?;
    let key = controller::informer::Key {
        cluster: Some(mailbox),
        namespace: namespace_there(member, account.cluster, &account.namespace),
        name: secret::name(&account.name),
    };
    let found = secrets.get(&key).and_then(|object| Secret::read(&object));
    Some((mailbox, found.filter(|secret| secret.account == *account)))
}

/// Makes the Secret in one mailbox as it should be. How long it may stay so.
async fn keep(
    splitter: &Splitter,
    secrets: &Arc<Followed>,
    door: &Door,
    account: &Account,
    found: &Value,
    member: &Arc<Member>,
) -> Result<Option<Duration>, CallError> {
    let Some((mailbox, present)) = present(secrets, account, member) else { return Ok(None) };
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
    if present.as_ref().is_some_and(|present| present.is_being_deleted) {
        return Ok(Some(SOON));
    }
    let left = present.as_ref().and_then(|present| present.good_for(uid, door));
    if let Some(left) = left {
        return Ok(Some(left));
    }
    let token = ask(splitter, account).await?;
    let namespace = namespace_there(member, account.cluster, &account.namespace);
    let (wanted, left) = secret::written(account, uid, &namespace, door, &token, present.as_ref());
    let there = splitter.world.server.within(mailbox);
    let written = match &present {
        None => there.create(&secrets.kind, &namespace, &wanted).await?,
        Some(present) => there.replace(Place::new(&secrets.kind, &namespace, &present.name), &wanted).await?,
    };
    splitter.unseen.wrote(&account.subject(secrets), &secrets.view, mailbox, &written);
    Ok(Some(left))
}

/// How long a token is asked for: long enough that a day without Holon does not end it at once.
const SECONDS: u64 = 24 * 60 * 60;

/// A token of the account, as its logical cluster issues it.
async fn ask(splitter: &Splitter, account: &Account) -> Result<Value, CallError> {
    let Some(accounts) = splitter.world.named("", "ServiceAccount") else { return Ok(Value::Null) };
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "expirationSeconds": SECONDS },
    });
    let place = Place::new(&accounts.kind, &account.namespace, &account.name).part("token");
    splitter.world.server.within(account.cluster).post(place, &request).await
}

#[cfg(test)]
mod tests;
