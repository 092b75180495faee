//! The record of a decision: one Distribution per object with a placement of its own, in the same namespace.
//!
//! ```text
//!   Deployment web ◄──owns── Distribution deployment-web   finalizer: its mailbox objects are deleted first
//! ```
//!
//! The object owns its record, so the garbage collector deletes the record with it. The finalizer keeps the record
//! until the mailbox objects are deleted, so a restarted splitter still reads that they have to be. The user's deletion
//! waits for none of that.

use api::fleet::{Distribution, DistributionStatus};
use api::names::SPLITTER;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::json;

use crate::context::Splitter;
use crate::snapshot::ObjectRef;
pub(crate) use crate::snapshot::record::{find, is_orphaned, written};

/// Creates or replaces a record. Returns the server's version.
pub(crate) async fn commit(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<Distribution, CallError> {
    let here = splitter.caches.server.within(subject.cluster());
    let view = &splitter.caches.config.distributions;
    let mut body = serde_json::to_value(record).map_err(|error| CallError::Garbled(error.to_string()))?;
    body["apiVersion"] = view.kind.api_version().into();
    body["kind"] = view.kind.name.clone().into();
    let namespace = &subject.key.namespace;
    let written = match record.metadata.resource_version.is_empty() {
        true => here.create(&view.kind, namespace, &body).await?,
        false => here.replace(ObjectPath::new(&view.kind, namespace, &record.metadata.name), &body).await?,
    };
    splitter.own_writes.add(subject, &written);
    serde_json::from_value(written).map_err(|error| CallError::Garbled(error.to_string()))
}

/// Writes the status of a record if it changed.
pub(crate) async fn report(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
    status: &DistributionStatus,
) -> Result<(), CallError> {
    if record.status.as_ref() == Some(status) {
        return Ok(());
    }
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": record.metadata.uid },
        { "op": "add", "path": "/status", "value": status },
    ]);
    splitter.caches.server.within(subject.cluster()).patch(place, Patch::Json, &change).await.map(drop)
}

/// Deletes a record whose object has no placement of its own any more.
pub(crate) async fn delete(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<(), CallError> {
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name);
    splitter.caches.server.within(subject.cluster()).delete(place, &record.metadata.uid).await?;
    splitter.own_writes.add_deletion(subject);
    Ok(())
}

/// Removes the splitter's finalizer from a record: its mailbox objects are deleted, or kept on purpose.
pub(crate) async fn release(
    splitter: &Splitter,
    subject: &ObjectRef,
    record: &Distribution,
) -> Result<(), CallError> {
    let mut finalizers = record.metadata.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != SPLITTER);
    if finalizers.len() == record.metadata.finalizers.len() {
        return Ok(());
    }
    let kind = &splitter.caches.config.distributions.kind;
    let place = ObjectPath::new(kind, &subject.key.namespace, &record.metadata.name);
    let change = json!({ "metadata": {
        "uid": record.metadata.uid, "resourceVersion": record.metadata.resource_version, "finalizers": finalizers,
    } });
    match splitter.caches.server.within(subject.cluster()).patch(place, Patch::Merge, &change).await {
        Err(error) if error.is_not_found() => {}
        released => splitter.own_writes.add(subject, &released?),
    }
    Ok(())
}
