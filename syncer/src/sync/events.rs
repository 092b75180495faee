//! Events about mailbox objects.

use api::names::{DOWNSTREAM_UID, FIELD_MANAGER, PHYSICAL_CLUSTER, PROJECTED, TRUE};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::mirror::AnyObject;
use crate::state::context::SyncerContext;
use crate::state::errors::SyncError;

/// Creates an Event about a mailbox object.
pub(super) async fn record_event(context: &SyncerContext, object: &Value, error: &SyncError) {
    let kind = controller::kind::ResourceKind::new("", "v1", "events", "Event", true);
    let event = event(object, error, &context.settings.name);
    let namespace = event["metadata"]["namespace"].as_str().unwrap_or_default();
    // The report also has the error, so losing an Event is harmless.
    if let Err(refused) = context.mailbox.create(&kind, namespace, &event).await {
        tracing::debug!(error = %refused, "cannot create an Event");
    }
}

/// Returns an Event for the mailbox. An Event for the user gets the labels of a projection, so that the user's logical
/// cluster shows it.
fn event(object: &Value, error: &SyncError, physical_cluster: &str) -> Value {
    let involved = AnyObject(object);
    let namespace = if involved.namespace().is_empty() { "default" } else { involved.namespace() };
    let now = Timestamp::now();
    let (second, exact) = (api::meta::time::seconds(now), now.as_nanosecond());
    let (labels, message) = match error.is_for_user() {
        true => (
            json!({ PROJECTED: TRUE, PHYSICAL_CLUSTER: physical_cluster }),
            format!("physical cluster {physical_cluster}: {}", error.message),
        ),
        false => (json!({}), error.message.clone()),
    };
    // A projection may be replaced, but the uid of the object that it represents stays the same.
    let uid = involved.annotation(DOWNSTREAM_UID).unwrap_or(involved.uid());
    json!({
        "apiVersion": "v1", "kind": "Event", "type": "Warning",
        "metadata": { "name": format!("{}.{exact:x}", involved.name()), "namespace": namespace, "labels": labels },
        "involvedObject": {
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": involved.name(),
            "namespace": involved.namespace(), "uid": uid,
        },
        "reason": error.reason, "message": message, "source": { "component": FIELD_MANAGER },
        "firstTimestamp": second, "lastTimestamp": second, "count": 1,
    })
}
