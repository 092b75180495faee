//! Refuses creates unless the logical cluster, the namespace and the definition of the kind are live.
//!
//! A parent may be deleted while an object is being created, and the controller that empties the parent may have listed
//! its objects before. The order of the steps makes sure that one of the two sees the other: the controller marks a
//! namespace as terminating before it lists; a create reads the namespace again after it wrote the object.

use api::names::GROUP;
use openapi::meta::status::{GroupResource, Status};
use openapi::schema::Origin;
use storage::{Entry, Key, Store};

use crate::clusters::{logical_cluster, records};
use crate::kinds::DEFINITIONS;
use crate::objects::store_errors::unreadable;
use crate::objects::stored;
use crate::registry::call::Call;

/// The namespace and the definition of an object, read before the object is written. None for a parent that the object
/// does not have.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parents {
    pub(crate) namespace: Option<LiveParent>,
    pub(crate) definition: Option<LiveParent>,
}

/// A parent that is not terminating. Two are equal if they have the same uid, even if one has changed meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct LiveParent(Entry);

impl PartialEq for LiveParent {
    fn eq(&self, other: &LiveParent) -> bool {
        // Nearly always nothing has changed, and the uids need not be read.
        self.0.revision() == other.0.revision() || stored::uid(&self.0) == stored::uid(&other.0)
    }
}

/// Returns the namespace if it is live.
pub(crate) async fn namespace(store: &dyn Store, call: &Call) -> Result<Option<LiveParent>, Status> {
    let Some(namespace) = &call.namespace else { return Ok(None) };
    let entry = logical_cluster::live_namespace(store, call.cluster, namespace).await?;
    Ok(Some(LiveParent(entry)))
}

/// Returns the definition of a custom kind if it is live.
pub(crate) async fn definition(
    store: &dyn Store,
    call: &Call,
    name: &str,
) -> Result<Option<LiveParent>, Status> {
    let Some(key) = definition_key(call) else { return Ok(None) };
    let found = store.get(&key).await.map_err(unreadable)?.value.ok_or_else(Status::unknown_path)?;
    if stored::uid(&found).is_some() && !stored::is_being_deleted(&found) {
        return Ok(Some(LiveParent(found)));
    }
    let why = "create not allowed while custom resource definition is terminating";
    Err(Status::forbidden(call.grouped(), name, why))
}

/// Returns the key of the definition of a custom kind.
fn definition_key(call: &Call) -> Option<Key> {
    // Kinds of the group `holon.dev` are built in and have no definition.
    let is_defined = call.resource.origin == Origin::Custom && &*call.resource.group != GROUP;
    is_defined.then(|| DEFINITIONS.key(call.cluster, None, &call.resource.qualified()))
}

/// Checks after a create that the object still has the same parents. Otherwise returns the error for the client.
pub(crate) async fn recheck(
    store: &dyn Store,
    call: &Call,
    name: &str,
    before: &Parents,
) -> Result<(), Status> {
    let (record, namespace, definition) = tokio::join!(
        records::find(store, call.cluster),
        self::namespace(store, call),
        self::definition(store, call, name),
    );
    if record.map_err(unreadable)?.is_none() {
        return Err(Status::unknown_path());
    }
    let now = Parents { namespace: namespace?, definition: definition? };
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
