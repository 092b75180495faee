//! Workloads that go wrong because they were asked to.

use std::time::Duration;

use serde_json::{Value, json};
use standin::{Clock, Options};

use crate::common::{APPS, BATCH, CORE, World, condition, deployment, is_true, job};

fn failing(how: &str) -> Value {
    json!({"standin.holon.dev/fail": how})
}

#[tokio::test]
async fn a_container_that_fails_is_started_again_and_again_later_each_time() {
    let clock = Clock::held();
    let world = World::with(Options { clock: clock.clone(), ..Options::new("east") }).await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("CrashLoop"))).await;
    let pods = format!("{CORE}/pods");
    let first = |pods: &Value| pods["items"][0]["status"]["containerStatuses"][0].clone();
    for (restarts, wait) in [(0, 10), (1, 20), (2, 40)] {
        let seen = world
            .until(&pods, |pods| {
                let status = first(pods);
                status["restartCount"] == restarts
                    && status["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            })
            .await;
        let status = first(&seen);
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 1, "{status}");
        let told = status["state"]["waiting"]["message"].as_str().unwrap();
        assert!(told.starts_with(&format!("back-off {wait}s restarting")), "{told}");
        clock.advance(Duration::from_secs(wait));
    }
    let pod = world.names(&pods).await.remove(0);
    let previous = world.text(&format!("{pods}/{pod}/log?previous=true")).await.unwrap();
    assert!(previous.ends_with("exit code 1\n"), "{previous}");
    clock.advance(Duration::from_secs(600));
    let web = world
        .until(&format!("{APPS}/deployments/web"), |web| condition(web, "Progressing")["status"] == "False")
        .await;
    assert_eq!(condition(&web, "Progressing")["reason"], "ProgressDeadlineExceeded");
}

#[tokio::test]
async fn an_image_that_does_not_come_holds_a_pod_up() {
    let world = World::new().await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("ImagePull"))).await;
    let pods = format!("{CORE}/pods");
    let reason = |pods: &Value| {
        pods["items"][0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
    };
    world.until(&pods, |pods| reason(pods) == "ImagePullBackOff").await;
    let pod = world.names(&pods).await.remove(0);
    let told = world.text(&format!("{pods}/{pod}/log")).await.unwrap_err().to_string();
    assert!(told.contains("is waiting to start: trying and failing to pull image"), "{told}");
}

#[tokio::test]
async fn a_pod_nobody_takes_says_so() {
    let world = World::new().await;
    world.create(&format!("{APPS}/deployments"), deployment("web", 1, failing("Unschedulable"))).await;
    world
        .until(&format!("{CORE}/pods"), |pods| {
            condition(&pods["items"][0], "PodScheduled")["reason"] == "Unschedulable"
        })
        .await;
}

#[tokio::test]
async fn a_job_gives_up_after_as_many_tries_as_it_has() {
    let clock = Clock::held();
    let world = World::with(Options { clock: clock.clone(), ..Options::new("east") }).await;
    world
        .create(&format!("{BATCH}/jobs"), job("bad", json!({"backoffLimit": 2}), failing("CrashLoop")))
        .await;
    let path = format!("{BATCH}/jobs/bad");
    for failed in 1..3 {
        world.until(&path, |job| job["status"]["failed"] == failed).await;
        clock.advance(Duration::from_secs(60));
    }
    let bad = world.until(&path, |job| is_true(job, "Failed")).await;
    assert_eq!(bad["status"]["failed"], 3, "{bad}");
    assert_eq!(condition(&bad, "Failed")["reason"], "BackoffLimitExceeded");
    assert_eq!(condition(&bad, "FailureTarget")["status"], "True");
}

#[tokio::test]
async fn a_rollout_that_does_not_get_ready_leaves_the_old_pods_where_they_are() {
    let world = World::new().await;
    let path = format!("{APPS}/deployments/web");
    world.create(&format!("{APPS}/deployments"), deployment("web", 4, json!({}))).await;
    world.until(&path, |web| web["status"]["availableReplicas"] == 4).await;
    let bad = json!({"spec": {"template": {"metadata": {"annotations": failing("NotReady")}}}});
    world.merge(&path, bad).await;
    // A quarter may be missing and a quarter on top: one old one goes, two new ones come.
    let web = world.until(&path, |web| web["status"]["updatedReplicas"] == 2).await;
    assert_eq!(
        (&web["status"]["availableReplicas"], &web["status"]["replicas"]),
        (&json!(3), &json!(5)),
        "{web}"
    );
    world
        .merge(
            &path,
            json!({"spec": {"template": {"metadata": {"annotations": {"standin.holon.dev/fail": null}}}}}),
        )
        .await;
    world
        .until(&path, |web| {
            web["status"]["availableReplicas"] == 4
                && web["status"]["updatedReplicas"] == 4
                && web["status"]["replicas"] == 4
        })
        .await;
}
