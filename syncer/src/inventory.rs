//! The inventory of a physical cluster: capacity, requests, quotas and classes.

pub(crate) mod amounts;

use api::fleet::{ClassKind, Nodes, Quota, ServedClasses, ServedKind};
use api::meta::quantity::Quantities;
use controller::remote::{CallError, Remote};
use serde_json::Value;

use crate::inventory::amounts::{Amounts, requested};

/// Objects per page. Only one page is in memory.
const PAGE: usize = 500;
/// The report is one object, so the size limit of an object applies.
const QUOTAS_MAX: usize = 500;
const CLASSES_MAX: usize = 500;

/// The paths of the class kinds.
const CLASSES: &[(ClassKind, &str)] = &[
    (ClassKind::PriorityClass, "/apis/scheduling.k8s.io/v1/priorityclasses"),
    (ClassKind::RuntimeClass, "/apis/node.k8s.io/v1/runtimeclasses"),
    (ClassKind::StorageClass, "/apis/storage.k8s.io/v1/storageclasses"),
    (ClassKind::IngressClass, "/apis/networking.k8s.io/v1/ingressclasses"),
];

/// The capacity of a physical cluster, and what its pods request of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ClusterInventory {
    pub(crate) version: String,
    /// `None` if the syncer may not list nodes.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) capacity: Amounts,
    pub(crate) allocatable: Amounts,
    pub(crate) requested: Amounts,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) kinds: Vec<ServedKind>,
    /// The classes of the kinds that the syncer may list.
    pub(crate) classes: Vec<ServedClasses>,
    /// The messages of the server about forbidden lists.
    pub(crate) forbidden: Vec<String>,
}

impl ClusterInventory {
    /// Returns the uid of the cluster: that of its namespace kube-system.
    pub(crate) async fn cluster_uid(downstream: &Remote) -> Result<String, CallError> {
        let namespace = downstream.read("/api/v1/namespaces/kube-system").await?;
        let uid = namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
        uid.map(str::to_owned)
            .ok_or_else(|| CallError::Garbled("the namespace kube-system has no uid".to_owned()))
    }

    pub(crate) async fn count(downstream: &Remote) -> Result<ClusterInventory, CallError> {
        let mut inventory = ClusterInventory::default();
        let version = downstream.read("/version").await?;
        inventory.version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
        let mut nodes = Nodes { total: 0, ready: 0 };
        let counted =
            each(downstream, "/api/v1/nodes", "", |node| inventory.add_node(node, &mut nodes)).await;
        inventory.nodes = inventory.allowed(counted)?.then_some(nodes);
        // Pods that have completed or have no node use no resources.
        let running = "&fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed,spec.nodeName!%3D";
        let counted =
            each(downstream, "/api/v1/pods", running, |pod| inventory.requested.add(&requested(pod))).await;
        inventory.allowed(counted)?;
        let counted =
            each(downstream, "/api/v1/resourcequotas", "", |quota| inventory.add_quota(quota)).await;
        inventory.allowed(counted)?;
        for (kind, path) in CLASSES {
            inventory.add_classes(downstream, *kind, path).await?;
        }
        Ok(inventory)
    }

    /// Reads the names of the classes of one kind. Forbidden and unserved kinds are skipped.
    async fn add_classes(
        &mut self,
        downstream: &Remote,
        kind: ClassKind,
        path: &str,
    ) -> Result<(), CallError> {
        let mut names = Vec::new();
        let name = |class: &Value| class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match each(downstream, path, "", |class| names.push(name(class))).await {
            Err(error) if matches!(error.code(), 403 | 404) => return Ok(()),
            read => read?,
        }
        names.sort();
        let truncated = names.len() > CLASSES_MAX;
        names.truncate(CLASSES_MAX);
        self.classes.push(ServedClasses { kind, names, truncated });
        Ok(())
    }

    /// Returns whether the list was allowed. After a forbidden list the rest is still counted.
    fn allowed(&mut self, counted: Result<(), CallError>) -> Result<bool, CallError> {
        match counted {
            Err(error) if error.code() == 403 => {
                self.forbidden.push(error.to_string());
                Ok(false)
            }
            counted => counted.map(|()| true),
        }
    }

    fn add_node(&mut self, node: &Value, nodes: &mut Nodes) {
        let is_ready = api::meta::conditions::is_true(node, "Ready");
        nodes.total += 1;
        nodes.ready += i64::from(is_ready);
        self.capacity.add(&Amounts::of(&node["status"]["capacity"]));
        // A node that is not ready or is unschedulable accepts no pods.
        if is_ready && node["spec"]["unschedulable"] != true {
            self.allocatable.add(&Amounts::of(&node["status"]["allocatable"]));
        }
    }

    fn add_quota(&mut self, quota: &Value) {
        let text = |field: &str| quota["metadata"][field].as_str().unwrap_or_default().to_owned();
        let amounts =
            |value: &Value| -> Quantities { serde_json::from_value(value.clone()).unwrap_or_default() };
        if self.quotas.len() < QUOTAS_MAX {
            self.quotas.push(Quota {
                namespace: text("namespace"),
                name: text("name"),
                hard: amounts(&quota["status"]["hard"]),
                used: amounts(&quota["status"]["used"]),
            });
        }
    }
}

/// Lists all objects, page by page.
async fn each(
    downstream: &Remote,
    path: &str,
    query: &str,
    mut each: impl FnMut(&Value),
) -> Result<(), CallError> {
    let mut next = String::new();
    loop {
        let page = downstream.read(&format!("{path}?limit={PAGE}{query}{next}")).await?;
        page["items"].as_array().into_iter().flatten().for_each(&mut each);
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            // Continue tokens are URL-safe base64; other characters are escaped.
            Some(token) => {
                next =
                    format!("&continue={}", token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D"))
            }
            None => return Ok(()),
        }
    }
}
