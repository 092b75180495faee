//! PersistentVolumeClaims: the data is on one cluster, and is deleted only when a user deletes the claim.

use anyhow::Result;
use scenarios::client::condition;
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use serde_json::{Value, json};
use standin::Options;

use crate::app::*;

const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const DATA: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";

async fn fleet_with_claim(names: &[&str], mode: &str) -> Result<Fleet> {
    let fleet = Fleet::of(names).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.create(CLAIMS, claim).await?;
    Ok(fleet)
}

fn deployment_with_claim(name: &str) -> Value {
    let mut web = deployment(name, 2);
    web["spec"]["template"]["spec"]["volumes"] = json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "settings", "configMap": { "name": "settings", "optional": true } },
    ]);
    web
}

fn cluster_of(record: &Value) -> String {
    record["spec"]["targets"][0]["cluster"].as_str().unwrap_or_default().to_owned()
}

/// A claim was a dependency like others, only where a workload needed it. So when the last Deployment that mounted it
/// was deleted, to be applied again a minute later, its data was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_outlives_its_workload() -> Result<()> {
    let fleet = fleet_with_claim(&["a", "b"], "ReadWriteOnce").await?;
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    fleet.root.create(&format!("{SHOP}/configmaps"), settings).await?;
    fleet.root.create(DEPLOYMENTS, deployment_with_claim("web")).await?;
    fleet.root.until_available(WEB, 2).await?;
    let cluster = cluster_of(&fleet.root.until_exists(WEB_RECORD).await?);
    let downstream = &fleet.member(&cluster).downstream;
    let before = downstream.until_exists(&downstream_path(DATA)).await?;
    fleet.root.until(DATA, |claim| claim["status"]["phase"] == "Bound").await?;
    downstream.until_exists(&downstream_path(SETTINGS)).await?;
    fleet.root.delete(WEB).await?;
    downstream.until_deleted(&downstream_path(WEB)).await?;
    // A dependency without data is deleted with the workload.
    downstream.until_deleted(&downstream_path(SETTINGS)).await?;
    let claim = fleet.root.until_exists(DATA).await?;
    assert_eq!(claim["status"]["phase"], "Bound");
    fleet.root.create(DEPLOYMENTS, deployment_with_claim("web")).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(
        cluster_of(&fleet.root.until_exists(WEB_RECORD).await?),
        cluster,
        "the workload runs on the cluster that has its data"
    );
    let after = downstream.until_exists(&downstream_path(DATA)).await?;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["deletionTimestamp"], Value::Null);
    // A claim that its user deletes is deleted.
    fleet.root.delete(WEB).await?;
    fleet.root.delete(DATA).await?;
    downstream.until_deleted(&downstream_path(DATA)).await?;
    downstream.until_deleted(&downstream_path(SHOP)).await
}

/// Each of several workloads that mounted one claim was placed separately, and the pods of those that were not on the
/// claim's cluster stayed Pending.
#[tokio::test(flavor = "multi_thread")]
async fn all_workloads_that_mount_a_claim_run_on_its_cluster() -> Result<()> {
    let fleet = fleet_with_claim(&["a", "b", "c"], "ReadWriteMany").await?;
    let names: Vec<String> = (0..8).map(|number| format!("web-{number}")).collect();
    for name in &names {
        fleet.root.create(DEPLOYMENTS, deployment_with_claim(name)).await?;
    }
    let mut clusters = Vec::new();
    for name in &names {
        fleet.root.until_available(&format!("{DEPLOYMENTS}/{name}"), 2).await?;
        clusters.push(cluster_of(&fleet.root.until_exists(&WEB_RECORD.replace("web", name)).await?));
    }
    assert!(clusters.iter().all(|cluster| *cluster == clusters[0]), "{clusters:?}");
    fleet.member(&clusters[0]).downstream.until_exists(&downstream_path(DATA)).await?;
    // On another cluster they would stay Pending, so they are held, and the Distribution says why.
    let other_cluster = if clusters[0] == "a" { "b" } else { "a" };
    fleet.root.place(SHOP, other_cluster).await?;
    let record = WEB_RECORD.replace("web", &names[0]);
    let is_held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(&record, is_held).await?;
    let message = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.contains(&format!("the data of PersistentVolumeClaim data is on {}", clusters[0])),
        "{message}"
    );
    assert_eq!(targets(&record), [format!("{} Steady 2", clusters[0])]);
    Ok(())
}

/// No workload runs on a physical cluster any more, but it has data that a user kept, so it must not leave.
#[tokio::test(flavor = "multi_thread")]
async fn a_physical_cluster_with_data_is_not_removed() -> Result<()> {
    let fleet = fleet_with_claim(&["a"], "ReadWriteOnce").await?;
    fleet.root.create(DEPLOYMENTS, deployment_with_claim("web")).await?;
    fleet.root.until(DATA, |claim| claim["status"]["phase"] == "Bound").await?;
    fleet.root.delete(WEB).await?;
    fleet.root.until_deleted(WEB_RECORD).await?;
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.delete(&path).await?;
    let is_waiting = |found: &Value| condition(found, "Leaving")["reason"] == "Moving";
    let leaving = fleet.root.until(&path, is_waiting).await?;
    let message = condition(&leaving, "Leaving")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("claims keep their data until they are deleted"), "{message}");
    assert!(fleet.member("a").downstream.get(&downstream_path(DATA)).await?.is_some());
    fleet.root.delete(DATA).await?;
    fleet.root.until(&path, |found| !is_waiting(found)).await.map(drop)
}

/// The claims of a StatefulSet outlive it. They did not keep their physical cluster from leaving, and `holon leave`
/// deleted them with their data.
#[tokio::test(flavor = "multi_thread")]
async fn a_physical_cluster_with_the_data_of_a_stateful_set_is_not_removed() -> Result<()> {
    const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    let template = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db", "namespace": "shop" },
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": crate::app::template("db"), "volumeClaimTemplates": [template],
        },
    });
    fleet.root.create(SETS, set).await?;
    let (claim, record) =
        (format!("{CLAIMS}/data-db-0"), WEB_RECORD.replace("deployment-web", "statefulset-db"));
    fleet.root.until(&claim, |claim| claim["status"]["phase"] == "Bound").await?;
    fleet.root.delete(&format!("{SETS}/db")).await?;
    fleet.root.until_deleted(&record).await?;
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.delete(&path).await?;
    let is_waiting = |found: &Value| condition(found, "Leaving")["reason"] == "Moving";
    fleet.root.until(&path, is_waiting).await?;
    // A cluster that may leave is emptied within two seconds.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let leaving = fleet.root.get(&path).await?.unwrap_or_default();
    assert!(is_waiting(&leaving), "{leaving:#}");
    assert!(fleet.member("a").downstream.get(&downstream_path(&claim)).await?.is_some());
    fleet.root.delete(&claim).await?;
    fleet.root.until(&path, |found| !is_waiting(found)).await.map(drop)
}

/// The data of a claim is on one cluster. Without a placed pod it is Pending and must not be reported as bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_on_the_cluster_of_its_pod() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claims = format!("{SHOP}/persistentvolumeclaims");
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.create(&claims, claim).await?;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    fleet.root.create(DEPLOYMENTS, web).await?;
    let data = format!("{claims}/data");
    fleet.root.until(&data, |claim| claim["status"]["phase"] == "Pending").await?;
    for name in ["a", "b"] {
        fleet.join(Options::new(name), &[]).await?;
    }
    fleet.root.until_available(WEB, 1).await?;
    let bound = fleet.root.until(&data, |claim| claim["status"]["phase"] == "Bound").await?;
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let mut clusters = 0;
    for (_, member) in fleet.members() {
        clusters += usize::from(member.downstream.get(&downstream_path(&data)).await?.is_some());
    }
    assert_eq!(clusters, 1);
    Ok(())
}

/// A claim is on one cluster. Replicas of a Deployment that mounts it were divided anyway, and those on other clusters
/// waited forever for a volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_mounts_a_claim_runs_undivided_on_its_cluster() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.create(CLAIMS, claim).await?;
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    let record = fleet.root.until_exists(WEB_RECORD).await?;
    let chosen = record["spec"]["targets"][0]["cluster"].as_str().unwrap_or_default().to_owned();
    assert_eq!(targets(&record), [format!("{chosen} Steady 4")]);
    for (name, member) in fleet.members() {
        let is_chosen = name == chosen;
        assert_eq!(member.downstream.get(&downstream_path(WEB)).await?.is_some(), is_chosen, "{name}");
        if is_chosen {
            member.downstream.until_exists(&downstream_path(&format!("{CLAIMS}/data"))).await?;
        } else {
            assert_eq!(
                member.downstream.get(&downstream_path(&format!("{CLAIMS}/data"))).await?,
                None,
                "{name}"
            );
        }
    }
    // Before the claim was bound, the other clusters were suitable; the verdicts say that they no longer are.
    let two_are_excluded = |record: &Value| {
        let rows = record["status"]["verdicts"].as_array().into_iter().flatten();
        rows.filter(|row| row["rule"] == "DataElsewhere").count() == 2
    };
    fleet.root.until(WEB_RECORD, two_are_excluded).await.map(drop)
}
