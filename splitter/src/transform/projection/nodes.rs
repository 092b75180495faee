//! A physical cluster as the user's cluster sees it: one Node.

use api::fleet::{PhysicalCluster, PhysicalClusterStatus};
use api::meta::quantity::Quantities;
use api::names::{PROJECTED, TRUE};
use serde_json::{Value, json};

/// The Node of a physical cluster, with its status.
pub fn node(cluster: &PhysicalCluster) -> Value {
    let nothing = PhysicalClusterStatus::default();
    let status = cluster.status.as_ref().unwrap_or(&nothing);
    let name = &cluster.metadata.name;
    let mut labels = json!({ "kubernetes.io/hostname": name, PROJECTED: TRUE });
    for (key, value) in &cluster.metadata.labels {
        labels[key] = value.as_str().into();
    }
    let mut spec = json!({});
    if !cluster.spec.schedulable || cluster.spec.drain {
        spec["unschedulable"] = true.into();
    }
    if !cluster.spec.taints.is_empty() {
        spec["taints"] = json!(cluster.spec.taints);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "labels": labels },
        "spec": spec,
        "status": {
            "capacity": quantities_json(&status.capacity),
            "allocatable": quantities_json(&status.allocatable),
            "conditions": [ready(status)],
            "nodeInfo": info(status),
        },
    })
}

fn quantities_json(quantities: &Quantities) -> Value {
    quantities.iter().map(|(name, amount)| (name.clone(), Value::from(amount.as_str()))).collect()
}

/// Without a report the condition is Unknown, as for a node that stopped reporting.
fn ready(status: &PhysicalClusterStatus) -> Value {
    let found = status.conditions.iter().find(|condition| condition.r#type == "Ready");
    let heartbeat = status.last_heartbeat_time.as_deref();
    let mut condition = match found {
        Some(found) => json!({
            "type": "Ready", "status": found.status, "reason": found.reason, "message": found.message,
            "lastTransitionTime": found.last_transition_time,
        }),
        None => json!({ "type": "Ready", "status": "Unknown", "reason": "NeverReported",
                        "message": "the syncer of this physical cluster has not reported yet" }),
    };
    if let Some(heartbeat) = heartbeat {
        condition["lastHeartbeatTime"] = heartbeat.into();
    }
    condition
}

/// All fields are required; only the version has a meaning.
fn info(status: &PhysicalClusterStatus) -> Value {
    let version = status.version.as_deref().unwrap_or_default();
    let uid = status.uid.as_deref().unwrap_or_default();
    json!({
        "kubeletVersion": version, "kubeProxyVersion": version, "machineID": uid, "systemUUID": uid, "bootID": "",
        "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "", "operatingSystem": "linux", "architecture": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::fleet::Metadata;

    #[test]
    fn a_physical_cluster_is_projected_as_a_node() {
        let mut east = PhysicalCluster {
            metadata: Metadata {
                name: "east".into(),
                labels: [("region".into(), "eu".into())].into(),
                ..Metadata::default()
            },
            ..PhysicalCluster::default()
        };
        let projected = node(&east);
        assert_eq!(projected["status"]["conditions"][0]["status"], "Unknown");
        assert_eq!(
            (&projected["spec"], &projected["metadata"]["labels"]["region"]),
            (&json!({}), &json!("eu"))
        );
        east.spec.schedulable = false;
        east.status = Some(serde_json::from_value(json!({
            "version": "v1.36.4", "capacity": { "cpu": "8" }, "allocatable": { "cpu": "7500m" }, "lastHeartbeatTime": "t2",
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Reports", "message": "m", "lastTransitionTime": "t1" }],
        })).unwrap());
        let projected = node(&east);
        assert_eq!(projected["spec"], json!({ "unschedulable": true }));
        assert_eq!(projected["status"]["allocatable"], json!({ "cpu": "7500m" }));
        assert_eq!(projected["status"]["nodeInfo"]["kubeletVersion"], "v1.36.4");
        assert_eq!(
            projected["status"]["conditions"],
            json!([{
            "type": "Ready", "status": "True", "reason": "Reports", "message": "m", "lastTransitionTime": "t1", "lastHeartbeatTime": "t2" }])
        );
    }
}
