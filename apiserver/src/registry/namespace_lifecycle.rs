//! Lets objects be created only while their logical cluster, their namespace and the definition of their kind are live.
//!
//! Each of these may be deleted while the object is written, and the controller that empties it may have listed before. One of the
//! two sees the other: a namespace is marked first and emptied then; an object is written first, and its namespace
//! is read again then.

use api::names::GROUP;
use openapi::meta::status::{GroupResource, Status};
use openapi::schema::Origin;
use storage::{Key, Store};

use crate::clusters::{logical_cluster, records};
use crate::kinds::DEFINITIONS;
use crate::objects::store_errors::unreadable;
use crate::objects::stored;
use crate::registry::call::Call;

/// The uids of the namespace and the definition of an object when it was about to be written, where it has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ParentUids {
    pub(crate) namespace: Option<String>,
    pub(crate) definition: Option<String>,
}

/// The namespace, if something can be created in it.
pub(crate) async fn namespace(store: &dyn Store, call: &Call) -> Result<Option<String>, Status> {
    match &call.namespace {
        Some(namespace) => logical_cluster::live_namespace(store, call.cluster, namespace).await.map(Some),
        None => Ok(None),
    }
}

/// The definition of a custom kind, if objects of the kind can be created.
pub(crate) async fn definition(store: &dyn Store, call: &Call, name: &str) -> Result<Option<String>, Status> {
    let Some(key) = definition_key(call) else { return Ok(None) };
    let found = store.get(&key).await.map_err(unreadable)?.value.ok_or_else(Status::unknown_path)?;
    match stored::uid(&found).filter(|_| !stored::is_leaving(&found)) {
        Some(uid) => Ok(Some(uid.to_owned())),
        _ => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Status::forbidden(call.grouped(), name, why))
        }
    }
}

/// The key of the definition of a custom kind.
fn definition_key(call: &Call) -> Option<Key> {
    // What is in our own group comes with the server.
    let is_defined = call.resource.origin == Origin::Custom && &*call.resource.group != GROUP;
    is_defined.then(|| DEFINITIONS.key(call.cluster, None, &call.resource.qualified()))
}

/// Checks after a write that the parents of the object are still those from before it; otherwise returns the error for the client.
pub(crate) async fn recheck(
    store: &dyn Store,
    call: &Call,
    name: &str,
    before: &ParentUids,
) -> Result<(), Status> {
    let (record, namespace, definition) = tokio::join!(
        records::find(store, call.cluster),
        self::namespace(store, call),
        self::definition(store, call, name),
    );
    if record.map_err(unreadable)?.is_none() {
        return Err(Status::unknown_path());
    }
    let now = ParentUids { namespace: namespace?, definition: definition? };
    if now == *before || call.query.dry_run() {
        return Ok(());
    }
    Err(match now.namespace == before.namespace {
        true => Status::unknown_path(),
        false => Status::not_found(
            GroupResource::new("", "namespaces"),
            call.namespace.as_deref().unwrap_or_default(),
        ),
    })
}
