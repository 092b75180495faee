//! Statuses and dependents are projected into the mailbox while they exist downstream.

use anyhow::Result;
use api::meta::is_being_deleted;
use api::names::{DOWNSTREAM_UID, PHYSICAL_CLUSTER, PROJECTED};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::setup::*;

fn owned(mut object: Value, owner: &Value) -> Value {
    let reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    });
    object["metadata"]["ownerReferences"] = json!([reference]);
    object
}

fn replica_set(deployment: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "web-1", "namespace": "shop" },
        "spec": deployment["spec"],
    });
    for field in ["strategy", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        set["spec"].as_object_mut().unwrap().remove(field);
    }
    owned(set, deployment)
}

fn pod(name: &str, set: &Value) -> Value {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "web", "image": "web:1" }] },
    });
    owned(pod, set)
}

fn event(about: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "web-1-a.1", "namespace": "shop" },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": about["metadata"]["name"], "uid": about["metadata"]["uid"],
        },
        "reason": "Started", "message": "started", "type": "Normal",
    })
}

/// Creates a Deployment with a ReplicaSet, a starting pod and an event, as controllers downstream would.
async fn running_app(test: &SyncerTest) -> Result<(Value, Value)> {
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(DEPLOYMENTS, deployment("web")).await?;
    let deployment = test.downstream.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    let set = test.downstream.create(REPLICA_SETS, replica_set(&deployment)).await?;
    let pod = test.downstream.create(PODS, pod("web-1-a", &set)).await?;
    test.downstream.create("/api/v1/namespaces/shop/events", event(&pod)).await?;
    Ok((set, pod))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_exact_and_pods_are_projected_with_owners_of_the_mailbox() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    let (_, downstream_pod) = running_app(&test).await?;
    let status = json!({ "status": {
        "replicas": 2, "readyReplicas": 1, "observedGeneration": 1,
        "conditions": [{ "type": "Available", "status": "False", "reason": "Wait", "message": "", "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    } });
    let downstream = test.downstream.merge(&format!("{DEPLOYMENTS}/web/status"), status).await?;
    let in_mailbox =
        test.mailbox.until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["replicas"] == 2).await?;
    assert_eq!(
        (&in_mailbox["status"], &in_mailbox["status"]["observedGeneration"]),
        (&downstream["status"], &in_mailbox["metadata"]["generation"])
    );

    let set = test.mailbox.until_exists(&format!("{REPLICA_SETS}/web-1")).await?;
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], in_mailbox["metadata"]["uid"]);
    let projected = test.mailbox.until_exists(&format!("{PODS}/web-1-a")).await?;
    assert_eq!(projected["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(
        projected["metadata"]["labels"],
        json!({ "app": "web", PROJECTED: "true", PHYSICAL_CLUSTER: "east" })
    );
    assert_eq!(projected["metadata"]["annotations"][DOWNSTREAM_UID], downstream_pod["metadata"]["uid"]);
    let event = test.mailbox.until_exists("/api/v1/namespaces/shop/events/web-1-a.1").await?;
    assert_eq!(event["involvedObject"]["uid"], projected["metadata"]["uid"]);

    // The pod is bound to a node and runs.
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "web-1-a" }, "target": { "name": "node-1" } });
    test.downstream.create(&format!("{PODS}/web-1-a/binding"), binding).await?;
    let downstream = test.downstream.merge(&format!("{PODS}/web-1-a/status"), json!({ "status": { "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }] } })).await?;
    let running = test
        .mailbox
        .until(&format!("{PODS}/web-1-a"), |found| found["status"] == downstream["status"])
        .await?;
    assert_eq!(
        (&running["spec"]["nodeName"], &running["metadata"]["uid"]),
        (&json!("node-1"), &projected["metadata"]["uid"])
    );
    test.until_steady().await?;
    until("Synced is True", async || Ok(test.condition("Synced").await?["status"] == "True")).await?;

    // When the pod is deleted downstream, its projection is too.
    test.downstream
        .0
        .text(http::Method::DELETE, &format!("{PODS}/web-1-a?gracePeriodSeconds=0"), "", Vec::new(), STEADY)
        .await?;
    test.mailbox.until_deleted(&format!("{PODS}/web-1-a")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_projected_pod_deletes_the_real_one() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    running_app(&test).await?;
    let path = format!("{PODS}/web-1-a");
    test.mailbox.until_exists(&path).await?;
    test.mailbox.delete(&path).await?;
    test.downstream.until_deleted(&path).await?;
    test.mailbox.until_deleted(&path).await?;
    assert!(test.downstream.get(&format!("{REPLICA_SETS}/web-1")).await?.is_some());
    assert!(test.downstream.get(&format!("{DEPLOYMENTS}/web")).await?.is_some());
    Ok(())
}

/// The mailbox collects the dependents of a Deployment whose finalizer was removed. As there was no tombstone, this
/// collection must not delete the real pods.
#[tokio::test(flavor = "multi_thread")]
async fn pods_collected_only_in_the_mailbox_stay_downstream() -> Result<()> {
    let test = SyncerTest::new().await?;
    let running = test.start();
    running_app(&test).await?;
    test.mailbox.until_exists(&format!("{PODS}/web-1-a")).await?;
    running.stop().await;
    let path = format!("{DEPLOYMENTS}/web");
    test.mailbox.merge(&path, json!({ "metadata": { "finalizers": null } })).await?;
    test.mailbox.delete(&path).await?;
    test.mailbox.until_deleted(&path).await?;
    test.mailbox.until(&format!("{PODS}/web-1-a"), is_being_deleted).await?;
    let _running = test.start();
    test.until_steady().await?;
    until("Synced reports the missing tombstone", async || {
        let synced = test.condition("Synced").await?;
        Ok(synced["message"].as_str().is_some_and(|message| message.contains("shop/web: NoTombstone")))
    })
    .await?;
    for path in [path, format!("{PODS}/web-1-a"), format!("{REPLICA_SETS}/web-1")] {
        let found = test.downstream.get(&path).await?.unwrap_or_default();
        assert!(found["metadata"]["uid"].is_string() && !is_being_deleted(&found), "{path}: {found:#}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_others_in_the_same_namespace_are_not_projected() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    let (set, _) = running_app(&test).await?;
    let mut foreign = pod("foreign", &set);
    foreign["metadata"]["ownerReferences"] = json!([]);
    test.downstream.create(PODS, foreign).await?;
    test.downstream.create(PODS, pod("web-1-b", &set)).await?;
    test.mailbox.until_exists(&format!("{PODS}/web-1-b")).await?;
    assert_eq!(test.mailbox.get(&format!("{PODS}/foreign")).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_cron_job_are_projected_with_their_pods() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly", "namespace": "shop" },
        "spec": { "schedule": "0 0 * * *", "jobTemplate": { "spec": { "template": template } } },
    });
    let (crons, jobs) = ("/apis/batch/v1/namespaces/shop/cronjobs", "/apis/batch/v1/namespaces/shop/jobs");
    test.place(crons, cron).await?;
    let cron = test.downstream.until_exists(&format!("{crons}/nightly")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "nightly-1", "namespace": "shop" },
        "spec": { "template": template },
    });
    let job = test.downstream.create(jobs, owned(job, &cron)).await?;
    test.downstream.create(PODS, pod("nightly-1-x", &job)).await?;
    let projected = test.mailbox.until_exists(&format!("{jobs}/nightly-1")).await?;
    assert_eq!(projected["spec"]["selector"], job["spec"]["selector"]);
    let status = json!({ "status": { "active": 1, "ready": 0, "startTime": "2026-01-01T00:00:00Z" } });
    let job = test.downstream.merge(&format!("{jobs}/nightly-1/status"), status).await?;
    let status =
        test.mailbox.until(&format!("{jobs}/nightly-1"), |found| found["status"] == job["status"]).await?;
    assert_eq!(status["metadata"]["uid"], projected["metadata"]["uid"]);
    test.downstream.merge(&format!("{jobs}/nightly-1"), json!({ "spec": { "suspend": true } })).await?;
    test.mailbox.until(&format!("{jobs}/nightly-1"), |found| found["spec"]["suspend"] == true).await?;
    test.mailbox.until_exists(&format!("{PODS}/nightly-1-x")).await?;
    test.until_steady().await?;
    test.downstream.delete(&format!("{jobs}/nightly-1")).await?;
    test.mailbox.until_deleted(&format!("{jobs}/nightly-1")).await?;
    test.mailbox.until_deleted(&format!("{PODS}/nightly-1-x")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_existed_before_an_adoption_are_projected() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    // Another app is placed, so that pods are watched already.
    running_app(&test).await?;
    test.mailbox.until_exists(&format!("{PODS}/web-1-a")).await?;
    let [deployments, pods] = ["/apis/apps/v1/namespaces/old/deployments", "/api/v1/namespaces/old/pods"];
    let in_old_namespace = |mut object: Value| {
        object["metadata"]["namespace"] = json!("old");
        object
    };
    test.downstream.create(NAMESPACES, namespace("old")).await?;
    let legacy = test.downstream.create(deployments, in_old_namespace(deployment("legacy"))).await?;
    test.downstream.create(pods, in_old_namespace(pod("legacy-1", &legacy))).await?;
    test.mailbox.create(NAMESPACES, namespace("old")).await?;
    let mut adopting = placed(in_old_namespace(deployment("legacy")));
    adopting["metadata"]["annotations"] = json!({ "holon.dev/adopt": "true" });
    test.mailbox.create(deployments, adopting).await?;
    test.mailbox.until_exists(&format!("{pods}/legacy-1")).await?;
    test.until_steady().await
}

/// A restarted syncer reads pods before it knows their owners. It once took them for foreign ones, and removed their
/// projections.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_all_projections_and_writes_nothing() -> Result<()> {
    let test = SyncerTest::new().await?;
    let running = test.start();
    running_app(&test).await?;
    let event = "/api/v1/namespaces/shop/events/web-1-a.1";
    test.mailbox.until_exists(event).await?;
    test.until_steady().await?;
    running.stop().await;
    test.mailbox_link.written();
    test.downstream_link.delay("/deployments", STEADY);
    let _running = test.start();
    sleep(3 * STEADY).await;
    let written = test.mailbox_link.written();
    assert!(written.iter().all(|call| call.contains("/physicalclusters")), "{written:#?}");
    assert!(test.mailbox.get(event).await?.is_some());
    Ok(())
}
