//! CronJobs: each fires once, however many physical clusters there are, also while it moves.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use scenarios::client::until;
use scenarios::fleet::Fleet;
use serde_json::{Value, json};
use standin::{Clock, Delays, Options};

use super::jobs::{JOBS, ending_template};
use crate::app::*;

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const NIGHTLY: &str = "/apis/batch/v1/namespaces/shop/cronjobs/nightly";
const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn every_minute() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": ending_template() } } },
    })
}

/// Waits until exactly one physical cluster has the object, and returns it as it is there.
pub(crate) async fn until_on_one_cluster(fleet: &Fleet, path: &str) -> Result<Value> {
    let mut found = Vec::new();
    until("exactly one cluster has it", async || {
        found.clear();
        for (_, member) in fleet.members() {
            found.extend(member.downstream.get(&downstream_path(path)).await?);
        }
        Ok(found.len() == 1)
    })
    .await?;
    Ok(found.remove(0))
}

/// Advances the clock to the first full minute after the creation of a CronJob. The API server of a stand-in sets the
/// creation time from the system clock, which may have reached the next minute since the clock is held.
fn advance_to_first_run(clock: &Clock, cron: &Value) -> Result<()> {
    let created: Timestamp = cron["metadata"]["creationTimestamp"].as_str().unwrap_or_default().parse()?;
    let run = Timestamp::from_second((created.as_second() / 60 + 1) * 60)?;
    clock.advance(run.duration_since(clock.now()).try_into()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_fires_once_over_any_number_of_clusters() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let clock = Clock::held();
    for name in ["a", "b", "c"] {
        fleet.join(Options { clock: clock.clone(), ..Options::new(name) }, &[]).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(CRON_JOBS, every_minute()).await?;
    advance_to_first_run(&clock, &until_on_one_cluster(&fleet, NIGHTLY).await?)?;
    let cron = fleet.root.until(NIGHTLY, |cron| cron["status"]["lastSuccessfulTime"].is_string()).await?;
    assert!(cron["status"]["lastScheduleTime"].is_string(), "{:#}", cron["status"]);
    let mut jobs = 0;
    for (_, member) in fleet.members() {
        jobs += member.downstream.list(&downstream_path(JOBS)).await?.len();
    }
    assert_eq!(jobs, 1);
    Ok(())
}

/// While a namespace moves, both clusters have its objects. A CronJob once fired on both.
#[tokio::test(flavor = "multi_thread")]
async fn a_moving_cron_job_fires_on_one_cluster_only() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let clock = Clock::held();
    fleet.join(Options { clock: clock.clone(), ..Options::new("east") }, &[]).await?;
    let slow = Delays { start: 5 * MINUTE, ..Delays::NONE };
    fleet.join(Options { clock: clock.clone(), delays: slow, ..Options::new("west") }, &[]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "east")).await?;
    let template = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": template } } },
    });
    fleet.root.create(CRON_JOBS, cron).await?;
    // The move takes as long as the start of this Deployment's pod.
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    let (east, west) = (&fleet.member("east").downstream, &fleet.member("west").downstream);
    let cron = east.until_exists(&downstream_path(NIGHTLY)).await?;
    fleet.root.place(SHOP, "west").await?;
    let suspended = west.until_exists(&downstream_path(NIGHTLY)).await?;
    assert_eq!(suspended["spec"]["suspend"], true, "suspended while the other mailbox has a copy");
    advance_to_first_run(&clock, &cron)?;
    until("it fires on east", async || Ok(!east.list(&downstream_path(JOBS)).await?.is_empty())).await?;
    fleet.root.until(NIGHTLY, |cron| cron["status"]["lastSuccessfulTime"].is_string()).await?;
    assert_eq!(
        (east.list(&downstream_path(JOBS)).await?.len(), west.list(&downstream_path(JOBS)).await?.len()),
        (1, 0)
    );
    assert!(east.get(&downstream_path(NIGHTLY)).await?.is_some(), "the CronJob moves with its namespace");
    let pods = downstream_path("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb");
    until("the pod of web is scheduled on west", async || {
        Ok(west.list(&pods).await?.iter().any(|pod| pod["spec"]["nodeName"].is_string()))
    })
    .await?;
    // If the stand-in observes the pod after the clock was advanced, the pod needs another five minutes.
    let path = downstream_path(NIGHTLY);
    for _ in 0..5 {
        clock.advance(5 * MINUTE);
        let deleted = east.until_deleted(&path);
        if tokio::time::timeout(Duration::from_secs(3), deleted).await.is_ok() {
            break;
        }
    }
    east.until_deleted(&path).await?;
    let is_active = |cron: &Value| !cron.is_null() && cron["spec"]["suspend"] != true;
    west.until(&path, is_active).await?;
    clock.advance(MINUTE);
    until("it fires on west", async || Ok(!west.list(&downstream_path(JOBS)).await?.is_empty())).await
}
