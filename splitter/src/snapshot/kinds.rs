//! Which kinds are followed, and why.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::names::{DIVIDE, LOGICAL_CLUSTER, TRUE};
use controller::informer::{Key, View};
use controller::kind::Kind;
use serde_json::Value;

use super::Shape;
use crate::division::{self, Rule};

/// What decides where an object goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It is decided about: it runs.
    Work,
    /// The same, of a kind some logical cluster defines, where a physical cluster knows it too.
    Custom,
    /// It goes where something is that names it.
    Needed,
    /// It goes where the pods are that it is about.
    About,
    /// It stays here; what is below is shown.
    Shown,
}

/// A kind, and all its objects.
#[derive(Debug)]
pub struct Followed {
    /// `deployments.apps`
    pub name: Arc<str>,
    pub kind: Kind,
    pub class: Class,
    /// Where it says how many there are to be, if it is a custom kind that can be scaled.
    pub replicas_at: Option<String>,
    /// Whether its status is written apart from the rest.
    pub has_status: bool,
    pub view: Arc<View>,
}

/// Built-in kinds that report nothing.
const SILENT: &[&str] = &["ConfigMap", "Secret", "ServiceAccount", "NetworkPolicy", "Event", "EndpointSlice"];

const BUILT_IN: &[(&str, &str, &str, &str, Class)] = &[
    ("apps", "v1", "deployments", "Deployment", Class::Work),
    ("apps", "v1", "replicasets", "ReplicaSet", Class::Work),
    ("apps", "v1", "statefulsets", "StatefulSet", Class::Work),
    ("apps", "v1", "daemonsets", "DaemonSet", Class::Work),
    ("batch", "v1", "jobs", "Job", Class::Work),
    ("batch", "v1", "cronjobs", "CronJob", Class::Work),
    ("", "v1", "replicationcontrollers", "ReplicationController", Class::Work),
    ("", "v1", "pods", "Pod", Class::Work),
    ("", "v1", "configmaps", "ConfigMap", Class::Needed),
    ("", "v1", "secrets", "Secret", Class::Needed),
    ("", "v1", "serviceaccounts", "ServiceAccount", Class::Needed),
    ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Class::Needed),
    ("", "v1", "services", "Service", Class::About),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", Class::About),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", Class::About),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Class::About),
    ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", Class::About),
    ("", "v1", "events", "Event", Class::Shown),
    ("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", Class::Shown),
];

pub(super) fn built_in() -> BTreeMap<Arc<str>, Arc<Followed>> {
    let row = |(group, version, plural, kind, class): &(&str, &str, &str, &str, Class)| {
        Followed::new(Kind::new(group, version, plural, kind, true), *class, None)
    };
    let nodes = Followed::new(Kind::new("", "v1", "nodes", "Node", false), Class::Shown, None);
    let named = |followed: Followed| (followed.name.clone(), Arc::new(followed));
    BUILT_IN.iter().map(row).chain([nodes]).map(named).collect()
}

impl Followed {
    fn new(kind: Kind, class: Class, replicas_at: Option<String>) -> Followed {
        let view = Arc::new(View::new(kind.clone()));
        let has_status = !SILENT.contains(&kind.name.as_str());
        Followed { name: kind.to_string().into(), kind, class, replicas_at, has_status, view }
    }

    /// An object as it is seen now, without what a list over all logical clusters adds to it.
    pub fn get(&self, key: &Key) -> Option<Value> {
        let mut object = self.view.get(key)?.read(&self.kind);
        let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        if let Some(annotations) = annotations {
            annotations.remove(LOGICAL_CLUSTER);
        }
        Some(object)
    }

    /// The same kind, seen anew.
    pub(crate) fn defined(shape: Shape) -> Followed {
        let Shape { kind, replicas_at, has_status } = shape;
        Followed { has_status, ..Followed::new(kind, Class::Custom, replicas_at) }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { kind: self.kind.clone(), replicas_at: self.replicas_at.clone(), has_status: self.has_status }
    }

    /// How an object of this kind is divided.
    pub(crate) fn rule(&self, object: &Value) -> Rule {
        let asked = object["metadata"]["annotations"][DIVIDE] == TRUE;
        division::rule(&self.kind.group, &self.kind.name, asked && self.replicas_at.is_some())
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind.group == group && self.kind.name == kind
    }
}
