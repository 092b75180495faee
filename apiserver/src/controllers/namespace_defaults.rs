//! Namespace defaults: a service account, and the certificate with which pods verify the server.
//!
//! Kubernetes' own clients wait for both before they use a new namespace. The controller restores them when a user
//! deletes or changes them.

use controller::queue::Outcome;
use openapi::catalog;
use serde_json::json;
use storage::{Change, Expect};

use crate::clusters::bootstrap::ABOUT_THE_AUTHORITY;
use crate::clusters::{logical_cluster, records};
use crate::controllers::write::{ReconcileError, amend};
use crate::controllers::{Controllers, Namespace, record_revision};
use crate::keys::{Collection, ObjectKey};
use crate::objects::{metadata, stored};

const ACCOUNTS: Collection<'static> = Collection { group: "", plural: "serviceaccounts" };
const ACCOUNT: &str = "default";
const MAPS: Collection<'static> = Collection { group: "", plural: "configmaps" };
const AUTHORITY: &str = "kube-root-ca.crt";
/// Reports whether the object with this key is one of the defaults.
pub(super) fn is_one(place: &ObjectKey<'_>) -> bool {
    place.collection == ACCOUNTS && place.name == ACCOUNT
        || place.collection == MAPS && place.name == AUTHORITY
}

pub(super) async fn reconcile(
    controllers: &Controllers,
    (cluster, namespace): Namespace,
) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    if records::find(store, cluster).await?.is_none() {
        return Ok(Outcome::Done);
    }
    let key = logical_cluster::NAMESPACES.key(cluster, None, &namespace);
    let read = store.get(&key).await?;
    record_revision(read.revision);
    let found = read.value.and_then(|entry| stored::tree(&entry).ok());
    if found.is_none_or(|namespace| metadata::is_being_deleted(&namespace)) {
        return Ok(Outcome::Done);
    }
    let account = ACCOUNTS.key(cluster, Some(&namespace), ACCOUNT);
    if store.get(&account).await?.value.is_none() {
        let object = metadata::made("v1", "ServiceAccount", Some(&namespace), ACCOUNT);
        store.commit(account, Expect::Absent, Change::Put(stored::encode(&object))).await?;
    }
    let map = MAPS.key(cluster, Some(&namespace), AUTHORITY);
    let desired = json!({ "ca.crt": controllers.authority_pem });
    match store.get(&map).await?.value {
        None => {
            let mut object = metadata::made("v1", "ConfigMap", Some(&namespace), AUTHORITY);
            object["metadata"]["annotations"] = json!({ "kubernetes.io/description": ABOUT_THE_AUTHORITY });
            object["data"] = desired;
            store.commit(map, Expect::Absent, Change::Put(stored::encode(&object))).await?;
        }
        Some(entry) => {
            let resource = catalog::find("", "v1", "configmaps").expect("the catalogue has config maps");
            amend(store, resource, &entry, |object| object["data"] = desired).await?;
        }
    }
    Ok(Outcome::Done)
}
