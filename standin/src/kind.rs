//! The kinds a stand-in looks after: a row each.

/// A kind of object that a stand-in watches or writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Kind {
    Budgets,
    Claims,
    Revisions,
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
    Slices,
    StatefulSets,
    Volumes,
}

/// Where the API serves a kind, and what it is called there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    /// Who looks after it, as Events say.
    pub(crate) writer: &'static str,
    pub(crate) namespaced: bool,
}

const fn row(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    writer: &'static str,
) -> Row {
    Row { group, version, plural, kind, writer, namespaced: true }
}

const fn without_namespace(row: Row) -> Row {
    Row { namespaced: false, ..row }
}

const ROWS: &[(Kind, Row)] = &[
    (Kind::Budgets, row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", "controllermanager")),
    (
        Kind::Claims,
        row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", "persistentvolume-controller"),
    ),
    (Kind::Revisions, row("apps", "v1", "controllerrevisions", "ControllerRevision", "")),
    (Kind::CronJobs, row("batch", "v1", "cronjobs", "CronJob", "cronjob-controller")),
    (Kind::DaemonSets, row("apps", "v1", "daemonsets", "DaemonSet", "daemonset-controller")),
    (Kind::Deployments, row("apps", "v1", "deployments", "Deployment", "deployment-controller")),
    (Kind::Ingresses, row("networking.k8s.io", "v1", "ingresses", "Ingress", "ingress-controller")),
    (Kind::Jobs, row("batch", "v1", "jobs", "Job", "job-controller")),
    (Kind::Nodes, without_namespace(row("", "v1", "nodes", "Node", "kubelet"))),
    (Kind::Pods, row("", "v1", "pods", "Pod", "kubelet")),
    (Kind::ReplicaSets, row("apps", "v1", "replicasets", "ReplicaSet", "replicaset-controller")),
    (
        Kind::ReplicationControllers,
        row("", "v1", "replicationcontrollers", "ReplicationController", "replication-controller"),
    ),
    (Kind::Services, row("", "v1", "services", "Service", "service-controller")),
    (
        Kind::Slices,
        row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", "endpoint-slice-controller"),
    ),
    (Kind::StatefulSets, row("apps", "v1", "statefulsets", "StatefulSet", "statefulset-controller")),
    (Kind::Volumes, without_namespace(row("", "v1", "persistentvolumes", "PersistentVolume", ""))),
];

impl Kind {
    pub(crate) fn row(self) -> &'static Row {
        let found = ROWS.iter().find(|(kind, _)| *kind == self);
        &found.expect("every kind has a row; a test looks").1
    }

    /// The kind of a collection, if a stand-in looks after it.
    pub(crate) fn of(group: &str, plural: &str) -> Option<Kind> {
        ROWS.iter().find(|(_, row)| row.group == group && row.plural == plural).map(|(kind, _)| *kind)
    }

    pub(crate) fn all() -> impl Iterator<Item = Kind> {
        ROWS.iter().map(|(kind, _)| *kind)
    }
}

impl Row {
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of a collection.
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
        for kind in Kind::all() {
            assert_eq!(Kind::of(kind.row().group, kind.row().plural), Some(kind));
        }
        assert_eq!(Kind::Deployments.row().path("shop"), "/apis/apps/v1/namespaces/shop/deployments");
        assert_eq!(Kind::Nodes.row().path(""), "/api/v1/nodes");
    }
}
