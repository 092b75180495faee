//! Workloads that run to completion.

use anyhow::Result;
use scenarios::client::condition;
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use serde_json::{Value, json};

use crate::app::*;
use crate::kinds::{JOBS, ending_template};

const SUMS: &str = "/apis/batch/v1/namespaces/shop/jobs/sums";
const RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/job-sums";

fn is_complete(job: &Value) -> bool {
    condition(job, "Complete")["status"] == "True"
}

/// A Job without completions, or with indexes, was sent to every cluster to which its namespace moved, and ran again.
/// One with completions kept its physical cluster from leaving forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_completed_job_does_not_run_again() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 3, "completionMode": "Indexed", "template": ending_template() },
    });
    fleet.root.make(JOBS, job).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    fleet.root.until(SUMS, is_complete).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_gone(&there(WEB)).await?;
    let held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(RECORD, held).await?;
    let why = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("the object stays on east: the Job is completed"), "{why}");
    assert_eq!(fleet.member("west").mailbox.get(&there(SUMS)).await?, None);
    // It does not keep the cluster from leaving, and its status stays.
    let east = format!("{PHYSICAL_CLUSTERS}/east");
    fleet.root.delete(&east).await?;
    fleet.member("east").below.until_gone(&there(SUMS)).await?;
    fleet.root.until(&east, |found| condition(found, "Leaving")["reason"] != "Moving").await?;
    let job = fleet.root.until_there(SUMS).await?;
    assert!(is_complete(&job) && job["status"]["succeeded"] == 3, "{job:#}");
    assert_eq!(fleet.member("west").mailbox.get(&there(SUMS)).await?, None);
    Ok(())
}

/// An administrator removed a destroyed physical cluster with `holon leave --forget`. The Job that had run there stayed
/// recorded there forever, because a running Job is not moved; a finished Job must not run again.
#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_job_of_a_forgotten_cluster_begins_elsewhere() -> Result<()> {
    let mut fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = |name: &str, template: Value| json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": { "template": template } });
    fleet.root.make(JOBS, job("sums", ending_template())).await?;
    fleet.root.until(SUMS, is_complete).await?;
    let mut running = template("long");
    running["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    running["spec"]["restartPolicy"] = "Never".into();
    fleet.root.make(JOBS, job("long", running)).await?;
    let long = SUMS.replace("sums", "long");
    fleet.root.until(&long, |job| job["status"]["active"] == 1).await?;
    fleet.stop_syncing("east").await;
    fleet.change("east", json!({ "metadata": { "annotations": { "holon.dev/forget": "true" } } })).await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/east")).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("west").below.until(&there(&long), |job| job["status"]["active"] == 1).await?;
    let record = fleet.root.until_there(&RECORD.replace("sums", "long")).await?;
    assert_eq!(targets(&record), ["west Steady 1"]);
    let job = fleet.root.until_there(SUMS).await?;
    assert!(is_complete(&job), "{job:#}");
    assert_eq!(fleet.member("west").mailbox.get(&there(SUMS)).await?, None);
    Ok(())
}

/// The TTL of a Job is not sent downstream, where the Job would be created again. But nothing applied it to the user's
/// Job either.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_as_long_after_its_end_as_it_says() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let job = |name: &str, kept: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "completions": 4, "parallelism": 2, "ttlSecondsAfterFinished": kept, "template": ending_template() },
        })
    };
    fleet.root.make(JOBS, job("sums", json!(1))).await?;
    fleet.root.make(JOBS, job("kept", Value::Null)).await?;
    fleet.root.until(&format!("{JOBS}/kept"), is_complete).await?;
    fleet.root.until_gone(SUMS).await?;
    for (_, member) in fleet.members() {
        member.below.until_gone(&there(SUMS)).await?;
    }
    fleet.root.until_gone(RECORD).await?;
    fleet.root.until(&format!("{JOBS}/kept"), is_complete).await.map(drop)
}

/// A Job was deleted and created again while the status of the first still existed: the new one was reported complete,
/// and never ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_made_again_begins_again() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 2, "template": ending_template() },
    });
    fleet.root.make(JOBS, job.clone()).await?;
    fleet.root.until(SUMS, is_complete).await?;
    let before = fleet.member("east").below.until_there(&there(SUMS)).await?;
    fleet.stop_syncing("east").await;
    fleet.root.delete(SUMS).await?;
    let goes = |copy: &Value| !copy["metadata"]["deletionTimestamp"].is_null();
    fleet.member("east").mailbox.until(&there(SUMS), goes).await?;
    fleet.root.make(JOBS, job).await?;
    let placed = |record: &Value| condition(record, "Placed")["status"] == "True";
    fleet.root.until(RECORD, placed).await?;
    let job = fleet.root.until_there(SUMS).await?;
    assert!(condition(&job, "Complete").is_null(), "{job:#}");
    fleet.sync("east");
    fleet.root.until(SUMS, is_complete).await?;
    let after = fleet.member("east").below.until_there(&there(SUMS)).await?;
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    Ok(())
}
