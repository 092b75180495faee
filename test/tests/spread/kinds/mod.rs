//! Every kind in its own way: divided, duplicated, or on one target.

pub(crate) mod autoscalers;
mod claims;
pub(crate) mod cron_jobs;
mod custom;
pub(crate) mod guestbook;
pub(crate) mod jobs;
mod two_targets;

use std::collections::BTreeSet;

use anyhow::Result;
use scenarios::client::{PATIENCE, until};
use scenarios::fleet::Fleet;
use serde_json::{Value, json};

use self::jobs::{JOBS, ending_template};
use crate::app::*;

/// A mailbox object was replaced as a whole when any field changed. The selector of a Job, which the mailbox had
/// generated, was missing then; the mailbox rejected the update, and the Job was never updated again.
#[tokio::test(flavor = "multi_thread")]
async fn fields_set_by_the_mailbox_do_not_block_updates() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "a")).await?;
    let mut waiting = ending_template();
    waiting["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    let labels = json!({ "app": "web" });
    let rows = [
        (
            JOBS,
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "one" },
                "spec": { "completions": 4, "parallelism": 2, "template": waiting },
            }),
        ),
        (
            "/api/v1/namespaces/shop/pods",
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "one", "labels": labels },
                "spec": {
                    "containers": [{ "name": "main", "image": "busybox" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "one" } }],
                },
            }),
        ),
        (
            "/api/v1/namespaces/shop/persistentvolumeclaims",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "one" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }),
        ),
        (
            "/api/v1/namespaces/shop/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "one" },
                "spec": { "type": "NodePort", "selector": labels, "ports": [{ "port": 80 }] },
            }),
        ),
    ];
    for (collection, object) in &rows {
        fleet.root.create(collection, object.clone()).await?;
    }
    for (collection, _) in &rows {
        let path = format!("{collection}/one");
        let before = fleet.member("a").mailbox.until_exists(&downstream_path(&path)).await?;
        fleet.member("a").downstream.until_exists(&downstream_path(&path)).await?;
        fleet.root.merge(&path, json!({ "metadata": { "labels": { "touched": "yes" } } })).await?;
        fleet
            .member("a")
            .downstream
            .until(&downstream_path(&path), |found| found["metadata"]["labels"]["touched"] == "yes")
            .await?;
        let after = fleet.member("a").mailbox.until_exists(&downstream_path(&path)).await?;
        assert_eq!(after["spec"]["selector"], before["spec"]["selector"], "{path}");
        assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"], "{path}");
        assert_eq!(after["spec"]["ports"], before["spec"]["ports"], "{path}");
    }
    fleet.root.merge(&format!("{JOBS}/one"), json!({ "spec": { "parallelism": 3 } })).await?;
    let downstream = &fleet.member("a").downstream;
    downstream
        .until(&downstream_path(&format!("{JOBS}/one")), |job| job["spec"]["parallelism"] == 3)
        .await
        .map(drop)
}

/// Workloads deleted with propagation policy Orphan are deleted with their pods, and an Event of each reports that. The
/// Event was missing if the splitter observed that the garbage collector had taken the owner from the record before it
/// observed the deletion: it added the owner again, and the record was deleted as with policy Background.
#[tokio::test(flavor = "multi_thread")]
async fn every_workload_that_is_not_orphaned_has_an_event() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let names: Vec<String> = (0..40).map(|number| format!("web-{number}")).collect();
    for name in &names {
        fleet.root.create(DEPLOYMENTS, deployment(name, 1)).await?;
    }
    for name in &names {
        fleet.root.until_available(&format!("{DEPLOYMENTS}/{name}"), 1).await?;
    }
    let delete = async |name: &String| {
        let body = json!({ "propagationPolicy": "Orphan" }).to_string().into();
        let path = format!("{DEPLOYMENTS}/{name}");
        // A change makes the splitter work on the object just then.
        fleet.root.merge(&path, json!({ "spec": { "replicas": 2 } })).await?;
        fleet.root.0.text(http::Method::DELETE, &path, "application/json", body, PATIENCE).await?;
        anyhow::Ok(())
    };
    futures::future::try_join_all(names.iter().map(delete)).await?;
    until("the Distributions are deleted", async || {
        Ok(fleet.root.list("/apis/holon.dev/v1alpha1/namespaces/shop/distributions").await?.is_empty())
    })
    .await?;
    let mut reported = BTreeSet::new();
    until("each has an Event", async || {
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        let is_it = |event: &&Value| event["reason"] == "NotOrphaned";
        let name = |event: &Value| event["involvedObject"]["name"].as_str().unwrap_or_default().to_owned();
        reported = events.iter().filter(is_it).map(name).collect();
        Ok(names.iter().all(|name| reported.contains(name)))
    })
    .await?;
    Ok(())
}
