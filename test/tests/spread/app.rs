//! The objects that users apply in these tests, and their shares.

use anyhow::Result;
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const SHOP: &str = "/api/v1/namespaces/shop";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
pub(crate) const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";
pub(crate) const WEB_RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/deployment-web";

/// Returns a path in the namespace `shop` with the name that it has on physical clusters.
pub(crate) fn downstream_path(path: &str) -> String {
    path.replace("/namespaces/shop", &format!("/namespaces/{}", Fleet::downstream_namespace("shop")))
}

pub(crate) fn namespace(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })
}

/// Returns a namespace with a placement annotation.
pub(crate) fn placed_namespace(name: &str, placement: &str) -> Value {
    let mut namespace = namespace(name);
    namespace["metadata"]["annotations"]["holon.dev/placement"] = placement.into();
    namespace
}

pub(crate) fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
    })
}

pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "shop" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template(name),
        },
    })
}

/// Returns the replicas that the Deployment `web` requests in the mailbox of a physical cluster; `None` if the mailbox
/// has no such object.
pub(crate) async fn requested_replicas(fleet: &Fleet, member: &str) -> Result<Option<u64>> {
    let object = fleet.member(member).mailbox.get(&downstream_path(WEB)).await?;
    Ok(object.map(|object| object["spec"]["replicas"].as_u64().unwrap_or_default()))
}

/// Returns the same for all physical clusters, in the order of their names.
pub(crate) async fn shares(fleet: &Fleet) -> Result<Vec<Option<u64>>> {
    let mut shares = Vec::new();
    for (name, _) in fleet.members() {
        shares.push(requested_replicas(fleet, name).await?);
    }
    Ok(shares)
}

/// Returns the targets of a Distribution as text, in the order of their names.
pub(crate) fn targets(record: &Value) -> Vec<String> {
    let targets = record["spec"]["targets"].as_array().into_iter().flatten();
    let describe = |target: &Value| {
        let text = |field: &str| target[field].as_str().unwrap_or_default().to_owned();
        format!("{} {} {}", text("cluster"), text("role"), target["share"])
    };
    let mut descriptions: Vec<String> = targets.map(describe).collect();
    descriptions.sort();
    descriptions
}
