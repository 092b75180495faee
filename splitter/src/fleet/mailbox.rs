//! What a mailbox has beside what is placed in it: who its syncer is, and what that may do there.
//!
//! The syncer is a service account of the mailbox. Its tokens lead to the mailbox and nowhere else, so whoever steals one
//! can harm one physical cluster.

use api::names::{GROUP, MAILBOX_OF, SYNCER_ACCOUNT, VERSION, mailbox};
use controller::kind::Kind;
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

/// What is in it: kind, namespace, object.
pub(super) fn bootstrap_objects() -> [(Kind, &'static str, Value); 3] {
    let account = json!({ "metadata": { "name": SYNCER_ACCOUNT, "namespace": NAMESPACE } });
    let binding = json!({
        "metadata": { "name": ROLE },
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": ROLE },
        "subjects": [{ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": SYNCER_ACCOUNT }],
    });
    [
        (Kind::new("", "v1", "serviceaccounts", "ServiceAccount", true), NAMESPACE, account),
        (Kind::new(RBAC, "v1", "clusterroles", "ClusterRole", false), "", role()),
        (Kind::new(RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", false), "", binding),
    ]
}

/// It reads what is placed, writes status and marks, and makes what it projects, its report, its lease and its next token.
fn role() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    let made = ["create", "delete"];
    let mut token = rule(&[""], &["serviceaccounts/token"], &["create"]);
    token["resourceNames"] = json!([SYNCER_ACCOUNT]);
    let mut bootstrap = rule(&[""], &["secrets"], &["delete"]);
    bootstrap["resourceNames"] = json!([SYNCER_ACCOUNT]);
    json!({
        "metadata": { "name": ROLE },
        "rules": [
            rule(&["*"], &["*"], &["get", "list", "watch", "update", "patch"]),
            rule(&["", "events.k8s.io"], &["events"], &made),
            rule(&[""], &["pods", "persistentvolumeclaims", "endpoints"], &made),
            rule(&[""], &["pods/binding"], &["create"]),
            rule(&["apps"], &["replicasets", "controllerrevisions"], &made),
            rule(&["batch"], &["jobs"], &made),
            rule(&["discovery.k8s.io"], &["endpointslices"], &made),
            rule(&["coordination.k8s.io"], &["leases"], &["create"]),
            rule(&[GROUP], &["physicalclusters"], &["create"]),
            token,
            bootstrap,
        ],
    })
}
