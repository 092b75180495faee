//! The nodes of a logical cluster: the physical clusters it uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use api::meta::hash::word;
use api::meta::metadata::text;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use serde_json::{Value, json};

use super::{ProjectionMetadata, annotation, metrics};
use crate::context::Splitter;
use crate::snapshot::{MemberCluster, WatchedKind};
use crate::transform::projection::nodes::node;

/// The fields of a Node's status that are compared and written.
const STATUS_FIELDS: [&str; 4] = ["capacity", "allocatable", "conditions", "nodeInfo"];

pub(crate) async fn nodes(splitter: &Splitter, cluster: Id) -> Result<Outcome, CallError> {
    let caches = &splitter.caches;
    let Some(watched) = caches.by_group_kind("", "Node").filter(|_| !caches.is_mailbox(cluster)) else {
        return Ok(Outcome::Done);
    };
    let used = splitter.projections.used(cluster);
    let visible = splitter.visible_from(cluster);
    let desired: BTreeMap<&str, &Arc<MemberCluster>> = visible
        .iter()
        .map(|member| (member.name(), member))
        .filter(|(name, _)| used.contains(*name))
        .collect();
    let server = caches.server.within(cluster);
    let writer = NodeWriter { server: &server, watched: &watched };
    for member in desired.values() {
        let node = desired_node(member);
        match watched.view.get(&key(cluster, member.name())) {
            None => writer.create(&node).await?,
            Some(found) if ProjectionMetadata::of(&found).is_projection() => {
                writer.update(&node, &found.read(&watched.kind)).await?;
            }
            // A Node of the user.
            Some(_) => {
                tracing::debug!(%cluster, node = member.name(), "a Node of this name exists that is not a projection")
            }
        }
    }
    for key in watched.view.keys_within(cluster, None) {
        let Some(found) =
            watched.view.get(&key).filter(|found| ProjectionMetadata::of(found).is_projection())
        else {
            continue;
        };
        if !desired.contains_key(&*key.name) {
            writer.remove(&key, &found.uid).await?;
        }
    }
    let mailboxes: Vec<Id> = desired.values().filter_map(|member| member.mailbox()).collect();
    metrics::ensure_definitions(splitter, cluster, &mailboxes).await?;
    Ok(Outcome::Done)
}

fn key(cluster: Id, name: &str) -> Key {
    Key { cluster: Some(cluster), ..Key::new("", name) }
}

fn desired_node(member: &MemberCluster) -> Value {
    let mut node = node(&member.object);
    let content = json!([node["metadata"]["labels"], node["spec"]]).to_string();
    node["metadata"]["annotations"] = json!({ api::names::PROJECTED_HASH: word(&[&content], 12) });
    node
}

struct NodeWriter<'a> {
    server: &'a Remote,
    watched: &'a WatchedKind,
}

impl NodeWriter<'_> {
    async fn create(&self, node: &Value) -> Result<(), CallError> {
        self.server.create(&self.watched.kind, "", node).await.map(drop)
    }

    async fn update(&self, node: &Value, projected: &Value) -> Result<(), CallError> {
        let place = ObjectPath::new(&self.watched.kind, "", text(node, "name"));
        if annotation(projected, api::names::PROJECTED_HASH) != annotation(node, api::names::PROJECTED_HASH) {
            let mut object = node.clone();
            object["metadata"]["resourceVersion"] = projected["metadata"]["resourceVersion"].clone();
            self.server.replace(place, &object).await?;
        }
        if STATUS_FIELDS.iter().any(|field| {
            without_heartbeats(&node["status"][field]) != without_heartbeats(&projected["status"][field])
        }) {
            let fields: Value = STATUS_FIELDS
                .iter()
                .map(|field| (field.to_string(), node["status"][field].clone()))
                .collect();
            self.server.patch(place.part("status"), Patch::Merge, &json!({ "status": fields })).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &Key, uid: &str) -> Result<(), CallError> {
        self.server.delete(ObjectPath::new(&self.watched.kind, "", &key.name), uid).await.map(drop)
    }
}

/// Heartbeat times change all the time; they are written together with other changes.
fn without_heartbeats(field: &Value) -> Value {
    let mut field = field.clone();
    for condition in field.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastHeartbeatTime");
        condition.retain(|_, value| !value.is_null());
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_heartbeat_time_alone_is_not_written() {
        let ready = |beat: &str, status: &str| json!([{ "type": "Ready", "status": status, "lastHeartbeatTime": beat, "x": null }]);
        assert_eq!(without_heartbeats(&ready("t1", "True")), without_heartbeats(&ready("t2", "True")));
        assert_ne!(without_heartbeats(&ready("t1", "True")), without_heartbeats(&ready("t1", "False")));
        assert_eq!(without_heartbeats(&json!({ "cpu": "8" })), json!({ "cpu": "8" }));
    }
}
