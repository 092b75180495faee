//! Finding a logical cluster, and what a new one has.
//!
//! A logical cluster is an object in its parent; its id is in the object's status. So a path is looked up name
//! by name from the root, in memory, and there is no second register that could disagree with the objects.

use std::sync::{Arc, LazyLock};

use api::cluster::{Id, Path, ROOT};
use api::names::{GROUP, VERSION};
use openapi::cell::Cell;
use openapi::resource::{Column, Generation, Origin, Resource, Selectable, Subresource, Verb};
use rand::RngExt;
use serde_json::{Value, json};
use storage::{Change, CommitError, Expect, ReadError, Store};

use crate::keys::Collection;
use crate::{metadata, stored};

const COLLECTION: Collection<'static> = Collection { group: GROUP, plural: "logicalclusters" };
const NAMESPACES: Collection<'static> = Collection { group: "", plural: "namespaces" };
/// What every Kubernetes cluster has from the beginning.
const NEWBORN: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// How logical clusters themselves are served.
pub fn row() -> &'static Arc<Resource> {
    static ROW: LazyLock<Arc<Resource>> = LazyLock::new(|| Arc::new(make_row()));
    &ROW
}

fn make_row() -> Resource {
    let selectable = |label: &str, pointer: &str| Selectable {
        label: label.into(),
        pointers: vec![pointer.into()],
        absent: "".into(),
    };
    let column = |name: &str, kind: &str, cell: Cell| Column {
        name: name.into(),
        kind: kind.into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
        cell,
    };
    Resource {
        origin: Origin::Custom,
        group: GROUP.into(),
        version: VERSION.into(),
        kind: "LogicalCluster".into(),
        list_kind: "LogicalClusterList".into(),
        plural: COLLECTION.plural.into(),
        singular: "logicalcluster".into(),
        namespaced: false,
        short_names: vec!["lc".into()],
        categories: Vec::new(),
        verbs: Verb::ALL.to_vec(),
        subresources: vec![Subresource {
            name: "status".into(),
            kind: "LogicalCluster".into(),
            foreign: None,
            verbs: vec![Verb::Get, Verb::Patch, Verb::Update],
        }],
        columns: vec![
            column("Name", "string", Cell::Text("/metadata/name".into(), "".into())),
            column("Phase", "string", Cell::Text("/status/phase".into(), "".into())),
            column("Age", "date", Cell::Age("/metadata/creationTimestamp".into())),
        ],
        selectable: vec![selectable("metadata.name", "/metadata/name")],
        generation: Generation::Outside { parts: vec!["metadata".into(), "status".into()] },
        create_on_update: false,
        update_needs_version: true,
        delete_answers_object: false,
        stored_as: None,
        type_name: "dev.holon.v1alpha1.LogicalCluster".into(),
        storage_version_hash: None,
    }
}

/// The id of the logical cluster at `path`; none if there is no such.
pub async fn find(store: &dyn Store, path: &Path) -> Result<Option<Id>, ReadError> {
    let mut segments = path.as_str().split(':');
    if segments.next() != Some(ROOT) {
        return Ok(None);
    }
    let mut id = Id::ROOT;
    for name in segments {
        let found = store.get(&COLLECTION.key(id, None, name)).await?;
        let tree = found.value.and_then(|entry| stored::tree(&entry).ok());
        match tree.as_ref().and_then(|tree| tree["status"]["id"].as_str()).and_then(|id| id.parse().ok()) {
            Some(inner) => id = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(id))
}

/// Gives a new logical cluster its id.
pub fn born(object: &mut Value) -> Id {
    // One of 2^64, and zero is the root's: two draws of the same are not to be expected in a lifetime.
    let id = Id::new(rand::rng().random_range(1..u64::MAX));
    object["status"] = json!({ "id": id.to_string(), "phase": "Ready" });
    id
}

/// Puts into a logical cluster what every cluster has from the beginning. Twice changes nothing.
pub async fn fill(store: &dyn Store, id: Id) -> Result<(), CommitError> {
    for name in NEWBORN {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": metadata::now(),
                "labels": { "kubernetes.io/metadata.name": name },
            },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        let value = Change::Put(stored::encode(&namespace));
        match store.commit(NAMESPACES.key(id, None, name), Expect::Absent, value).await {
            Ok(_) | Err(CommitError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a namespace is there.
pub async fn has_namespace(store: &dyn Store, id: Id, namespace: &str) -> Result<bool, ReadError> {
    Ok(store.get(&NAMESPACES.key(id, None, namespace)).await?.value.is_some())
}
