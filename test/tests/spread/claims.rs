//! Claims hold data: the data is in one place, and is deleted only when a user deletes the claim.

use anyhow::Result;
use scenarios::client::condition;
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use serde_json::{Value, json};

use crate::app::*;

const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const DATA: &str = "/api/v1/namespaces/shop/persistentvolumeclaims/data";
const SETTINGS: &str = "/api/v1/namespaces/shop/configmaps/settings";

async fn with_claim(names: &[&str], mode: &str) -> Result<Fleet> {
    let fleet = Fleet::of(names).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.make(CLAIMS, claim).await?;
    Ok(fleet)
}

fn mounting(name: &str) -> Value {
    let mut web = deployment(name, 2);
    web["spec"]["template"]["spec"]["volumes"] = json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": "data" } },
        { "name": "settings", "configMap": { "name": "settings", "optional": true } },
    ]);
    web
}

fn place_of(record: &Value) -> String {
    record["spec"]["targets"][0]["cluster"].as_str().unwrap_or_default().to_owned()
}

/// A claim was a dependency like others, only where a workload needed it. So when the last Deployment that mounted it
/// was deleted, to be applied again a minute later, its data was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_outlives_its_workload() -> Result<()> {
    let fleet = with_claim(&["a", "b"], "ReadWriteOnce").await?;
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
    fleet.root.make(&format!("{SHOP}/configmaps"), settings).await?;
    fleet.root.make(DEPLOYMENTS, mounting("web")).await?;
    fleet.root.until_available(WEB, 2).await?;
    let at = place_of(&fleet.root.until_there(WEB_RECORD).await?);
    let below = &fleet.member(&at).below;
    let before = below.until_there(&there(DATA)).await?;
    fleet.root.until(DATA, |claim| claim["status"]["phase"] == "Bound").await?;
    below.until_there(&there(SETTINGS)).await?;
    fleet.root.delete(WEB).await?;
    below.until_gone(&there(WEB)).await?;
    // A dependency without data is deleted with the workload.
    below.until_gone(&there(SETTINGS)).await?;
    let claim = fleet.root.until_there(DATA).await?;
    assert_eq!(claim["status"]["phase"], "Bound");
    fleet.root.make(DEPLOYMENTS, mounting("web")).await?;
    fleet.root.until_available(WEB, 2).await?;
    assert_eq!(place_of(&fleet.root.until_there(WEB_RECORD).await?), at, "it runs where its data is");
    let after = below.until_there(&there(DATA)).await?;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["metadata"]["deletionTimestamp"], Value::Null);
    // A claim that its user deletes is deleted.
    fleet.root.delete(WEB).await?;
    fleet.root.delete(DATA).await?;
    below.until_gone(&there(DATA)).await?;
    below.until_gone(&there(SHOP)).await
}

/// Each of several workloads that mounted one claim was placed separately, and the pods of those that were not on the
/// claim's cluster stayed Pending.
#[tokio::test(flavor = "multi_thread")]
async fn all_workloads_that_mount_a_claim_run_where_it_is() -> Result<()> {
    let fleet = with_claim(&["a", "b", "c"], "ReadWriteMany").await?;
    let names: Vec<String> = (0..8).map(|number| format!("web-{number}")).collect();
    for name in &names {
        fleet.root.make(DEPLOYMENTS, mounting(name)).await?;
    }
    let mut places = Vec::new();
    for name in &names {
        fleet.root.until_available(&format!("{DEPLOYMENTS}/{name}"), 2).await?;
        places.push(place_of(&fleet.root.until_there(&WEB_RECORD.replace("web", name)).await?));
    }
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    fleet.member(&places[0]).below.until_there(&there(DATA)).await?;
    // On another cluster they would stay Pending, so they are held, and the Distribution says why.
    let elsewhere = if places[0] == "a" { "b" } else { "a" };
    fleet.root.place(SHOP, elsewhere).await?;
    let record = WEB_RECORD.replace("web", &names[0]);
    let held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(&record, held).await?;
    let why = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains(&format!("the data of PersistentVolumeClaim data is on {}", places[0])), "{why}");
    assert_eq!(targets(&record), [format!("{} Steady 2", places[0])]);
    Ok(())
}

/// No workload runs on a physical cluster any more, but it has data that a user kept, so it must not leave.
#[tokio::test(flavor = "multi_thread")]
async fn a_physical_cluster_with_data_does_not_leave() -> Result<()> {
    let fleet = with_claim(&["a"], "ReadWriteOnce").await?;
    fleet.root.make(DEPLOYMENTS, mounting("web")).await?;
    fleet.root.until(DATA, |claim| claim["status"]["phase"] == "Bound").await?;
    fleet.root.delete(WEB).await?;
    fleet.root.until_gone(WEB_RECORD).await?;
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.delete(&path).await?;
    let waits = |found: &Value| condition(found, "Leaving")["reason"] == "Moving";
    let leaving = fleet.root.until(&path, waits).await?;
    let told = condition(&leaving, "Leaving")["message"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains("claims keep their data until they are deleted"), "{told}");
    assert!(fleet.member("a").below.get(&there(DATA)).await?.is_some());
    fleet.root.delete(DATA).await?;
    fleet.root.until(&path, |found| !waits(found)).await.map(drop)
}

/// The claims of a StatefulSet outlive it. They did not keep their physical cluster from leaving, and `holon leave`
/// deleted them with their data.
#[tokio::test(flavor = "multi_thread")]
async fn a_physical_cluster_with_the_data_of_a_stateful_set_does_not_leave() -> Result<()> {
    const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
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
    fleet.root.make(SETS, set).await?;
    let (claim, record) =
        (format!("{CLAIMS}/data-db-0"), WEB_RECORD.replace("deployment-web", "statefulset-db"));
    fleet.root.until(&claim, |claim| claim["status"]["phase"] == "Bound").await?;
    fleet.root.delete(&format!("{SETS}/db")).await?;
    fleet.root.until_gone(&record).await?;
    let path = format!("{PHYSICAL_CLUSTERS}/a");
    fleet.root.delete(&path).await?;
    let waits = |found: &Value| condition(found, "Leaving")["reason"] == "Moving";
    fleet.root.until(&path, waits).await?;
    // A cluster that may leave is emptied within two seconds.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let leaving = fleet.root.get(&path).await?.unwrap_or_default();
    assert!(waits(&leaving), "{leaving:#}");
    assert!(fleet.member("a").below.get(&there(&claim)).await?.is_some());
    fleet.root.delete(&claim).await?;
    fleet.root.until(&path, |found| !waits(found)).await.map(drop)
}
