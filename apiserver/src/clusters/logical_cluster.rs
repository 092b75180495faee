//! The LogicalCluster resource, and the look-up of a logical cluster by its path.
//!
//! A logical cluster is an object in its parent, with its id in the status. So a path is looked up name by name from
//! the root, in memory, and no second register can disagree with the objects. The [`records`] contain what must exist
//! besides the object.

use std::sync::{Arc, LazyLock};

use api::cluster::{Id, Path, ROOT};
use api::names::{GROUP, VERSION};
use openapi::catalog::printer::PrinterCell;
use openapi::catalog::resource_info::{
    Generation, PrinterColumn, ResourceInfo, SelectableField, Subresource, Verb,
};
use openapi::meta::status::{Cause, GroupResource, Status};
use openapi::schema::OpenApiDefinitions;
use openapi::schema::Origin;
use openapi::schema::builtin;
use openapi::schema::parse;
use openapi::schema::{Schema, SchemaRef};
use rand::RngExt;
use serde_json::{Value, json};
use storage::{Entry, Key, ReadError, Store};

use crate::clusters::records;
use crate::keys::Collection;
use crate::objects::store_errors::unreadable;
use crate::objects::{field_scan, stored};
use serde::Deserialize;

pub(crate) const COLLECTION: Collection<'static> = Collection { group: GROUP, plural: "logicalclusters" };
pub(crate) const NAMESPACES: Collection<'static> = Collection { group: "", plural: "namespaces" };

const TYPE: &str = "dev.holon.v1alpha1.LogicalCluster";

/// Returns the resource of LogicalCluster objects.
pub fn resource() -> &'static Arc<ResourceInfo> {
    static RESOURCE: LazyLock<Arc<ResourceInfo>> = LazyLock::new(|| Arc::new(make_resource()));
    &RESOURCE
}

fn make_resource() -> ResourceInfo {
    let selectable = |label: &str, pointer: &str| SelectableField {
        label: label.into(),
        pointers: vec![pointer.into()],
        absent: "".into(),
    };
    let column = |name: &str, kind: &str, cell: PrinterCell| PrinterColumn {
        name: name.into(),
        kind: kind.into(),
        format: "".into(),
        description: "".into(),
        priority: 0,
        cell,
    };
    ResourceInfo {
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
            column("Name", "string", PrinterCell::Text("/metadata/name".into(), "".into())),
            column("Phase", "string", PrinterCell::Text("/status/phase".into(), "".into())),
            column("Age", "date", PrinterCell::Age("/metadata/creationTimestamp".into())),
        ],
        selectable: vec![selectable("metadata.name", "/metadata/name")],
        generation: Generation::Outside { parts: vec!["metadata".into(), "status".into()] },
        create_on_update: false,
        update_needs_version: true,
        delete_answers_object: false,
        stored_as: None,
        type_name: TYPE.into(),
        schema: Some(schema()),
        custom: None,
        storage_version_hash: None,
    }
}

/// Returns the OpenAPI definitions of LogicalCluster.
pub(crate) fn definitions() -> OpenApiDefinitions {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let metadata = |kind: &str| {
        let reference = format!("#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.{kind}");
        json!({ "allOf": [{ "$ref": reference }], "default": {} })
    };
    let condition = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.Condition";
    let conditions = json!({
        "type": "array",
        "description": "The progress of a deletion.",
        "items": { "$ref": condition },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    let kinds = |kind: &str| json!([{ "group": GROUP, "version": VERSION, "kind": kind }]);
    let one = json!({
        "type": "object",
        "description": "A Kubernetes API with objects of its own, below the logical cluster it was created in.",
        "x-kubernetes-group-version-kind": kinds("LogicalCluster"),
        "properties": {
            "apiVersion": text("The group and version of this kind."),
            "kind": text("LogicalCluster."),
            "metadata": metadata("ObjectMeta"),
            "spec": {
                "type": "object",
                "description": "The desired state.",
                "properties": { "limits": limits() },
            },
            "status": {
                "type": "object",
                "description": "The observed state. Set by the server.",
                "properties": {
                    "id": text("The id. Never reused."),
                    "phase": text("Ready, or Terminating while the contents are being deleted."),
                    "conditions": conditions,
                },
            },
        },
    });
    let items = json!({ "type": "array", "items": { "$ref": format!("#/components/schemas/{TYPE}") } });
    let list = json!({
        "type": "object",
        "description": "Logical clusters.",
        "x-kubernetes-group-version-kind": kinds("LogicalClusterList"),
        "required": ["items"],
        "properties": {
            "apiVersion": text("The group and version of this kind."),
            "kind": text("LogicalClusterList."),
            "metadata": metadata("ListMeta"),
            "items": items,
        },
    });
    [(TYPE.into(), one.to_string().into()), (format!("{TYPE}List").into(), list.to_string().into())].into()
}

/// Returns the schema of `spec.limits`.
fn limits() -> Value {
    let count =
        |description: &str| json!({ "type": "integer", "format": "int64", "description": description });
    json!({
        "type": "object",
        "description": "Limits of the logical cluster and all below it. A missing field means unlimited.",
        "properties": {
            "objects": count("The number of objects."),
            "bytes": {
                "x-kubernetes-int-or-string": true,
                "anyOf": [{ "type": "integer" }, { "type": "string" }],
                "description": "The size of all objects together, as a quantity: 100Mi.",
            },
            "requestsPerSecond": count(
                "Requests per second, with a burst of the same number. Deletions are not limited.",
            ),
            "watches": count("The number of open watches."),
        },
    })
}

/// Returns the schema for decoding.
fn schema() -> SchemaRef {
    let definition: Value = serde_json::from_str(&definitions()[TYPE]).expect("made of JSON above");
    let mut resolve = |name: &str| {
        let name = name.rsplit('/').next().unwrap_or_default();
        builtin::schema(name).cloned().unwrap_or_else(|| Arc::new(Schema::default()))
    };
    Arc::new(parse::schema(&definition, Origin::BuiltIn, &mut resolve))
}

/// Returns the id of the logical cluster at `path`. None if it does not exist or is terminating.
pub async fn find(store: &dyn Store, path: &Path) -> Result<Option<Id>, ReadError> {
    let mut segments = path.as_str().split(':');
    if segments.next() != Some(ROOT) {
        return Ok(None);
    }
    let mut id = Id::ROOT;
    for name in segments {
        match at(store, &COLLECTION.key(id, None, name)).await? {
            Some(inner) => id = inner,
            None => return Ok(None),
        }
    }
    Ok(Some(id))
}

/// Returns the id of the logical cluster whose object has this key. None if it does not exist or is terminating.
pub(crate) async fn at(store: &dyn Store, key: &Key) -> Result<Option<Id>, ReadError> {
    let found = store.get(key).await?.value;
    Ok(found.filter(|entry| !stored::is_being_deleted(entry)).as_ref().and_then(stored_id))
}

/// Returns the id in a stored LogicalCluster object. Every request needs it, so nothing else is parsed.
fn stored_id(entry: &Entry) -> Option<Id> {
    let status = field_scan::field(stored::json(entry)?, "status")??;
    field_scan::text(field_scan::field(status, "id")??)?.parse().ok()
}

/// Returns the id in a LogicalCluster object.
pub(crate) fn id(object: &Value) -> Option<Id> {
    object["status"]["id"].as_str()?.parse().ok()
}

/// Assigns an id to a new logical cluster.
pub fn assign_id(object: &mut Value) -> Id {
    // One of 2^64, without 0, which is the root's: a collision is not to be expected.
    let id = Id::new(rand::rng().random_range(1..u64::MAX));
    object["status"] = json!({ "id": id.to_string(), "phase": "Ready" });
    id
}

/// Returns a namespace if objects can be created in it. Otherwise returns the error for the client.
pub(crate) async fn live_namespace(store: &dyn Store, id: Id, namespace: &str) -> Result<Entry, Status> {
    let found = store.get(&NAMESPACES.key(id, None, namespace)).await.map_err(unreadable)?;
    let grouped = GroupResource::new("", "namespaces");
    let found = found.value.filter(|entry| stored::uid(entry).is_some());
    let entry = found.ok_or_else(|| Status::not_found(grouped, namespace))?;
    if stored::is_being_deleted(&entry) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        };
        return Err(Status::forbidden(grouped, namespace, &why).because(cause));
    }
    Ok(entry)
}

/// Returns the label names of a logical cluster's object. The root has none.
pub(crate) async fn labels(store: &dyn Store, id: Id) -> Result<Vec<String>, ReadError> {
    #[derive(Deserialize)]
    struct LabeledObject {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default)]
        labels: std::collections::BTreeMap<String, String>,
    }
    let Some(record) = records::find(store, id).await? else { return Ok(Vec::new()) };
    let Some(parent) = record.parent else { return Ok(Vec::new()) };
    let found = store.get(&COLLECTION.key(parent, None, &record.name)).await?.value;
    let object = found.as_ref().and_then(stored::json).and_then(|json| serde_json::from_slice(json).ok());
    Ok(object.map(|object: LabeledObject| object.metadata.labels.into_keys().collect()).unwrap_or_default())
}
