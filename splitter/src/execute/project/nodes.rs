//! The nodes of a logical cluster: the physical clusters it uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use api::meta::hash::word;
use api::meta::metadata::text;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, Patch, Place, Remote};
use serde_json::{Value, json};

use super::{ProjectionMetadata, annotation, metrics};
use crate::controller::Splitter;
use crate::snapshot::{MemberCluster, WatchedKind};
use crate::transform::projection::nodes::node;

/// The fields of a Node's status that are compared and written.
const SAID: [&str; 4] = ["capacity", "allocatable", "conditions", "nodeInfo"];

pub(crate) async fn nodes(splitter: &Splitter, cluster: Id) -> Result<Outcome, CallError> {
    let caches = &splitter.caches;
    let Some(watched) = caches.by_group_kind("", "Node").filter(|_| !caches.is_mailbox(cluster)) else {
        return Ok(Outcome::Done);
    };
    let used = splitter.projections.used(cluster);
    let seen = splitter.visible_from(cluster);
    let wanted: BTreeMap<&str, &Arc<MemberCluster>> =
        seen.iter().map(|member| (member.name(), member)).filter(|(name, _)| used.contains(*name)).collect();
    let server = caches.server.within(cluster);
    let writer = NodeWriter { server: &server, watched: &watched };
    for member in wanted.values() {
        let node = desired_node(member);
        match watched.view.get(&key(cluster, member.name())) {
            None => writer.create(&node).await?,
            Some(found) if ProjectionMetadata::of(&found).is_shown() => {
                writer.update(&node, &found.read(&watched.kind)).await?;
            }
            // A Node of the user.
            Some(_) => {
                tracing::debug!(%cluster, node = member.name(), "a Node of this name exists that is not a projection")
            }
        }
    }
    for key in watched.view.keys_within(cluster, None) {
        let Some(found) = watched.view.get(&key).filter(|found| ProjectionMetadata::of(found).is_shown())
        else {
            continue;
        };
        if !wanted.contains_key(&*key.name) {
            writer.remove(&key, &found.uid).await?;
        }
    }
    let mailboxes: Vec<Id> = wanted.values().filter_map(|member| member.mailbox()).collect();
    metrics::ensure_definitions(splitter, cluster, &mailboxes).await?;
    Ok(Outcome::Done)
}

fn key(cluster: Id, name: &str) -> Key {
    Key { cluster: Some(cluster), ..Key::new("", name) }
}

fn desired_node(member: &MemberCluster) -> Value {
    let mut node = node(&member.object);
    let said = json!([node["metadata"]["labels"], node["spec"]]).to_string();
    node["metadata"]["annotations"] = json!({ api::names::PROJECTED_HASH: word(&[&said], 12) });
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

    async fn update(&self, node: &Value, shown: &Value) -> Result<(), CallError> {
        let place = Place::new(&self.watched.kind, "", text(node, "name"));
        if annotation(shown, api::names::PROJECTED_HASH) != annotation(node, api::names::PROJECTED_HASH) {
            let mut object = node.clone();
            object["metadata"]["resourceVersion"] = shown["metadata"]["resourceVersion"].clone();
            self.server.replace(place, &object).await?;
        }
        if SAID.iter().any(|field| settled(&node["status"][field]) != settled(&shown["status"][field])) {
            let fields: Value =
                SAID.iter().map(|field| (field.to_string(), node["status"][field].clone())).collect();
            self.server.patch(place.part("status"), Patch::Merge, &json!({ "status": fields })).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: &Key, uid: &str) -> Result<(), CallError> {
        self.server.delete(Place::new(&self.watched.kind, "", &key.name), uid).await.map(drop)
    }
}

/// Heartbeat times change all the time; they are written together with other changes.
fn settled(field: &Value) -> Value {
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
    fn a_heartbeat_alone_is_nothing_to_write() {
        let ready = |beat: &str, status: &str| json!([{ "type": "Ready", "status": status, "lastHeartbeatTime": beat, "x": null }]);
        assert_eq!(settled(&ready("t1", "True")), settled(&ready("t2", "True")));
        assert_ne!(settled(&ready("t1", "True")), settled(&ready("t1", "False")));
        assert_eq!(settled(&json!({ "cpu": "8" })), json!({ "cpu": "8" }));
    }
}
