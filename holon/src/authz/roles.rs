//! The roles of Holon's own controllers, one table each, and the bootstrap role of every logical cluster.

use std::sync::Arc;

use api::fleet::PhysicalCluster;
use api::names::GROUP;
use apiserver::clusters::bootstrap::BootstrapObject;
use apiserver::keys::Collection;
use apiserver::rbac::controller_role::ControllerRole;
use serde_json::json;

const FLEET: &str = include_str!("roles/fleet.txt");
const SPLITTER: &str = include_str!("roles/splitter.txt");
const TUNNEL: &str = include_str!("roles/tunnel.txt");

/// Returns the role of the fleet controller.
pub(crate) fn fleet() -> Arc<ControllerRole> {
    read(FLEET)
}

/// Returns the role of the splitter.
pub(crate) fn splitter() -> Arc<ControllerRole> {
    read(SPLITTER)
}

/// Returns the role of streams to pods.
pub(crate) fn tunnel() -> Arc<ControllerRole> {
    read(TUNNEL)
}

/// Returns the bootstrap objects of every logical cluster that let all its users use its physical clusters. Delete or
/// change the binding to restrict that.
pub(crate) fn bootstrap_objects() -> [BootstrapObject; 2] {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let object = |plural, value| BootstrapObject { collection: Collection { group: RBAC, plural }, value };
    let metadata = json!({
        "name": "holon:use-physical-clusters", "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
    });
    let rule =
        json!({ "verbs": ["use"], "apiGroups": [GROUP], "resources": [PhysicalCluster::RESOURCE.plural] });
    let role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": [rule],
    });
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": metadata["name"] },
        "subjects": [{ "apiGroup": RBAC, "kind": "Group", "name": "system:holon:logicalclusters" }],
    });
    [object("clusterroles", role), object("clusterrolebindings", binding)]
}

fn read(table: &str) -> Arc<ControllerRole> {
    Arc::new(ControllerRole::read(table).expect("a test reads all tables"))
}

#[cfg(test)]
mod tests;
