//! Secrets of type service-account-token: filled with a token when created, deleted with their service account.
//!
//! The key is that of a Secret, or that of a service account, whose Secrets are then all reconciled.

use api::cluster::Id;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use controller::queue::Outcome;
use openapi::catalog;
use serde_json::{Value, json};
use storage::{Entry, Key, Page};

use crate::authn::service_accounts::{Accounts, object_ref};
use crate::controllers::write::{ReconcileError, amend, delete};
use crate::controllers::{Controllers, record_revision};
use crate::keys::{Collection, ObjectKey};
use crate::objects::{metadata, stored};
use crate::registry::deletion::DeleteOptions;

pub(super) const ACCOUNTS: Collection<'static> = Collection { group: "", plural: "serviceaccounts" };
pub(super) const SECRETS: Collection<'static> = Collection { group: "", plural: "secrets" };

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// Reports whether the entry may be such a Secret. A cheap check, because it runs for every Secret.
pub(super) fn may_be_one(entry: &Entry) -> bool {
    entry.value().windows(TYPE.len()).any(|bytes| bytes == TYPE.as_bytes())
}

pub(super) async fn reconcile(controllers: &Controllers, key: Key) -> Result<Outcome, ReconcileError> {
    let (Some(place), Some(accounts)) = (ObjectKey::of(&key), &controllers.accounts_of) else {
        return Ok(Outcome::Done);
    };
    let store = &*controllers.store;
    let namespace = place.namespace.unwrap_or_default();
    if place.collection == SECRETS {
        if let Some(entry) = store.get(&key).await?.value {
            record_revision(entry.revision());
            settle(controllers, accounts, place.cluster, namespace, &entry).await?;
        }
        return Ok(Outcome::Done);
    }
    let listed = store.list(SECRETS.range(place.cluster, Some(namespace)), Page::default()).await?;
    record_revision(listed.revision);
    for entry in listed.value.entries.iter().filter(|entry| may_be_one(entry)) {
        if account(&stored::tree(entry).unwrap_or_default()) == Some(place.name) {
            settle(controllers, accounts, place.cluster, namespace, entry).await?;
        }
    }
    Ok(Outcome::Done)
}

/// Returns the service account of a token Secret. None for other Secrets.
fn account(secret: &Value) -> Option<&str> {
    let name = secret["metadata"]["annotations"][NAME].as_str()?;
    (secret["type"] == TYPE && !name.is_empty()).then_some(name)
}

async fn settle(
    controllers: &Controllers,
    accounts: &Accounts,
    cluster: Id,
    namespace: &str,
    entry: &Entry,
) -> Result<(), ReconcileError> {
    let store = &*controllers.store;
    let resource = catalog::find("", "v1", SECRETS.plural).expect("the catalogue has secrets");
    let secret = stored::tree(entry).unwrap_or_default();
    let Some(name) = account(&secret).filter(|_| !metadata::is_being_deleted(&secret)) else { return Ok(()) };
    let found = store.get(&ACCOUNTS.key(cluster, Some(namespace), name)).await?.value;
    let found = found.and_then(|entry| stored::tree(&entry).ok()).map(|account| object_ref(&account));
    let uid_annotation = secret["metadata"]["annotations"][UID].as_str().unwrap_or_default();
    let is_of = |uid: Option<&str>| uid_annotation.is_empty() || uid == Some(uid_annotation);
    let Some(account) = found.filter(|account| is_of(account.uid.as_deref())) else {
        return delete(store, resource, entry, &DeleteOptions::default()).await.map(drop);
    };
    let uid = account.uid.clone().unwrap_or_default();
    let token = match secret["data"]["token"].as_str() {
        Some(token) => token.to_owned(),
        None => STANDARD.encode(accounts.lasting(cluster, namespace, account, object_ref(&secret)).await?),
    };
    let authority = STANDARD.encode(&controllers.authority_pem);
    amend(store, resource, entry, |secret| {
        secret["metadata"]["annotations"][UID] = uid.into();
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        secret["data"]["token"] = token.into();
        secret["data"]["namespace"] = STANDARD.encode(namespace).into();
        secret["data"]["ca.crt"] = authority.into();
    })
    .await
}
