//! A real cluster that runs pods.

use serde::{Deserialize, Serialize};

use super::placement::Effect;
use super::{Condition, Object, Quantities, Resource};

pub type PhysicalCluster = Object<PhysicalClusterSpec, PhysicalClusterStatus>;

impl PhysicalCluster {
    pub const RESOURCE: Resource =
        Resource { kind: "PhysicalCluster", plural: "physicalclusters", namespaced: false };
}

/// What it may be used for, and how it is reached.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PhysicalClusterSpec {
    /// Whether anything new may be sent there. What runs there stays.
    #[serde(default = "yes")]
    pub schedulable: bool,
    /// Whether everything is to leave.
    #[serde(default)]
    pub drain: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The most that may be requested there altogether. What is not named is not bounded.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub bounds: Quantities,
    /// The path of the only logical cluster it runs anything for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedicated_to: Option<String>,
    /// Which pods it takes. Without it, `baseline` if several logical clusters share it, else `privileged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security: Option<PodSecurity>,
    /// What classes that logical clusters name are called there.
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

/// A kind of cluster-scoped objects that others name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClassKind {
    PriorityClass,
    RuntimeClass,
    StorageClass,
    IngressClass,
}

/// A class that is called otherwise on a physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClassMapping {
    pub kind: ClassKind,
    /// As logical clusters call it.
    pub from: String,
    /// As the physical cluster calls it.
    pub to: String,
}

/// Keeps off what does not tolerate it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: Effect,
}

/// Who opens the connection: `{ "push": … }` or `{ "pull": {} }`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Connection {
    /// We do.
    Push(Push),
    /// A syncer in the cluster does.
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

/// What it reports.
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
    /// The uid of its namespace `kube-system`, which tells it from every other cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Of its Kubernetes.
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

/// The classes of one kind that are there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServedClasses {
    pub kind: ClassKind,
    #[serde(default)]
    pub names: Vec<String>,
    /// Whether there are more than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    pub total: i64,
    pub ready: i64,
}

/// A ResourceQuota there.
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

/// A kind that is served there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedKind {
    #[serde(default)]
    pub group: String,
    pub kind: String,
    /// The plural that is in its paths.
    pub resource: String,
    pub namespaced: bool,
    /// The preferred one first.
    pub versions: Vec<String>,
}
