//! Node objects: their registration and their status.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::pod_status::address;
use crate::cache::Cache;
use crate::objects::fields::time;
use crate::objects::kind::ObjectKind;
use crate::plan::Plan;

/// The ephemeral storage of every node. Pods that request some are not scheduled to nodes that report none.
const EPHEMERAL_STORAGE: &str = "100Gi";

/// The capacity by resource (`cpu: 4`, `memory: 8Gi`, `pods: 110`) and the labels of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeShape {
    pub name: String,
    pub capacity: Vec<(String, String)>,
    pub labels: Vec<(String, String)>,
}

impl NodeShape {
    pub fn new(name: impl Into<String>, cpu: &str, memory: &str, pods: u32) -> NodeShape {
        let capacity = [
            ("cpu", cpu.to_owned()),
            ("ephemeral-storage", EPHEMERAL_STORAGE.to_owned()),
            ("memory", memory.to_owned()),
            ("pods", pods.to_string()),
        ];
        let capacity = capacity.into_iter().map(|(resource, amount)| (resource.to_owned(), amount)).collect();
        NodeShape { name: name.into(), capacity, labels: Vec::new() }
    }

    pub fn with_label(mut self, key: &str, value: &str) -> NodeShape {
        self.labels.push((key.to_owned(), value.to_owned()));
        self
    }

    fn object(&self) -> Value {
        let mut labels: Map<String, Value> = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", std::env::consts::ARCH),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
        labels.extend(self.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": self.name, "labels": labels } })
    }

    fn status(&self, now: Timestamp) -> Value {
        let capacity: Map<String, Value> = self
            .capacity
            .iter()
            .map(|(resource, amount)| (resource.clone(), amount.as_str().into()))
            .collect();
        let condition = |(kind, status, reason, message): (&str, &str, &str, &str)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": time(now), "lastTransitionTime": time(now),
            })
        };
        let conditions: Vec<Value> = [
            (
                "MemoryPressure",
                "False",
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
            ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]
        .map(condition)
        .into();
        json!({
            "capacity": capacity, "allocatable": capacity, "conditions": conditions,
            "addresses": [
                { "type": "InternalIP", "address": address(192, 168, &self.name) },
                { "type": "Hostname", "address": self.name },
            ],
            "nodeInfo": {
                "architecture": std::env::consts::ARCH, "operatingSystem": "linux", "osImage": "standin",
                "kubeletVersion": concat!("standin-", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "",
                "containerRuntimeVersion": "standin://1", "kernelVersion": "", "bootID": "", "machineID": "", "systemUUID": "",
            },
        })
    }
}

/// Registers missing nodes. Runs once, so that a node that is deleted later stays deleted.
pub(crate) fn register_missing(cache: &Cache, shapes: &[NodeShape], plan: &mut Plan) {
    for shape in shapes.iter().filter(|shape| cache.get(ObjectKind::Nodes, "", &shape.name).is_none()) {
        plan.create_without_event(ObjectKind::Nodes, shape.object());
    }
}

/// Writes the status of nodes that have none.
pub(crate) fn report_status(cache: &Cache, shapes: &[NodeShape], now: Timestamp, plan: &mut Plan) {
    for shape in shapes {
        if let Some(node) =
            cache.get(ObjectKind::Nodes, "", &shape.name).filter(|node| node["status"]["capacity"].is_null())
        {
            plan.status(ObjectKind::Nodes, node, shape.status(now));
        }
    }
}
