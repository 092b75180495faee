//! Workloads that run to completion.

use anyhow::Result;
use api::meta::is_being_deleted;
use controller::kind::ResourceKind;
use scenarios::client::{condition, until};
use scenarios::fleet::{Fleet, PHYSICAL_CLUSTERS};
use scenarios::history::{History, check};
use serde_json::{Value, json};

use crate::app::*;

pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const SUMS: &str = "/apis/batch/v1/namespaces/shop/jobs/sums";
const RECORD: &str = "/apis/holon.dev/v1alpha1/namespaces/shop/distributions/job-sums";

pub(crate) fn ending_template() -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } })
}

fn is_complete(job: &Value) -> bool {
    condition(job, "Complete")["status"] == "True"
}

/// A Job without completions, or with indexes, was sent to every cluster to which its namespace moved, and ran again.
/// One with completions kept its physical cluster from leaving forever.
#[tokio::test(flavor = "multi_thread")]
async fn a_completed_job_does_not_run_again() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 3, "completionMode": "Indexed", "template": ending_template() },
    });
    fleet.root.create(JOBS, job).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    fleet.root.until(SUMS, is_complete).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet.member("east").mailbox.until_deleted(&downstream_path(WEB)).await?;
    let is_held = |record: &Value| condition(record, "Placed")["reason"] == "Held";
    let record = fleet.root.until(RECORD, is_held).await?;
    let message = condition(&record, "Placed")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("the object stays on east: the Job is completed"), "{message}");
    assert_eq!(fleet.member("west").mailbox.get(&downstream_path(SUMS)).await?, None);
    // It does not keep the cluster from leaving, and its status stays.
    let east = format!("{PHYSICAL_CLUSTERS}/east");
    fleet.root.delete(&east).await?;
    fleet.member("east").downstream.until_deleted(&downstream_path(SUMS)).await?;
    fleet.root.until(&east, |found| condition(found, "Leaving")["reason"] != "Moving").await?;
    let job = fleet.root.until_exists(SUMS).await?;
    assert!(is_complete(&job) && job["status"]["succeeded"] == 3, "{job:#}");
    assert_eq!(fleet.member("west").mailbox.get(&downstream_path(SUMS)).await?, None);
    Ok(())
}

/// An administrator removed a destroyed physical cluster with `holon leave --forget`. The Job that had run there stayed
/// recorded there forever, because a running Job is not moved; a finished Job must not run again.
#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_job_of_a_forgotten_cluster_starts_on_another() -> Result<()> {
    let mut fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = |name: &str, template: Value| json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": { "template": template } });
    fleet.root.create(JOBS, job("sums", ending_template())).await?;
    fleet.root.until(SUMS, is_complete).await?;
    let mut running = template("long");
    running["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    running["spec"]["restartPolicy"] = "Never".into();
    fleet.root.create(JOBS, job("long", running)).await?;
    let long = SUMS.replace("sums", "long");
    fleet.root.until(&long, |job| job["status"]["active"] == 1).await?;
    fleet.stop_syncer("east").await;
    fleet.change("east", json!({ "metadata": { "annotations": { "holon.dev/forget": "true" } } })).await?;
    fleet.root.delete(&format!("{PHYSICAL_CLUSTERS}/east")).await?;
    fleet.root.place(SHOP, "west").await?;
    fleet
        .member("west")
        .downstream
        .until(&downstream_path(&long), |job| job["status"]["active"] == 1)
        .await?;
    let record = fleet.root.until_exists(&RECORD.replace("sums", "long")).await?;
    assert_eq!(targets(&record), ["west Steady 1"]);
    let job = fleet.root.until_exists(SUMS).await?;
    assert!(is_complete(&job), "{job:#}");
    assert_eq!(fleet.member("west").mailbox.get(&downstream_path(SUMS)).await?, None);
    Ok(())
}

/// The TTL of a Job is not sent downstream, where the Job would be created again. But nothing applied it to the user's
/// Job either.
#[tokio::test(flavor = "multi_thread")]
async fn a_finished_job_is_deleted_after_its_ttl() -> Result<()> {
    let fleet = Fleet::of(&["east", "west"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let job = |name: &str, ttl_seconds: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "completions": 4, "parallelism": 2, "ttlSecondsAfterFinished": ttl_seconds, "template": ending_template() },
        })
    };
    fleet.root.create(JOBS, job("sums", json!(1))).await?;
    fleet.root.create(JOBS, job("kept", Value::Null)).await?;
    fleet.root.until(&format!("{JOBS}/kept"), is_complete).await?;
    fleet.root.until_deleted(SUMS).await?;
    for (_, member) in fleet.members() {
        member.downstream.until_deleted(&downstream_path(SUMS)).await?;
    }
    fleet.root.until_deleted(RECORD).await?;
    fleet.root.until(&format!("{JOBS}/kept"), is_complete).await.map(drop)
}

/// A Job was deleted and created again while the status of the first still existed: the new one was reported complete,
/// and never ran.
#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_job_runs_again() -> Result<()> {
    let mut fleet = Fleet::of(&["east"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 2, "template": ending_template() },
    });
    fleet.root.create(JOBS, job.clone()).await?;
    fleet.root.until(SUMS, is_complete).await?;
    let before = fleet.member("east").downstream.until_exists(&downstream_path(SUMS)).await?;
    fleet.stop_syncer("east").await;
    fleet.root.delete(SUMS).await?;
    fleet.member("east").mailbox.until(&downstream_path(SUMS), is_being_deleted).await?;
    fleet.root.create(JOBS, job).await?;
    let is_placed = |record: &Value| condition(record, "Placed")["status"] == "True";
    fleet.root.until(RECORD, is_placed).await?;
    let job = fleet.root.until_exists(SUMS).await?;
    assert!(condition(&job, "Complete").is_null(), "{job:#}");
    fleet.start_syncer("east");
    fleet.root.until(SUMS, is_complete).await?;
    let after = fleet.member("east").downstream.until_exists(&downstream_path(SUMS)).await?;
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_hundred_over_three_runs_a_hundred() -> Result<()> {
    // In proportion to the division of the parallelism: 7, 7 and 6 of 20.
    check_hundred_completions_on(&Fleet::of(&["a", "b", "c"]).await?, &[35, 30]).await
}

/// Checks that each target runs one of these numbers of completions, and all together a hundred.
pub(crate) async fn check_hundred_completions_on(fleet: &Fleet, expected_counts: &[usize]) -> Result<()> {
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    // A Job is divided once, over the targets at that time, so all targets must be known first.
    fleet.root.create(DEPLOYMENTS, deployment("web", 3)).await?;
    let count = fleet.members().count();
    let all = |record: &Value| record["spec"]["targets"].as_array().is_some_and(|all| all.len() == count);
    fleet.root.until(WEB_RECORD, all).await?;
    fleet.root.delete(WEB).await?;
    fleet.root.until_deleted(WEB_RECORD).await?;
    until("no pod of web exists", async || {
        let mut remaining = 0;
        for (_, member) in fleet.members() {
            remaining +=
                member.downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?.len();
        }
        Ok(remaining == 0)
    })
    .await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 100, "parallelism": 20, "template": ending_template() },
    });
    let history = History::of(fleet, ResourceKind::new("batch", "v1", "jobs", "Job", true)).await?;
    fleet.root.create(JOBS, job).await?;
    let sums = format!("{JOBS}/sums");
    let job = fleet.root.until(&sums, |job| condition(job, "Complete")["status"] == "True").await?;
    history.until_observed(&job).await?;
    let moments = history.moments("shop", "sums");
    check(&moments, |before, now| {
        let (completions, workers) = (now.sum("/spec/completions"), now.sum("/spec/parallelism"));
        completions <= 100 && workers <= 20 && completions >= before.sum("/spec/completions")
    });
    let requested = moments.last().map(|now| (now.sum("/spec/completions"), now.sum("/spec/parallelism")));
    assert_eq!(requested, Some((100, 20)));
    assert_eq!(job["status"]["succeeded"], 100, "{:#}", job["status"]);
    let mut ran = 0;
    for (name, member) in fleet.members() {
        let pods = member.downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
        assert!(expected_counts.contains(&pods.len()), "{name} ran {}", pods.len());
        ran += pods.len();
    }
    assert_eq!(ran, 100);
    Ok(())
}
