//! The ReplicaSets of a user's Deployment, from all its targets.

use api::meta::is_being_deleted;
use api::meta::metadata::text;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use serde_json::{Value, json};

use super::{ProjectionMetadata, annotation, origin};
use crate::context::Splitter;
use crate::snapshot::mailbox_objects::namespace_on;
use crate::snapshot::{ObjectRef, WatchedKind};
use crate::transform::projection::replica_sets::{REVISION, merge_replica_sets};

/// Reconciles all ReplicaSets of a Deployment together: their revisions depend on each other.
pub(super) async fn reconcile(splitter: &Splitter, deployment: &ObjectRef) -> Result<Outcome, CallError> {
    let caches = &splitter.caches;
    let Some(sets) = caches.by_group_kind("apps", "ReplicaSet") else { return Ok(Outcome::Done) };
    // The garbage collector deletes them with the Deployment.
    let found = caches.by_resource(&deployment.kind).and_then(|watched| watched.get(&deployment.key));
    let Some(object) = found.filter(|found| !is_being_deleted(found)) else { return Ok(Outcome::Done) };
    if caches.is_mailbox(deployment.cluster()) {
        return Ok(Outcome::Done);
    }
    let downstream = list_downstream(splitter, deployment, &sets);
    let projected: Vec<Value> =
        splitter.projections.sets(deployment).iter().filter_map(|key| sets.get(key)).collect();
    let (own, foreign): (Vec<&Value>, Vec<&Value>) = projected
        .iter()
        .partition(|set| set["metadata"]["ownerReferences"][0]["uid"] == object["metadata"]["uid"]);
    let desired = merge_replica_sets(&object, &downstream.iter().collect::<Vec<_>>(), &own);
    if downstream.is_empty() && own.is_empty() {
        return Ok(Outcome::Done);
    }
    let server = caches.server.within(deployment.cluster());
    let writer = ReplicaSetWriter { server: &server, sets: &sets };
    for set in &desired.sets {
        match own.iter().find(|projected| text(projected, "name") == text(set, "name")) {
            Some(projected) => writer.update(set, projected).await?,
            // ReplicaSets of an earlier Deployment of this name are about to be deleted.
            None if foreign.iter().any(|projected| text(projected, "name") == text(set, "name")) => {
                return Ok(Outcome::Failed);
            }
            None => writer.create(set).await?,
        }
    }
    for projected in own {
        if !desired.sets.iter().any(|set| text(set, "name") == text(projected, "name")) {
            writer.remove(projected).await?;
        }
    }
    if let Some(revision) = desired.revision {
        write_revision(splitter, &server, deployment, &object, revision).await?;
    }
    Ok(Outcome::Done)
}

/// The ReplicaSets of this Deployment in all mailboxes that its logical cluster may use.
fn list_downstream(splitter: &Splitter, deployment: &ObjectRef, sets: &WatchedKind) -> Vec<Value> {
    let caches = &splitter.caches;
    let id = deployment.cluster();
    let (members, lineage) = {
        let clusters = caches.clusters();
        (caches.members().all(&clusters), clusters.lineage(id))
    };
    let mut downstream = Vec::new();
    for member in members.iter().filter(|member| lineage.contains(&member.owner)) {
        let Some(mailbox) = member.mailbox() else { continue };
        let mailbox_namespace = namespace_on(member, id, &deployment.key.namespace);
        if origin::user_namespace(caches, mailbox, &mailbox_namespace).as_ref()
            != Some(&(id, deployment.key.namespace.clone()))
        {
            continue;
        }
        let key =
            Key { cluster: Some(mailbox), namespace: mailbox_namespace, name: deployment.key.name.clone() };
        let found = splitter.projections.sets(&ObjectRef { kind: deployment.kind.clone(), key });
        downstream.extend(found.iter().filter_map(|key| sets.get(key)));
    }
    downstream
}

/// Removes a projected ReplicaSet without Deployment.
pub(super) async fn remove_stray(splitter: &Splitter, subject: &ObjectRef) -> Result<Outcome, CallError> {
    let Some(sets) = splitter.caches.by_resource(&subject.kind) else { return Ok(Outcome::Done) };
    let Some(found) = sets.view.get(&subject.key) else { return Ok(Outcome::Done) };
    if ProjectionMetadata::of(&found).owner_references.is_empty() {
        let server = splitter.caches.server.within(subject.cluster());
        ReplicaSetWriter { server: &server, sets: &sets }.remove(&found.read(&sets.kind)).await?;
    }
    Ok(Outcome::Done)
}

/// Writes the revision annotation that clients read.
async fn write_revision(
    splitter: &Splitter,
    server: &Remote,
    deployment: &ObjectRef,
    object: &Value,
    revision: u64,
) -> Result<(), CallError> {
    let revision = revision.to_string();
    if annotation(object, REVISION) == revision {
        return Ok(());
    }
    let Some(watched) = splitter.caches.by_resource(&deployment.kind) else { return Ok(()) };
    let change = json!({ "metadata": { "uid": text(object, "uid"), "annotations": { REVISION: revision } } });
    // Through the status subresource, so that the generation is unchanged.
    let place =
        ObjectPath::new(&watched.kind, &deployment.key.namespace, &deployment.key.name).part("status");
    server.patch(place, Patch::Merge, &change).await.map(drop)
}

struct ReplicaSetWriter<'a> {
    server: &'a Remote,
    sets: &'a WatchedKind,
}

impl ReplicaSetWriter<'_> {
    fn place<'a>(&'a self, set: &'a Value) -> ObjectPath<'a> {
        ObjectPath::new(&self.sets.kind, text(set, "namespace"), text(set, "name"))
    }

    async fn create(&self, set: &Value) -> Result<(), CallError> {
        let created = self.server.create(&self.sets.kind, text(set, "namespace"), set).await?;
        self.write_status(set, &created).await
    }

    async fn update(&self, set: &Value, projected: &Value) -> Result<(), CallError> {
        if is_being_deleted(projected) {
            return Ok(());
        }
        let mut now = projected.clone();
        if !is_same(set, projected) {
            let mut object = set.clone();
            object["metadata"]["uid"] = projected["metadata"]["uid"].clone();
            object["metadata"]["resourceVersion"] = projected["metadata"]["resourceVersion"].clone();
            now = self.server.replace(self.place(set), &object).await?;
        }
        self.write_status(set, &now).await
    }

    async fn write_status(&self, set: &Value, projected: &Value) -> Result<(), CallError> {
        let mut status = set["status"].clone();
        status["observedGeneration"] = projected["metadata"]["generation"].clone();
        if status == projected["status"] {
            return Ok(());
        }
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(projected, "uid") },
            { "op": "add", "path": "/status", "value": status },
        ]);
        self.server.patch(self.place(set).part("status"), Patch::Json, &change).await.map(drop)
    }

    async fn remove(&self, projected: &Value) -> Result<(), CallError> {
        self.server.delete(self.place(projected), text(projected, "uid")).await.map(drop)
    }
}

/// Whether the projection has all fields as they should be.
fn is_same(set: &Value, projected: &Value) -> bool {
    const COMPARED: [&str; 5] = [
        "/metadata/labels",
        "/metadata/annotations",
        "/metadata/ownerReferences",
        "/spec/replicas",
        "/spec/template",
    ];
    COMPARED.into_iter().all(|pointer| set.pointer(pointer) == projected.pointer(pointer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_replica_set_is_not_written() {
        let set = json!({
            "metadata": { "name": "web-1", "annotations": { REVISION: "1" }, "labels": { "a": "b" }, "ownerReferences": [{}] },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
        });
        let mut projected = set.clone();
        projected["metadata"]["generation"] = 3.into();
        assert!(is_same(&set, &projected));
        projected["metadata"]["annotations"]["more"] = "x".into();
        assert!(!is_same(&set, &projected));
    }
}
