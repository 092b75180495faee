//! The table of kinds that a stand-in handles.

/// A kind of object that a stand-in watches or writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum ObjectKind {
    PodDisruptionBudgets,
    PersistentVolumeClaims,
    ControllerRevisions,
    CronJobs,
    DaemonSets,
    Deployments,
    Ingresses,
    Jobs,
    Nodes,
    Pods,
    ReplicaSets,
    ReplicationControllers,
    Services,
    EndpointSlices,
    StatefulSets,
    PersistentVolumes,
}

/// How the API server serves a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindInfo {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    /// The component that reports Events about it.
    pub(crate) event_source: &'static str,
    pub(crate) namespaced: bool,
}

const fn info(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    event_source: &'static str,
) -> KindInfo {
    KindInfo { group, version, plural, kind, event_source, namespaced: true }
}

const fn cluster_scoped(info: KindInfo) -> KindInfo {
    KindInfo { namespaced: false, ..info }
}

const KINDS: &[(ObjectKind, KindInfo)] = &[
    (
        ObjectKind::PodDisruptionBudgets,
        info("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "controllermanager"),
    ),
    (
        ObjectKind::PersistentVolumeClaims,
        info("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "persistentvolume-controller"),
    ),
    (ObjectKind::ControllerRevisions, info("apps", "v1", "controllerrevisions", "ControllerRevision", "")),
    (ObjectKind::CronJobs, info("batch", "v1", "cronjobs", "CronJob", "cronjob-controller")),
    (ObjectKind::DaemonSets, info("apps", "v1", "daemonsets", "DaemonSet", "daemonset-controller")),
    (ObjectKind::Deployments, info("apps", "v1", "deployments", "Deployment", "deployment-controller")),
    (ObjectKind::Ingresses, info("networking.k8s.io", "v1", "ingresses", "Ingress", "ingress-controller")),
    (ObjectKind::Jobs, info("batch", "v1", "jobs", "Job", "job-controller")),
    (ObjectKind::Nodes, cluster_scoped(info("", "v1", "nodes", "Node", "kubelet"))),
    (ObjectKind::Pods, info("", "v1", "pods", "Pod", "kubelet")),
    (ObjectKind::ReplicaSets, info("apps", "v1", "replicasets", "ReplicaSet", "replicaset-controller")),
    (
        ObjectKind::ReplicationControllers,
        info("", "v1", "replicationcontrollers", "ReplicationController", "replication-controller"),
    ),
    (ObjectKind::Services, info("", "v1", "services", "Service", "service-controller")),
    (
        ObjectKind::EndpointSlices,
        info("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "endpoint-slice-controller"),
    ),
    (ObjectKind::StatefulSets, info("apps", "v1", "statefulsets", "StatefulSet", "statefulset-controller")),
    (
        ObjectKind::PersistentVolumes,
        cluster_scoped(info("", "v1", "persistentvolumes", "PersistentVolume", "")),
    ),
];

impl ObjectKind {
    pub(crate) fn info(self) -> &'static KindInfo {
        let found = KINDS.iter().find(|(kind, _)| *kind == self);
        &found.expect("every kind is in the table, as a test checks").1
    }

    /// Returns the kind of a collection, if a stand-in handles it.
    pub(crate) fn find(group: &str, plural: &str) -> Option<ObjectKind> {
        KINDS.iter().find(|(_, info)| info.group == group && info.plural == plural).map(|(kind, _)| *kind)
    }

    pub(crate) fn all() -> impl Iterator<Item = ObjectKind> {
        KINDS.iter().map(|(kind, _)| *kind)
    }
}

impl KindInfo {
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the path of a collection.
    pub(crate) fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        match self.namespaced {
            true => format!("{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural),
            false => format!("{root}/{}/{}", self.api_version(), self.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_both_ways() {
        for kind in ObjectKind::all() {
            assert_eq!(ObjectKind::find(kind.info().group, kind.info().plural), Some(kind));
        }
        assert_eq!(ObjectKind::Deployments.info().path("shop"), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(ObjectKind::Nodes.info().path(""), "/api/v1/nodes");
    }
}
