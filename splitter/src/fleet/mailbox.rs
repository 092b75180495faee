//! The objects every mailbox has: the service account of its syncer, and the role of that account.
//!
//! The tokens of the account are valid in the mailbox and nowhere else, so a stolen one can harm one physical cluster.

use api::names::{GROUP, MAILBOX_OF, SYNCER_ACCOUNT, VERSION, mailbox};
use controller::kind::ResourceKind;
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const ROLE: &str = "holon:syncer";
const RBAC: &str = "rbac.authorization.k8s.io";

/// The logical cluster that is the mailbox of a physical cluster.
pub(super) fn logical_cluster(physical_cluster: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "LogicalCluster",
        "metadata": { "name": mailbox(physical_cluster), "labels": { MAILBOX_OF: physical_cluster } },
    })
}

/// The objects every mailbox has: kind, namespace, object.
pub(super) fn bootstrap_objects() -> [(ResourceKind, &'static str, Value); 3] {
    let account = json!({ "metadata": { "name": SYNCER_ACCOUNT, "namespace": NAMESPACE } });
    let binding = json!({
        "metadata": { "name": ROLE },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE },
        "subjects": [{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": SYNCER_ACCOUNT }],
    });
    [
        (ResourceKind::new("", "v1", "serviceaccounts", "ServiceAccount", true), NAMESPACE, account),
        (ResourceKind::new(RBAC, "v1", "clusterroles", "ClusterRole", false), "", role()),
        (ResourceKind::new(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", false), "", binding),
    ]
}

/// The role of a syncer: it reads placed objects, writes status and finalizers, and creates projections, its report, its
/// lease and its next token.
fn role() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    let verbs = ["create", "delete"];
    let mut token = rule(&[""], &["serviceaccounts/token"], &["create"]);
    token["resourceNames"] = json!([SYNCER_ACCOUNT]);
    let mut bootstrap = rule(&[""], &["secrets"], &["delete"]);
    bootstrap["resourceNames"] = json!([SYNCER_ACCOUNT]);
    json!({
        "metadata": { "name": ROLE },
        "rules": [
            rule(&["*"], &["*"], &["get", "list", "watch", "update", "patch"]),
            rule(&["", "events.k8s.io"], &["events"], &verbs),
            rule(&[""], &["pods", "persistentvolumeclaims", "endpoints"], &verbs),
            rule(&[""], &["pods/binding"], &["create"]),
            rule(&["apps"], &["replicasets", "controllerrevisions"], &verbs),
            rule(&["batch"], &["jobs"], &verbs),
            rule(&["discovery.k8s.io"], &["endpointslices"], &verbs),
            rule(&["coordination.k8s.io"], &["leases"], &["create"]),
            rule(&[GROUP], &["physicalclusters"], &["create"]),
            token,
            bootstrap,
        ],
    })
}
