//! Workloads with injected failures.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Clock, Options};

use crate::common::{APPS, BATCH, CORE, TestCluster, condition, deployment, is_true, job};

fn failing(failure: &str) -> Value {
    json!({"standin.holon.dev/fail": failure})
}

#[tokio::test]
async fn a_failing_container_is_restarted_with_growing_back_off() {
    let clock = Clock::held();
    let cluster = TestCluster::with(Options { clock: clock.clone(), ..Options::new("east") }).await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("CrashLoop"))).await;
    let pods = format!("{CORE}/pods");
    let first = |pods: &Value| pods["items"][0]["status"]["containerStatuses"][0].clone();
    for (restarts, wait) in [(0, 10), (1, 20), (2, 40)] {
        let pods_in_back_off = cluster
            .until(&pods, |pods| {
                let status = first(pods);
                status["restartCount"] == restarts
                    && status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            })
            .await;
        let status = first(&pods_in_back_off);
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 1, "{status}");
        let message = status["state"]["waiting"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("back-off {wait}s restarting")), "{message}");
        clock.advance(Duration::from_secs(wait));
    }
    let pod = cluster.names(&pods).await.remove(0);
    let previous = cluster.text(&format!("{pods}/{pod}/log?previous=true")).await.unwrap();
    assert!(previous.ends_with("exit code 1\n"), "{previous}");
    clock.advance(Duration::from_secs(600));
    let web = cluster
        .until(&format!("{APPS}/deployments/web"), |web| condition(web, "Progressing")["status"] == "False")
        .await;
    assert_eq!(condition(&web, "Progressing")["reason"], "ProgressDeadlineExceeded");
}

#[tokio::test]
async fn a_failing_image_pull_is_reported() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("ImagePull"))).await;
    let pods = format!("{CORE}/pods");
    let reason = |pods: &Value| {
        pods["items"][0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    cluster.until(&pods, |pods| reason(pods) == "ImagePullBackOff").await;
    let pod = cluster.names(&pods).await.remove(0);
    let message = cluster.text(&format!("{pods}/{pod}/log")).await.unwrap_err().to_string();
    assert!(message.contains("is waiting to start: trying and failing to pull image"), "{message}");
}

#[tokio::test]
async fn an_unschedulable_pod_is_reported() {
    let cluster = TestCluster::new().await;
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("Unschedulable"))).await;
    cluster
        .until(&format!("{CORE}/pods"), |pods| {
            condition(&pods["items"][0], "PodScheduled")["reason"] == "Unschedulable"
        })
        .await;
}

#[tokio::test]
async fn a_job_fails_after_its_back_off_limit() {
    let clock = Clock::held();
    let cluster = TestCluster::with(Options { clock: clock.clone(), ..Options::new("east") }).await;
    cluster
        .create(&format!("{BATCH}/jobs"), job("bad", json!({"backoffLimit": 2}), failing("CrashLoop")))
        .await;
    let path = format!("{BATCH}/jobs/bad");
    for failed in 1..3 {
        cluster.until(&path, |job| job["status"]["failed"] == failed).await;
        clock.advance(Duration::from_secs(60));
    }
    let bad = cluster.until(&path, |job| is_true(job, "Failed")).await;
    assert_eq!(bad["status"]["failed"], 3, "{bad}");
    assert_eq!(condition(&bad, "Failed")["reason"], "BackoffLimitExceeded");
    assert_eq!(condition(&bad, "FailureTarget")["status"], "True");
}

#[tokio::test]
async fn a_rollout_that_does_not_become_ready_keeps_the_old_pods() {
    let cluster = TestCluster::new().await;
    let path = format!("{APPS}/deployments/web");
    cluster.create(&format!("{APPS}/deployments"), deployment("web", 4, json!({}))).await;
    cluster.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
    let bad = json!({"spec": {"template": {"metadata": {"annotations": failing("NotReady")}}}});
    cluster.merge(&path, bad).await;
    // maxSurge and maxUnavailable are 25%: one old pod is deleted, two new ones are created.
    let web = cluster.until(&path, |web| web["status"]["updatedReplicas"] == 2).await;
    assert_eq!(
        (&web["status"]["availableReplicas"], &web["status"]["replicas"]),
        (&json!(3), &json!(5)),
        "{web}"
    );
    cluster
        .merge(
            &path,
            json!({"spec": {"template": {"metadata": {"annotations": {"standin.holon.dev/fail": null}}}}}),
        )
        .await;
    cluster
        .until(&path, |web| {
            web["status"]["availableReplicas"] == 4
                && web["status"]["updatedReplicas"] == 4
                && web["status"]["replicas"] == 4
        })
        .await;
}
