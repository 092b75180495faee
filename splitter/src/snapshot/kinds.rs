//! The watched kinds, and how the placement of their objects is decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::{DIVIDE, TRUE};
use controller::informer::{Key, View};
use controller::kind::ResourceKind;
use serde_json::Value;

use super::CustomKind;
use crate::division::{self, DivisionRule};

/// How the placement of an object is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KindClass {
    /// It has a placement of its own.
    Workload,
    /// The same, for a custom kind that a physical cluster serves too.
    Custom,
    /// It goes to the targets of the objects that reference it.
    Dependency,
    /// It goes to the targets of the pods it selects.
    FollowsPods,
    /// It is not propagated, but projected from mailboxes.
    Projected,
}

/// A watched kind and its cache.
#[derive(Debug)]
pub struct WatchedKind {
    /// `deployments.apps`
    pub name: Arc<str>,
    pub kind: ResourceKind,
    pub class: KindClass,
    /// The pointer to its replicas, for a custom kind with a scale subresource.
    pub replicas_at: Option<String>,
    /// Whether it has a status subresource.
    pub has_status: bool,
    pub view: Arc<View>,
}

/// Built-in kinds without a status.
const WITHOUT_STATUS: &[&str] =
    &["ConfigMap", "Secret", "ServiceAccount", "NetworkPolicy", "Event", "EndpointSlice"];

const BUILT_IN: &[(&str, &str, &str, &str, KindClass)] = &[
    ("apps", "v1", "deployments", "Deployment", KindClass::Workload),
    ("apps", "v1", "replicasets", "ReplicaSet", KindClass::Workload),
    ("apps", "v1", "statefulsets", "StatefulSet", KindClass::Workload),
    ("apps", "v1", "daemonsets", "DaemonSet", KindClass::Workload),
    ("batch", "v1", "jobs", "Job", KindClass::Workload),
    ("batch", "v1", "cronjobs", "CronJob", KindClass::Workload),
    ("", "v1", "replicationcontrollers", "ReplicationController", KindClass::Workload),
    ("", "v1", "pods", "Pod", KindClass::Workload),
    ("", "v1", "configmaps", "ConfigMap", KindClass::Dependency),
    ("", "v1", "secrets", "Secret", KindClass::Dependency),
    ("", "v1", "serviceaccounts", "ServiceAccount", KindClass::Dependency),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", KindClass::Dependency),
    ("", "v1", "services", "Service", KindClass::FollowsPods),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", KindClass::FollowsPods),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", KindClass::FollowsPods),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", KindClass::FollowsPods),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", KindClass::FollowsPods),
    ("", "v1", "events", "Event", KindClass::Projected),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", KindClass::Projected),
];

pub(super) fn built_in() -> BTreeMap<Arc<str>, Arc<WatchedKind>> {
    let row = |(group, version, plural, kind, class): &(&str, &str, &str, &str, KindClass)| {
        WatchedKind::new(ResourceKind::new(group, version, plural, kind, true), *class, None)
    };
    let nodes =
        WatchedKind::new(ResourceKind::new("", "v1", "nodes", "Node", false), KindClass::Projected, None);
    let by_name = |watched: WatchedKind| (watched.name.clone(), Arc::new(watched));
    BUILT_IN.iter().map(row).chain([nodes]).map(by_name).collect()
}

impl WatchedKind {
    fn new(kind: ResourceKind, class: KindClass, replicas_at: Option<String>) -> WatchedKind {
        let view = Arc::new(View::new(kind.clone()));
        let has_status = !WITHOUT_STATUS.contains(&kind.name.as_str());
        WatchedKind { name: kind.to_string().into(), kind, class, replicas_at, has_status, view }
    }

    /// An object as the cache has it. Only Services have their managed fields: these tell which node ports the user chose.
    pub fn get(&self, key: &Key) -> Option<Value> {
        let object = self.view.get(key)?;
        let object = match self.is("", "Service") {
            true => object.read(&self.kind),
            false => object.read_without_managed_fields(&self.kind),
        };
        // One that cannot be decoded is as good as absent: without its fields every decision about it would be wrong.
        object["metadata"].is_object().then_some(object)
    }

    /// A custom kind with an empty cache.
    pub(crate) fn defined(shape: CustomKind) -> WatchedKind {
        let CustomKind { kind, replicas_at, has_status } = shape;
        WatchedKind { has_status, ..WatchedKind::new(kind, KindClass::Custom, replicas_at) }
    }

    pub(crate) fn shape(&self) -> CustomKind {
        CustomKind {
            kind: self.kind.clone(),
            replicas_at: self.replicas_at.clone(),
            has_status: self.has_status,
        }
    }

    /// How an object of this kind is divided.
    pub(crate) fn rule(&self, object: &Value) -> DivisionRule {
        let is_requested = object["metadata"]["annotations"][DIVIDE] == TRUE;
        division::rule(&self.kind.group, &self.kind.name, is_requested && self.replicas_at.is_some())
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind.group == group && self.kind.name == kind
    }
}
