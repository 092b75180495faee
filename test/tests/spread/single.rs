//! Workloads that run in one place although several are allowed, also while they move.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::until;
use scenarios::fleet::Fleet;
use serde_json::{Value, json};
use standin::{Clock, Delays, Options};

use crate::app::*;

const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const NIGHTLY: &str = "/apis/batch/v1/namespaces/shop/cronjobs/nightly";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const MINUTE: Duration = Duration::from_secs(60);

/// A claim is in one place. Replicas of a Deployment that mounts it were divided anyway, and those on other clusters
/// waited forever for a volume.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_that_mounts_a_claim_runs_whole_where_the_claim_is() -> Result<()> {
    let fleet = Fleet::of(&["a", "b", "c"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.make(CLAIMS, claim).await?;
    let mut web = deployment("web", 4);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    let record = fleet.root.until_there(WEB_RECORD).await?;
    let chosen = record["spec"]["targets"][0]["cluster"].as_str().unwrap_or_default().to_owned();
    assert_eq!(targets(&record), [format!("{chosen} Steady 4")]);
    for (name, member) in fleet.members() {
        let here = name == chosen;
        assert_eq!(member.below.get(&there(WEB)).await?.is_some(), here, "{name}");
        if here {
            member.below.until_there(&there(&format!("{CLAIMS}/data"))).await?;
        } else {
            assert_eq!(member.below.get(&there(&format!("{CLAIMS}/data"))).await?, None, "{name}");
        }
    }
    // Before, the other clusters would have been suitable; now the data is here.
    let apart = |record: &Value| {
        let rows = record["status"]["verdicts"].as_array().into_iter().flatten();
        rows.filter(|row| row["rule"] == "DataElsewhere").count() == 2
    };
    fleet.root.until(WEB_RECORD, apart).await.map(drop)
}

/// While a namespace moves, both clusters have its objects. A CronJob once fired on both.
#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_that_moves_fires_once_at_a_time() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let clock = Clock::held();
    fleet.join(Options { clock: clock.clone(), ..Options::new("east") }, &[]).await?;
    let slow = Delays { start: 5 * MINUTE, ..Delays::NONE };
    fleet.join(Options { clock: clock.clone(), delays: slow, ..Options::new("west") }, &[]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "east")).await?;
    let ends = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": ends } } },
    });
    fleet.root.make(CRON_JOBS, cron).await?;
    // The move takes as long as the start of this Deployment's pod.
    fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
    fleet.root.until_available(WEB, 1).await?;
    let (east, west) = (&fleet.member("east").below, &fleet.member("west").below);
    east.until_there(&there(NIGHTLY)).await?;
    fleet.root.place(SHOP, "west").await?;
    let arrived = west.until_there(&there(NIGHTLY)).await?;
    assert_eq!(arrived["spec"]["suspend"], true, "it rests while the other is there");
    clock.advance(MINUTE);
    until("it fires", async || Ok(!east.list(&there(JOBS)).await?.is_empty())).await?;
    fleet.root.until(NIGHTLY, |cron| cron["status"]["lastSuccessfulTime"].is_string()).await?;
    assert_eq!((east.list(&there(JOBS)).await?.len(), west.list(&there(JOBS)).await?.len()), (1, 0));
    assert!(east.get(&there(NIGHTLY)).await?.is_some(), "it leaves with the rest");
    let pods = there("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb");
    until("the rest arrives", async || {
        Ok(west.list(&pods).await?.iter().any(|pod| pod["spec"]["nodeName"].is_string()))
    })
    .await?;
    clock.advance(5 * MINUTE);
    east.until_gone(&there(NIGHTLY)).await?;
    let awake = |cron: &Value| !cron.is_null() && cron["spec"]["suspend"] != true;
    west.until(&there(NIGHTLY), awake).await?;
    clock.advance(MINUTE);
    until("it fires there", async || Ok(!west.list(&there(JOBS)).await?.is_empty())).await
}
