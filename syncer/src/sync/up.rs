//! Writes the status of a downstream object into the mailbox.

use api::meta::time;
use controller::remote::Patch;
use serde_json::{Value, json};

use crate::mirror::{AnyObject, DesiredObject, Generations, fingerprint, is_applied, upstream_status};
use crate::state::context::{ObjectId, ObjectPair, SyncerContext, place};
use crate::state::errors::{REFUSED, SyncError};

/// Writes the status of a placed object, if it differs.
pub(crate) async fn status(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
) -> Result<(), SyncError> {
    let (Some(mailbox), Some(downstream)) = (&pair.mailbox, &pair.downstream) else { return Ok(()) };
    if pair.watched.name.has_own_status() {
        return Ok(());
    }
    let desired = DesiredObject::of(mailbox, &context.settings.mailbox)
        .with_downstream_scale(mailbox, Some(downstream));
    let generations = Generations {
        mailbox: AnyObject(mailbox).generation(),
        downstream: AnyObject(downstream).generation(),
        in_sync: is_applied(downstream, &desired, context.last_sync(id).sent),
    };
    match upstream_status(downstream, generations) {
        Some(status) => write(context, id, pair, mailbox, status).await,
        None => Ok(()),
    }
}

/// Kinds whose rejection is reported in a condition of the object, because no other object reports it.
const CONDITIONED: &[(&str, &str)] = &[("", "services")];
/// The condition: whether the physical cluster accepted the object. The next status from downstream replaces it.
const SENT_CONDITION: &str = "Sent";

/// Sets the condition on a placed object that the physical cluster rejected.
pub(crate) async fn report_refused(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    message: &str,
) -> Result<(), SyncError> {
    let is_conditioned = CONDITIONED.contains(&(&*id.kind.group, &*id.kind.plural));
    let Some(mailbox) = pair.mailbox.as_ref().filter(|_| is_conditioned) else { return Ok(()) };
    let message = format!("physical cluster {}: {message}", context.settings.name);
    let mut status = mailbox["status"].as_object().cloned().unwrap_or_default();
    let existing = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_set = |condition: &Value| condition["type"] == SENT_CONDITION && condition["message"] == *message;
    if existing.iter().any(is_set) {
        return Ok(());
    }
    let mut conditions: Vec<Value> =
        existing.into_iter().filter(|condition| condition["type"] != SENT_CONDITION).collect();
    conditions.push(json!({
        "type": SENT_CONDITION, "status": "False", "reason": REFUSED, "message": message,
        "lastTransitionTime": time::now(),
    }));
    status.insert("conditions".to_owned(), conditions.into());
    write(context, id, pair, mailbox, Value::Object(status)).await
}

/// Writes a status into the mailbox, if it differs.
pub(crate) async fn write(
    context: &SyncerContext,
    id: &ObjectId,
    pair: &ObjectPair,
    mailbox: &Value,
    status: Value,
) -> Result<(), SyncError> {
    let (desired, current) = (fingerprint(&status), fingerprint(&mailbox["status"]));
    // The mailbox may store a status differently, for example without a field that it does not know. That does not
    // count as a difference.
    let same = desired == current || context.last_sync(id).status == Some((desired, current));
    if same || !context.lease.leads() {
        return Ok(());
    }
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": AnyObject(mailbox).uid() },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let subresource = if pair.watched.resource.has_status { "status" } else { "" };
    let place = place(&pair.watched, &id.key).part(subresource);
    let written = context.mailbox.patch(place, Patch::Json, &change).await;
    let written = written.map_err(SyncError::failed("CannotReportStatus"))?;
    let stored = fingerprint(&written["status"]);
    context.update_last_sync(id, |last_sync| last_sync.status = Some((desired, stored)));
    Ok(())
}
