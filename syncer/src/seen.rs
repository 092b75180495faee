//! What a physical cluster has, counted.

use api::fleet::{ClassKind, Nodes, Quantities, Quota, ServedClasses, ServedKind};
use api::meta::conditions;
use controller::remote::{CallError, Remote};
use serde_json::Value;

use crate::amounts::{Amounts, requested};

/// Read at a time. A page is forgotten before the next one comes.
const PAGE: usize = 500;
/// A report is an object of the mailbox, and has an object's size.
const QUOTAS_MAX: usize = 500;
const CLASSES_MAX: usize = 500;

/// Where classes are.
const CLASSES: &[(ClassKind, &str)] = &[
    (ClassKind::PriorityClass, "/apis/scheduling.k8s.io/v1/priorityclasses"),
    (ClassKind::RuntimeClass, "/apis/node.k8s.io/v1/runtimeclasses"),
    (ClassKind::StorageClass, "/apis/storage.k8s.io/v1/storageclasses"),
    (ClassKind::IngressClass, "/apis/networking.k8s.io/v1/ingressclasses"),
];

/// What there is, and what is spoken for.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) version: String,
    /// None where we may not look at them.
    pub(crate) nodes: Option<Nodes>,
    pub(crate) capacity: Amounts,
    pub(crate) allocatable: Amounts,
    pub(crate) requested: Amounts,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) kinds: Vec<ServedKind>,
    /// Of the kinds we may look at.
    pub(crate) classes: Vec<ServedClasses>,
    /// What we may not look at, in the server's words.
    pub(crate) refused: Vec<String>,
}

impl Seen {
    /// The uid that tells this cluster from every other.
    pub(crate) async fn whose(below: &Remote) -> Result<String, CallError> {
        let namespace = below.read("/api/v1/namespaces/kube-system").await?;
        let uid = namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty());
        uid.map(str::to_owned).ok_or_else(|| CallError::Garbled("a namespace without a uid".to_owned()))
    }

    pub(crate) async fn count(below: &Remote) -> Result<Seen, CallError> {
        let mut seen = Seen::default();
        let version = below.read("/version").await?;
        seen.version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
        let mut nodes = Nodes { total: 0, ready: 0 };
        let counted = each(below, "/api/v1/nodes", "", |node| seen.add_node(node, &mut nodes)).await;
        seen.nodes = seen.allowed(counted)?.then_some(nodes);
        // What has ended asks for nothing; what runs nowhere takes nothing yet.
        let running = "&fieldSelector=status.phase!%3DSucceeded,status.phase!%3DFailed,spec.nodeName!%3D";
        let counted = each(below, "/api/v1/pods", running, |pod| seen.requested.add(&requested(pod))).await;
        seen.allowed(counted)?;
        let counted = each(below, "/api/v1/resourcequotas", "", |quota| seen.add_quota(quota)).await;
        seen.allowed(counted)?;
        for (kind, path) in CLASSES {
            seen.add_classes(below, *kind, path).await?;
        }
        Ok(seen)
    }

    /// Reads the names of the classes of one kind. Which there are is not known where we may not look, or where a server does
    /// not serve the kind.
    async fn add_classes(&mut self, below: &Remote, kind: ClassKind, path: &str) -> Result<(), CallError> {
        let mut names = Vec::new();
        let name = |class: &Value| class["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match each(below, path, "", |class| names.push(name(class))).await {
            Err(error) if matches!(error.code(), 403 | 404) => return Ok(()),
            read => read?,
        }
        names.sort();
        let truncated = names.len() > CLASSES_MAX;
        names.truncate(CLASSES_MAX);
        self.classes.push(ServedClasses { kind, names, truncated });
        Ok(())
    }

    /// Whether that was counted. Not being allowed to is no failure: the rest is counted.
    fn allowed(&mut self, counted: Result<(), CallError>) -> Result<bool, CallError> {
        match counted {
            Err(error) if error.code() == 403 => {
                self.refused.push(error.to_string());
                Ok(false)
            }
            counted => counted.map(|()| true),
        }
    }

    fn add_node(&mut self, node: &Value, nodes: &mut Nodes) {
        let is_ready = conditions::is_true(node, "Ready");
        nodes.total += 1;
        nodes.ready += i64::from(is_ready);
        self.capacity.add(&Amounts::of(&node["status"]["capacity"]));
        // Nothing can be sent to a node that takes nothing.
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

/// Reads all objects, a page at a time.
async fn each(
    below: &Remote,
    path: &str,
    query: &str,
    mut each: impl FnMut(&Value),
) -> Result<(), CallError> {
    let mut next = String::new();
    loop {
        let page = below.read(&format!("{path}?limit={PAGE}{query}{next}")).await?;
        page["items"].as_array().into_iter().flatten().for_each(&mut each);
        match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
            // Tokens are base64 for addresses; what else a server may put there is escaped.
            Some(token) => {
                next =
                    format!("&continue={}", token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D"))
            }
            None => return Ok(()),
        }
    }
}
