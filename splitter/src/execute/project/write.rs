//! Writes projections, if they changed.

use api::meta::hash::word;
use api::meta::is_being_deleted;
use api::meta::metadata::text;
use api::names::{PROJECTED_HASH, SPLITTER};
use controller::informer::Key;
use controller::remote::{CallError, Patch, Place, Remote};
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
    pub(super) fn is_shown_by(&self, shown: &Value) -> bool {
        annotation(shown, PROJECTED_HASH) == annotation(&self.object, PROJECTED_HASH)
            && shown["metadata"]["ownerReferences"] == *self.owners()
    }

    /// The status, with `observedGeneration` in terms of the projection.
    fn status_of(&self, shown: &Value) -> Option<Value> {
        let mut status = self.status.clone()?;
        let here = shown["metadata"]["generation"].as_i64().unwrap_or_default();
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
    fn place<'a>(&'a self, key: &'a Key) -> Place<'a> {
        Place::new(&self.watched.kind, &key.namespace, &key.name)
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
        shown: &Value,
    ) -> Result<UpdateOutcome, CallError> {
        let mut now = shown.clone();
        if !desired.is_shown_by(shown) && !is_being_deleted(shown) {
            match self.rewrite(key, desired, shown).await? {
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
        shown: &Value,
    ) -> Result<Option<Value>, CallError> {
        let node = |object: &Value| object["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        let mut version = shown["metadata"]["resourceVersion"].clone();
        // `spec.nodeName` is only set through the binding subresource.
        if node(shown).is_empty() && !node(&desired.object).is_empty() {
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": key.name, "uid": text(shown, "uid") },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node(&desired.object) },
            });
            self.server.post(self.place(key).part("binding"), &binding).await?;
            version = Value::Null;
        }
        let later = |object: &Value| object["spec"][EPHEMERAL].clone();
        if !later(&desired.object).is_null() && later(shown) != later(&desired.object) {
            let change = json!({ "spec": { EPHEMERAL: later(&desired.object) } });
            let place = self.place(key).part("ephemeralcontainers");
            self.server.patch(place, Patch::Merge, &change).await?;
            version = Value::Null;
        }
        let mut object = desired.object.clone();
        object["metadata"]["uid"] = text(shown, "uid").into();
        object["metadata"]["resourceVersion"] = version;
        match self.server.replace(self.place(key), &object).await {
            Ok(written) => Ok(Some(written)),
            // An immutable field changed.
            Err(error) if error.code() == 422 => {
                self.remove(key, shown).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        desired: &ProjectedObject,
        shown: &Value,
    ) -> Result<(), CallError> {
        let Some(status) = desired.status_of(shown).filter(|status| *status != shown["status"]) else {
            return Ok(());
        };
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(shown, "uid") },
            { "op": "add", "path": "/status", "value": status },
        ]);
        self.server.patch(self.place(key).part("status"), Patch::Json, &change).await?;
        Ok(())
    }

    /// Deletes the projection with the grace period of the source.
    pub(super) async fn mark(
        &self,
        key: &Key,
        shown: &Value,
        grace_seconds: Option<i64>,
    ) -> Result<(), CallError> {
        self.server.delete_within(self.place(key), text(shown, "uid"), grace_seconds).await.map(drop)
    }

    /// Removes a projection at once. The finalizer is removed first: a deletion that the finalizer holds would look as
    /// if the user had deleted it, and would be passed on to the source.
    pub(super) async fn remove(&self, key: &Key, shown: &Value) -> Result<(), CallError> {
        self.release(key, shown).await?;
        self.mark(key, shown, Some(0)).await
    }

    /// Removes the splitter's finalizer.
    pub(super) async fn release(&self, key: &Key, shown: &Value) -> Result<(), CallError> {
        let found = shown["metadata"]["finalizers"].as_array().into_iter().flatten();
        let (ours, others): (Vec<&Value>, Vec<&Value>) = found.partition(|name| *name == SPLITTER);
        if ours.is_empty() {
            return Ok(());
        }
        if is_being_deleted(shown) && shown["metadata"]["deletionGracePeriodSeconds"].as_i64() != Some(0) {
            self.mark(key, shown, Some(0)).await?;
        }
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": text(shown, "uid") },
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
    fn a_picture_is_hung_once_and_again_when_its_owners_are_others() {
        let object = json!({
            "metadata": { "name": "a", "annotations": {}, "ownerReferences": [{ "uid": "u" }] },
            "spec": { "x": 1 }, "status": { "phase": "Running" },
        });
        let desired = ProjectedObject::new(object.clone(), None);
        assert!(desired.object.get("status").is_none());
        let mut shown = desired.object.clone();
        assert!(desired.is_shown_by(&shown) && !desired.is_shown_by(&object));
        shown["metadata"]["ownerReferences"] = Value::Null;
        assert!(!desired.is_shown_by(&shown));
        let mut other = object.clone();
        other["status"] = json!({ "phase": "Failed" });
        assert_eq!(ProjectedObject::new(other, None).object, desired.object, "a status is apart");
    }

    #[test]
    fn observed_generations_are_translated_to_the_projected_object() {
        let check = |observed: i64, there: i64, expected: i64| {
            let object =
                json!({ "metadata": { "annotations": {} }, "status": { "observedGeneration": observed } });
            let shown = json!({ "metadata": { "generation": 5 } });
            let status = ProjectedObject::new(object, Some(there)).status_of(&shown);
            assert_eq!(status, Some(json!({ "observedGeneration": expected })));
        };
        check(3, 3, 5);
        check(2, 3, 4);
    }
}
