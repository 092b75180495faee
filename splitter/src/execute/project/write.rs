//! Writes projections, if they changed.

use api::meta::hash::word;
use api::meta::is_being_deleted;
use api::meta::metadata::text;
use api::names::{PROJECTED_HASH, SPLITTER};
use controller::informer::Key;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use serde_json::{Value, json};

use super::annotation;
use crate::snapshot::WatchedKind;

/// A projection as it should be. The status is apart, because it is written through its subresource.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ProjectedObject {
    object: Value,
    status: Option<Value>,
    /// The generation of the source that the status belongs to.
    generation: Option<i64>,
}

impl ProjectedObject {
    pub(super) fn new(mut object: Value, generation: Option<i64>) -> ProjectedObject {
        let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
        let hash = word(&[&object.to_string()], 12);
        object["metadata"]["annotations"][PROJECTED_HASH] = hash.into();
        ProjectedObject { object, status: status.filter(|status| !status.is_null()), generation }
    }

    pub(super) fn owners(&self) -> &Value {
        &self.object["metadata"]["ownerReferences"]
    }

    /// Whether the projection was last written from the same content, and still has its owners.
    pub(super) fn matches(&self, projected: &Value) -> bool {
        annotation(projected, PROJECTED_HASH) == annotation(&self.object, PROJECTED_HASH)
            && projected["metadata"]["ownerReferences"] == *self.owners()
    }

    /// The status, with `observedGeneration` in terms of the projection.
    fn status_of(&self, projected: &Value) -> Option<Value> {
        let mut status = self.status.clone()?;
        let here = projected["metadata"]["generation"].as_i64().unwrap_or_default();
        if let Some(observed) = status.get("observedGeneration").and_then(Value::as_i64) {
            let is_present = self.generation.is_none_or(|generation| observed >= generation);
            status["observedGeneration"] = if is_present { here } else { (here - 1).max(0) }.into();
        }
        Some(status)
    }
}

/// Writes projections of one kind in one logical cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProjectionWriter<'a> {
    pub(super) server: &'a Remote,
    pub(super) watched: &'a WatchedKind,
}

/// The result of an update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UpdateOutcome {
    Updated,
    /// An immutable field changed, so the projection was deleted and has to be created again.
    Deleted,
}

/// Containers that are added to a pod that runs.
const EPHEMERAL: &str = "ephemeralContainers";

/// A pod cannot be created with ephemeral containers; they are added afterwards.
fn without_ephemeral_containers(mut object: Value) -> Value {
    let spec = object["spec"].as_object_mut();
    if spec.is_some_and(|spec| spec.remove(EPHEMERAL).is_some()) {
        // Not the whole content, so the next reconcile writes it again.
        object["metadata"]["annotations"][PROJECTED_HASH] = "".into();
    }
    object
}

impl ProjectionWriter<'_> {
    fn place<'a>(&'a self, key: &'a Key) -> ObjectPath<'a> {
        ObjectPath::new(&self.watched.kind, &key.namespace, &key.name)
    }

    pub(super) async fn create(&self, key: &Key, desired: &ProjectedObject) -> Result<(), CallError> {
        let object = without_ephemeral_containers(desired.object.clone());
        let created = self.server.create(&self.watched.kind, &key.namespace, &object).await?;
        self.write_status(key, desired, &created).await
    }

    /// Writes the fields and the status that differ.
    pub(super) async fn update(
        &self,
        key: &Key,
        desired: &ProjectedObject,
        projected: &Value,
    ) -> Result<UpdateOutcome, CallError> {
        let mut now = projected.clone();
        if !desired.matches(projected) && !is_being_deleted(projected) {
            match self.rewrite(key, desired, projected).await? {
                Some(written) => now = written,
                None => return Ok(UpdateOutcome::Deleted),
            }
        }
        self.write_status(key, desired, &now).await?;
        Ok(UpdateOutcome::Updated)
    }

    async fn rewrite(
        &self,
        key: &Key,
        desired: &ProjectedObject,
        projected: &Value,
    ) -> Result<Option<Value>, CallError> {
        let node = |object: &Value| object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let mut version = projected["metadata"]["resourceVersion"].clone();
        // `spec.nodeName` is only set through the binding subresource.
        if node(projected).is_empty() && !node(&desired.object).is_empty() {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": key.name, "uid": text(projected, "uid") },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node(&desired.object) },
            });
            self.server.post(self.place(key).part("binding"), &binding).await?;
            version = Value::Null;
        }
        let ephemeral = |object: &Value| object["spec"][EPHEMERAL].clone();
        if !ephemeral(&desired.object).is_null() && ephemeral(projected) != ephemeral(&desired.object) {
            let change = json!({ "spec": { EPHEMERAL: ephemeral(&desired.object) } });
            let place = self.place(key).part("ephemeralcontainers");
            self.server.patch(place, Patch::Merge, &change).await?;
            version = Value::Null;
        }
        let mut object = desired.object.clone();
        object["metadata"]["uid"] = text(projected, "uid").into();
        object["metadata"]["resourceVersion"] = version;
        match self.server.replace(self.place(key), &object).await {
            Ok(written) => Ok(Some(written)),
            // An immutable field changed.
            Err(error) if error.code() == 422 => {
                self.remove(key, projected).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        desired: &ProjectedObject,
        projected: &Value,
    ) -> Result<(), CallError> {
        let Some(status) = desired.status_of(projected).filter(|status| *status != projected["status"])
        else {
            return Ok(());
        };
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(projected, "uid") },
            { "op": "add", "path": "/status", "value": status },
        ]);
        self.server.patch(self.place(key).part("status"), Patch::Json, &change).await?;
        Ok(())
    }

    /// Deletes the projection with the grace period of the source.
    pub(super) async fn mark(
        &self,
        key: &Key,
        projected: &Value,
        grace_seconds: Option<i64>,
    ) -> Result<(), CallError> {
        self.server.delete_within(self.place(key), text(projected, "uid"), grace_seconds).await.map(drop)
    }

    /// Removes a projection at once. The finalizer is removed first: a deletion that the finalizer holds would look as
    /// if the user had deleted it, and would be passed on to the source.
    pub(super) async fn remove(&self, key: &Key, projected: &Value) -> Result<(), CallError> {
        self.release(key, projected).await?;
        self.mark(key, projected, Some(0)).await
    }

    /// Removes the splitter's finalizer.
    pub(super) async fn release(&self, key: &Key, projected: &Value) -> Result<(), CallError> {
        let found = projected["metadata"]["finalizers"].as_array().into_iter().flatten();
        let (ours, others): (Vec<&Value>, Vec<&Value>) = found.partition(|name| *name == SPLITTER);
        if ours.is_empty() {
            return Ok(());
        }
        if is_being_deleted(projected)
            && projected["metadata"]["deletionGracePeriodSeconds"].as_i64() != Some(0)
        {
            self.mark(key, projected, Some(0)).await?;
        }
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(projected, "uid") },
            { "op": "add", "path": "/metadata/finalizers", "value": others },
        ]);
        match self.server.patch(self.place(key), Patch::Json, &change).await {
            // It was deleted, or replaced by another of its name.
            Err(error) if error.is_not_found() || error.code() == 422 => Ok(()),
            other => other.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projection_is_rewritten_only_if_its_content_or_owners_changed() {
        let object = json!({
            "metadata": { "name": "a", "annotations": {}, "ownerReferences": [{ "uid": "u" }] },
            "spec": { "x": 1 }, "status": { "phase": "Running" },
        });
        let desired = ProjectedObject::new(object.clone(), None);
        assert!(desired.object.get("status").is_none());
        let mut projected = desired.object.clone();
        assert!(desired.matches(&projected) && !desired.matches(&object));
        projected["metadata"]["ownerReferences"] = Value::Null;
        assert!(!desired.matches(&projected));
        let mut other = object.clone();
        other["status"] = json!({ "phase": "Failed" });
        assert_eq!(
            ProjectedObject::new(other, None).object,
            desired.object,
            "the status is not part of the hash"
        );
    }

    #[test]
    fn observed_generations_are_translated_to_the_projected_object() {
        let check = |observed: i64, source_generation: i64, expected: i64| {
            let object =
                json!({ "metadata": { "annotations": {} }, "status": { "observedGeneration": observed } });
            let projected = json!({ "metadata": { "generation": 5 } });
            let status = ProjectedObject::new(object, Some(source_generation)).status_of(&projected);
            assert_eq!(status, Some(json!({ "observedGeneration": expected })));
        };
        check(3, 3, 5);
        check(2, 3, 4);
    }
}
