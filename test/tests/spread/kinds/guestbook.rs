//! The guestbook: an app of ten kinds, unmodified.

use anyhow::Result;
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use crate::app::*;

/// Returns collections of the namespace `shop`, and an object for each.
fn guestbook() -> Vec<(&'static str, Value)> {
    let object_of = |kind: &str, version: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    let with = |mut object: Value, field: &str, value: Value| {
        object[field] = value;
        object
    };
    let mut frontend = deployment("frontend", 5);
    let pod = &mut frontend["spec"]["template"]["spec"];
    pod["serviceAccountName"] = json!("guest");
    pod["volumes"] = json!([
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "password", "secret": { "secretName": "password" } },
    ]);
    let database = json!({
        "replicas": 3, "serviceName": "database", "selector": { "matchLabels": { "app": "database" } },
        "template": template("database"),
    });
    let service = |app: &str| json!({ "selector": { "app": app }, "ports": [{ "port": 80 }] });
    let backend = json!({ "service": { "name": "frontend", "port": { "number": 80 } } });
    vec![
        (
            "/api/v1/namespaces/shop/configmaps",
            with(object_of("ConfigMap", "v1", "settings"), "data", json!({ "a": "1" })),
        ),
        (
            "/api/v1/namespaces/shop/configmaps",
            with(object_of("ConfigMap", "v1", "unused"), "data", json!({ "a": "1" })),
        ),
        (
            "/api/v1/namespaces/shop/secrets",
            with(object_of("Secret", "v1", "password"), "stringData", json!({ "p": "w" })),
        ),
        ("/api/v1/namespaces/shop/serviceaccounts", object_of("ServiceAccount", "v1", "guest")),
        ("/apis/apps/v1/namespaces/shop/deployments", frontend),
        (
            "/apis/apps/v1/namespaces/shop/statefulsets",
            with(object_of("StatefulSet", "apps/v1", "database"), "spec", database),
        ),
        (
            "/api/v1/namespaces/shop/services",
            with(object_of("Service", "v1", "frontend"), "spec", service("frontend")),
        ),
        (
            "/api/v1/namespaces/shop/services",
            with(object_of("Service", "v1", "database"), "spec", service("database")),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/ingresses",
            with(
                object_of("Ingress", "networking.k8s.io/v1", "frontend"),
                "spec",
                json!({ "defaultBackend": backend }),
            ),
        ),
        (
            "/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
            with(
                object_of("PodDisruptionBudget", "policy/v1", "frontend"),
                "spec",
                json!({ "minAvailable": "60%", "selector": { "matchLabels": { "app": "frontend" } } }),
            ),
        ),
    ]
}

fn path_of((collection, object): &(&str, Value)) -> String {
    format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default())
}

async fn guestbook_on_standins(names: &[&str]) -> Result<()> {
    check_guestbook_on(&Fleet::of(names).await?).await
}

pub(crate) async fn check_guestbook_on(fleet: &Fleet) -> Result<()> {
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    for row in guestbook() {
        fleet.root.apply(&path_of(&row), row.1.clone()).await?;
    }
    fleet.root.until_available(&format!("{DEPLOYMENTS}/frontend"), 5).await?;
    let sets = "/apis/apps/v1/namespaces/shop/statefulsets";
    fleet.root.until(&format!("{sets}/database"), |set| set["status"]["readyReplicas"] == 3).await?;
    // Workloads and their dependencies are on the clusters; objects that no workload names stay in the logical cluster.
    let mut ordinals = Vec::new();
    let mut minimum = 0;
    for (name, member) in fleet.members() {
        let frontends = member
            .downstream
            .get(&downstream_path(&format!("{DEPLOYMENTS}/frontend")))
            .await?
            .unwrap_or_default();
        let has_replicas = frontends["spec"]["replicas"].as_u64().unwrap_or_default() > 0;
        for row in guestbook() {
            let path = downstream_path(&path_of(&row));
            match row.1["metadata"]["name"] == "unused" {
                true => assert_eq!(member.downstream.get(&path).await?, None, "{name}"),
                false if has_replicas => drop(member.downstream.until_exists(&path).await?),
                false => {}
            }
        }
        let budget = member
            .downstream
            .until_exists(&downstream_path("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/frontend"))
            .await?;
        minimum += budget["spec"]["minAvailable"].as_u64().unwrap_or_default();
        let pods = member.downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
        let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        ordinals.extend(names.filter(|name| name.starts_with("database-")).map(str::to_owned));
    }
    ordinals.sort();
    assert_eq!(ordinals, ["database-0", "database-1", "database-2"], "each ordinal exists once");
    if fleet.members().count() > 1 {
        assert_eq!(minimum, 3, "60 % of five, over all targets");
    }
    fleet.root.delete(SHOP).await?;
    fleet.root.until_deleted(SHOP).await?;
    for (_, member) in fleet.members() {
        member.mailbox.until_deleted(&downstream_path(SHOP)).await?;
        member.downstream.until_deleted(&downstream_path(SHOP)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_one() -> Result<()> {
    guestbook_on_standins(&["a"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_two() -> Result<()> {
    guestbook_on_standins(&["a", "b"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_three() -> Result<()> {
    guestbook_on_standins(&["a", "b", "c"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_five() -> Result<()> {
    guestbook_on_standins(&["a", "b", "c", "d", "e"]).await
}
