//! The mailbox shows the downstream state as long as it exists.

use anyhow::Result;
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
        "reason": "Started", "message": "it runs", "type": "Normal",
    })
}

/// Creates a Deployment with a ReplicaSet, a starting pod and an event, as controllers downstream would.
async fn running_app(test: &SyncerTest) -> Result<(Value, Value)> {
    test.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    test.place(DEPLOYMENTS, deployment("web")).await?;
    let deployment = test.below.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    let set = test.below.make(SETS, replica_set(&deployment)).await?;
    let pod = test.below.make(PODS, pod("web-1-a", &set)).await?;
    test.below.make("/api/v1/namespaces/shop/events", event(&pod)).await?;
    Ok((set, pod))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_exact_and_pods_are_shown_with_owners_of_the_mailbox() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    let (_, pod_below) = running_app(&test).await?;
    let status = json!({ "status": {
        "replicas": 2, "readyReplicas": 1, "observedGeneration": 1,
        "conditions": [{ "type": "Available", "status": "False", "reason": "Wait", "message": "", "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
    } });
    let below = test.below.merge(&format!("{DEPLOYMENTS}/web/status"), status).await?;
    let here =
        test.mailbox.until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["replicas"] == 2).await?;
    assert_eq!(
        (&here["status"], &here["status"]["observedGeneration"]),
        (&below["status"], &here["metadata"]["generation"])
    );

    let set = test.mailbox.until_there(&format!("{SETS}/web-1")).await?;
    assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], here["metadata"]["uid"]);
    let shown = test.mailbox.until_there(&format!("{PODS}/web-1-a")).await?;
    assert_eq!(shown["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert_eq!(
        shown["metadata"]["labels"],
        json!({ "app": "web", PROJECTED: "true", PHYSICAL_CLUSTER: "east" })
    );
    assert_eq!(shown["metadata"]["annotations"][DOWNSTREAM_UID], pod_below["metadata"]["uid"]);
    let event = test.mailbox.until_there("/api/v1/namespaces/shop/events/web-1-a.1").await?;
    assert_eq!(event["involvedObject"]["uid"], shown["metadata"]["uid"]);

    // The pod is bound to a node and runs.
    let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "web-1-a" }, "target": { "name": "node-1" } });
    test.below.make(&format!("{PODS}/web-1-a/binding"), binding).await?;
    let below = test.below.merge(&format!("{PODS}/web-1-a/status"), json!({ "status": { "phase": "Running", "podIP": "10.1.2.3", "podIPs": [{ "ip": "10.1.2.3" }] } })).await?;
    let seen =
        test.mailbox.until(&format!("{PODS}/web-1-a"), |found| found["status"] == below["status"]).await?;
    assert_eq!(
        (&seen["spec"]["nodeName"], &seen["metadata"]["uid"]),
        (&json!("node-1"), &shown["metadata"]["uid"])
    );
    test.rests().await?;
    until("all is said to be well", async || Ok(test.condition("Synced").await?["status"] == "True")).await?;

    // When the pod is deleted downstream, its projection is too.
    test.below
        .0
        .text(http::Method::DELETE, &format!("{PODS}/web-1-a?gracePeriodSeconds=0"), "", Vec::new(), STEADY)
        .await?;
    test.mailbox.until_gone(&format!("{PODS}/web-1-a")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_shown_pod_deletes_the_real_one() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    running_app(&test).await?;
    let path = format!("{PODS}/web-1-a");
    test.mailbox.until_there(&path).await?;
    test.mailbox.delete(&path).await?;
    test.below.until_gone(&path).await?;
    test.mailbox.until_gone(&path).await?;
    assert!(test.below.get(&format!("{SETS}/web-1")).await?.is_some());
    assert!(test.below.get(&format!("{DEPLOYMENTS}/web")).await?.is_some());
    Ok(())
}

/// The mailbox collects the dependents of a Deployment whose finalizer was removed. As there was no tombstone, this
/// collection must not delete the real pods.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_only_collected_in_the_mailbox_stay_below() -> Result<()> {
    let test = SyncerTest::new().await?;
    let running = test.start();
    running_app(&test).await?;
    test.mailbox.until_there(&format!("{PODS}/web-1-a")).await?;
    running.stop().await;
    let path = format!("{DEPLOYMENTS}/web");
    test.mailbox.merge(&path, json!({ "metadata": { "finalizers": null } })).await?;
    test.mailbox.delete(&path).await?;
    test.mailbox.until_gone(&path).await?;
    test.mailbox
        .until(&format!("{PODS}/web-1-a"), |pod| !pod["metadata"]["deletionTimestamp"].is_null())
        .await?;
    let _running = test.start();
    test.rests().await?;
    until("it is said what is held", async || {
        let synced = test.condition("Synced").await?;
        Ok(synced["message"].as_str().is_some_and(|told| told.contains("shop/web: NoTombstone")))
    })
    .await?;
    for path in [path, format!("{PODS}/web-1-a"), format!("{SETS}/web-1")] {
        let found = test.below.get(&path).await?.unwrap_or_default();
        assert!(
            found["metadata"]["uid"].is_string() && found["metadata"]["deletionTimestamp"].is_null(),
            "{path}: {found:#}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_others_in_the_same_namespace_are_not_shown() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    let (set, _) = running_app(&test).await?;
    let mut foreign = pod("foreign", &set);
    foreign["metadata"]["ownerReferences"] = json!([]);
    test.below.make(PODS, foreign).await?;
    test.below.make(PODS, pod("web-1-b", &set)).await?;
    test.mailbox.until_there(&format!("{PODS}/web-1-b")).await?;
    assert_eq!(test.mailbox.get(&format!("{PODS}/foreign")).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_a_cron_job_are_shown_with_their_pods() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    test.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly", "namespace": "shop" },
        "spec": { "schedule": "0 0 * * *", "jobTemplate": { "spec": { "template": template } } },
    });
    let (crons, jobs) = ("/apis/batch/v1/namespaces/shop/cronjobs", "/apis/batch/v1/namespaces/shop/jobs");
    test.place(crons, cron).await?;
    let cron = test.below.until_there(&format!("{crons}/nightly")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "nightly-1", "namespace": "shop" },
        "spec": { "template": template },
    });
    let job = test.below.make(jobs, owned(job, &cron)).await?;
    test.below.make(PODS, pod("nightly-1-x", &job)).await?;
    let shown = test.mailbox.until_there(&format!("{jobs}/nightly-1")).await?;
    assert_eq!(shown["spec"]["selector"], job["spec"]["selector"]);
    let status = json!({ "status": { "active": 1, "ready": 0, "startTime": "2026-01-01T00:00:00Z" } });
    let job = test.below.merge(&format!("{jobs}/nightly-1/status"), status).await?;
    let status =
        test.mailbox.until(&format!("{jobs}/nightly-1"), |found| found["status"] == job["status"]).await?;
    assert_eq!(status["metadata"]["uid"], shown["metadata"]["uid"]);
    test.below.merge(&format!("{jobs}/nightly-1"), json!({ "spec": { "suspend": true } })).await?;
    test.mailbox.until(&format!("{jobs}/nightly-1"), |found| found["spec"]["suspend"] == true).await?;
    test.mailbox.until_there(&format!("{PODS}/nightly-1-x")).await?;
    test.rests().await?;
    test.below.delete(&format!("{jobs}/nightly-1")).await?;
    test.mailbox.until_gone(&format!("{jobs}/nightly-1")).await?;
    test.mailbox.until_gone(&format!("{PODS}/nightly-1-x")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_from_before_an_adoption_are_shown() -> Result<()> {
    let test = SyncerTest::new().await?;
    let _running = test.start();
    // Another app is placed, so that pods are watched already.
    running_app(&test).await?;
    test.mailbox.until_there(&format!("{PODS}/web-1-a")).await?;
    let [here, there] = ["/apis/apps/v1/namespaces/old/deployments", "/api/v1/namespaces/old/pods"];
    let moved = |mut object: Value| {
        object["metadata"]["namespace"] = json!("old");
        object
    };
    test.below.make(NAMESPACES, namespace("old")).await?;
    let theirs = test.below.make(here, moved(deployment("legacy"))).await?;
    test.below.make(there, moved(pod("legacy-1", &theirs))).await?;
    test.mailbox.make(NAMESPACES, namespace("old")).await?;
    let mut adopting = placed(moved(deployment("legacy")));
    adopting["metadata"]["annotations"] = json!({ "holon.dev/adopt": "true" });
    test.mailbox.make(here, adopting).await?;
    test.mailbox.until_there(&format!("{there}/legacy-1")).await?;
    test.rests().await
}

/// A restarted syncer reads pods before it knows their owners. It once took them for foreign ones, and removed their
/// projections.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_everything_is_still_shown_and_nothing_is_written() -> Result<()> {
    let test = SyncerTest::new().await?;
    let running = test.start();
    running_app(&test).await?;
    let event = "/api/v1/namespaces/shop/events/web-1-a.1";
    test.mailbox.until_there(event).await?;
    test.rests().await?;
    running.stop().await;
    test.mailbox_link.written();
    test.below_link.slow("/deployments", STEADY);
    let _running = test.start();
    sleep(3 * STEADY).await;
    let written = test.mailbox_link.written();
    assert!(written.iter().all(|call| call.contains("/physicalclusters")), "{written:#?}");
    assert!(test.mailbox.get(event).await?.is_some());
    Ok(())
}
