//! A cluster that runs pods.

use serde::{Deserialize, Serialize};

use super::placement::Effect;
use super::{Condition, FleetObject, Resource};
use crate::meta::quantity::Quantities;

pub type PhysicalCluster = FleetObject<PhysicalClusterSpec, PhysicalClusterStatus>;

impl PhysicalCluster {
    pub const RESOURCE: Resource =
        Resource { kind: "PhysicalCluster", plural: "physicalclusters", namespaced: false };
}

/// The use of a physical cluster, and its connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalClusterSpec {
    /// Whether new objects may be placed there. Existing ones stay.
    #[serde(default = "yes")]
    pub schedulable: bool,
    /// Whether all objects are to be moved away.
    #[serde(default)]
    pub drain: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The maximum of all requests together. Resources that are not listed have no maximum.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub bounds: Quantities,
    /// The path of the only logical cluster that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedicated_to: Option<String>,
    /// The pods it accepts. If not set: `baseline` if several logical clusters share it, otherwise `privileged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
    /// The names there of classes in logical clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_mappings: Vec<ClassMapping>,
    #[serde(default)]
    pub connection: Connection,
}

fn yes() -> bool {
    true
}

impl Default for PhysicalClusterSpec {
    fn default() -> PhysicalClusterSpec {
        PhysicalClusterSpec {
            schedulable: true,
            drain: false,
            taints: Vec::new(),
            bounds: Quantities::new(),
            dedicated_to: None,
            pod_security: None,
            class_mappings: Vec::new(),
            connection: Connection::default(),
        }
    }
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSecurity {
    /// Pods may use the host: privileged containers, hostPath, host namespaces and ports.
    Privileged,
    Baseline,
}

/// A kind of cluster-scoped class that other objects refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClassKind {
    PriorityClass,
    RuntimeClass,
    StorageClass,
    IngressClass,
}

/// A class with another name on a physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassMapping {
    pub kind: ClassKind,
    /// The name in logical clusters.
    pub from: String,
    /// The name on the physical cluster.
    pub to: String,
}

/// Keeps away objects that do not tolerate it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: Effect,
}

/// Which side opens the connection: `{ "push": … }` or `{ "pull": {} }`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Connection {
    /// The server does.
    Push(Push),
    /// A syncer in the physical cluster does.
    Pull(Pull),
}

impl Default for Connection {
    fn default() -> Connection {
        Connection::Pull(Pull {})
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Push {
    pub secret_ref: SecretReference,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Pull {}

/// A key of a Secret in the logical cluster of the PhysicalCluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    pub namespace: String,
    pub name: String,
    #[serde(default = "kubeconfig")]
    pub key: String,
}

fn kubeconfig() -> String {
    "kubeconfig".to_owned()
}

/// The observed state of a physical cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PhysicalClusterStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The id of its mailbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailbox: Option<String>,
    /// The uid of its namespace `kube-system`, which identifies the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The version of its Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub capacity: Quantities,
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub allocatable: Quantities,
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub requested: Quantities,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quotas: Vec<Quota>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<ServedKind>,
    /// The classes it has, of the kinds that its syncer may list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ServedClasses>,
}

/// The classes of one kind on a physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServedClasses {
    pub kind: ClassKind,
    #[serde(default)]
    pub names: Vec<String>,
    /// Whether there are more names than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub total: i64,
    pub ready: i64,
}

/// A ResourceQuota on a physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub hard: Quantities,
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub used: Quantities,
}

/// A kind that a physical cluster serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedKind {
    #[serde(default)]
    pub group: String,
    pub kind: String,
    /// The plural name in its paths.
    pub resource: String,
    pub namespaced: bool,
    /// The preferred version first.
    pub versions: Vec<String>,
}
