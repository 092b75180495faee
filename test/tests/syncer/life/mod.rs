//! The lifecycle of an object of every kind, on every kind of physical cluster: placed, changed, scaled, drifted,
//! deleted downstream, removed.
//!
//! One scenario, a [table](rows) of kinds, seven environments. Where the controller of a kind runs, it writes the
//! statuses; elsewhere the test writes them, as an operator would.

mod rows;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::meta::cover::{SharedLists, covers};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::sleep;

use self::rows::{DEFINITIONS, ExpectedStatus, LifecycleRow, StatusWriter};
use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::{NAMESPACES, PODS, TestClient, namespace, placed, until};

#[tokio::test(flavor = "multi_thread")]
async fn on_a_stand_in_the_server_dials() -> Result<()> {
    run_lifecycles(Physical::standin().await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_stand_in_that_dials_in() -> Result<()> {
    run_lifecycles(Physical::standin().await?, SyncMode::Pull).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn on_a_real_kubernetes_the_server_dials() -> Result<()> {
    run_lifecycles(Physical::real()?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn on_a_real_kubernetes_that_dials_in() -> Result<()> {
    run_lifecycles(Physical::real()?, SyncMode::Pull).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_logical_cluster_of_another_holon() -> Result<()> {
    run_lifecycles(Physical::logical().await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_levels_down_the_server_dials() -> Result<()> {
    run_lifecycles(Physical::levels(vec![rows::definition()]).await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_levels_down_of_one_that_dials_in() -> Result<()> {
    run_lifecycles(Physical::levels(vec![rows::definition()]).await?, SyncMode::Pull).await
}

async fn run_lifecycles(physical: Physical, mode: SyncMode) -> Result<()> {
    let joined = JoinedCluster::new(physical, mode).await?;
    let result = run_all_rows(&joined).await;
    if result.is_err() {
        println!("{joined}: the syncer reports {:#}", joined.report().await?["status"]["conditions"]);
    }
    result
}

async fn run_all_rows(joined: &JoinedCluster) -> Result<()> {
    joined.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let definition = joined.mailbox.create(DEFINITIONS, placed(rows::definition())).await?;
    let definition = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
    until("the mailbox serves the custom kind", async || {
        Ok(joined.mailbox.get(rows::GARDENS).await?.is_some())
    })
    .await?;
    // Two levels down, some kinds are only placed if a workload needs them.
    joined.mailbox.create(rows::DEPLOYMENTS, placed(rows::mounting_deployment())).await?;
    let rows = rows::all();
    // Objects stay until all rows are done, because some depend on others: an Ingress is only placed with the Service
    // it names.
    let end = Barrier::new(rows.len());
    let end = &end;
    let lifecycles = rows
        .iter()
        .map(|row| async move { Lifecycle { joined, row, end }.run().await.context(row.collection) });
    futures::future::try_join_all(lifecycles).await?;
    let user = format!("{}/user", rows::DEPLOYMENTS);
    for path in [user, definition, format!("{NAMESPACES}/shop")] {
        joined.mailbox.delete(&path).await?;
        joined.mailbox.until_deleted(&path).await?;
        joined.downstream.until_deleted(&path).await?;
    }
    // Downstream, exactly the objects that were removed in the mailbox were deleted, once each.
    let requested =
        rows.iter().map(LifecycleRow::resource).chain(["customresourcedefinitions", "namespaces"]);
    let mut requested: BTreeMap<String, u64> = requested.map(|resource| (resource.to_owned(), 1)).collect();
    // The Deployment of the table, and the one that needs the others.
    requested.insert("deployments".to_owned(), 2);
    let drifted_resources: Vec<&str> = rows.iter().map(LifecycleRow::resource).collect();
    assert_eq!(joined.physical.deletes(&drifted_resources)?, requested);
    Ok(())
}

struct Lifecycle<'a> {
    joined: &'a JoinedCluster,
    row: &'a LifecycleRow,
    end: &'a Barrier,
}

impl Lifecycle<'_> {
    async fn run(&self) -> Result<()> {
        self.check_placed().await.context("placed")?;
        self.check_changed(&self.row.change).await.context("changed")?;
        let mut expected = &self.row.expected_status;
        if let Some((scale, scaled)) = &self.row.scale {
            self.check_changed(scale).await.context("scaled")?;
            self.until_status(scaled).await.context("scaled")?;
            // Where the test writes the status, it switches to another one, so that a stale status would be noticed.
            expected = if self.is_by_hand() { &self.row.expected_status } else { scaled };
        }
        self.check_drifted().await.context("drifted")?;
        self.check_deleted_downstream(expected).await.context("deleted downstream")?;
        self.end.wait().await;
        self.check_removed().await.context("removed")
    }

    async fn check_placed(&self) -> Result<()> {
        let LifecycleRow { collection, object, .. } = self.row;
        self.joined.mailbox.create(collection, placed(object.clone())).await?;
        self.joined.downstream.until(&self.path(), |found| has_values(found, object)).await?;
        self.until_at_lowest_level(object).await?;
        self.until_status(&self.row.expected_status).await
    }

    /// A change in the mailbox is applied downstream.
    async fn check_changed(&self, change: &Value) -> Result<()> {
        let before = self.joined.downstream.until_exists(&self.path()).await?;
        ensure!(!has_values(&before, change), "the change has no effect: {before:#}");
        self.joined.mailbox.merge(&self.path(), change.clone()).await?;
        self.joined.downstream.until(&self.path(), |found| has_values(found, change)).await?;
        self.until_at_lowest_level(change).await
    }

    /// If the physical cluster has a lower level, the change is applied there too.
    async fn until_at_lowest_level(&self, desired: &Value) -> Result<()> {
        match self.lowest_level() {
            Some(lowest_level) => {
                let found = lowest_level.until(&self.path(), |found| has_values(found, desired)).await;
                found.map(drop).context("on the lowest level")
            }
            None => Ok(()),
        }
    }

    /// Drift downstream is corrected.
    async fn check_drifted(&self) -> Result<()> {
        let (path, drift) = (self.path(), &self.row.drift);
        let right = self.joined.mailbox.until_exists(&path).await?;
        let wrong = self.joined.downstream.merge(&path, drift.clone()).await?;
        ensure!(
            has_values(&wrong, drift) && !agree(&wrong, &right, drift),
            "the object did not drift: {wrong:#}"
        );
        self.joined.downstream.until(&path, |found| agree(found, &right, drift)).await.map(drop)
    }

    /// An object that is deleted downstream is applied again, and works as before.
    async fn check_deleted_downstream(&self, expected: &ExpectedStatus) -> Result<()> {
        let (path, desired) = (self.path(), &self.row.change);
        let before = self.joined.downstream.until_exists(&path).await?;
        self.joined.downstream.delete(&path).await?;
        let is_replacement = |found: &Value| {
            found["metadata"]["uid"] != before["metadata"]["uid"] && has_values(found, desired)
        };
        self.joined.downstream.until(&path, is_replacement).await?;
        self.until_status(expected).await
    }

    /// An object that is removed in the mailbox is deleted downstream, with its dependents.
    async fn check_removed(&self) -> Result<()> {
        let path = self.path();
        self.joined.mailbox.delete(&path).await?;
        self.joined.downstream.until_deleted(&path).await?;
        self.joined.mailbox.until_deleted(&path).await?;
        if let Some(lowest_level) = self.lowest_level() {
            lowest_level.until_deleted(&path).await.context("on the lowest level")?;
        }
        until("its pods are deleted", async || {
            let (in_mailbox, downstream) = self.pods().await?;
            Ok(in_mailbox.is_empty() && downstream.is_empty())
        })
        .await
    }

    /// Waits until the mailbox has the downstream status unchanged, and the pods.
    async fn until_status(&self, expected: &ExpectedStatus) -> Result<()> {
        let Some(status) = self.prepare_status(expected).await? else { return Ok(()) };
        tokio::select! {
            result = self.until_projected(&status) => result,
            failed = self.keep_writing_status(expected) => failed.map(|never| match never {}),
        }
    }

    async fn until_projected(&self, expected: &Value) -> Result<()> {
        let (path, JoinedCluster { mailbox, downstream, .. }) = (self.path(), self.joined);
        let found = mailbox.until(&path, |found| {
            let observed = &found["status"]["observedGeneration"];
            has_values(&found["status"], expected)
                && (observed.is_null() || *observed == found["metadata"]["generation"])
        });
        found.await.with_context(|| format!("the mailbox status is not {expected}"))?;
        let mut statuses = Value::Null;
        let same = until("the status is the same on both sides", async || {
            let in_mailbox = mailbox.get(&path).await?.unwrap_or_default();
            let mut downstream_status = downstream.get(&path).await?.unwrap_or_default()["status"].take();
            // Each server counts its own generations.
            if !downstream_status["observedGeneration"].is_null() {
                downstream_status["observedGeneration"] = in_mailbox["metadata"]["generation"].clone();
            }
            statuses = json!({ "mailbox": in_mailbox["status"], "downstream": downstream_status });
            Ok(in_mailbox["status"] == downstream_status)
        });
        same.await.with_context(|| format!("{statuses:#}"))?;
        if !self.row.pods || !self.joined.physical.has_controllers() {
            return Ok(());
        }
        until("its pods are projected", async || {
            let (in_mailbox, downstream) = self.pods().await?;
            Ok(!downstream.is_empty() && in_mailbox == downstream)
        })
        .await
    }

    /// Returns the expected status, and writes it if no controller and no lower level does. `None` for kinds without a
    /// status.
    async fn prepare_status(&self, expected: &ExpectedStatus) -> Result<Option<Value>> {
        if expected.by_hand.is_null() {
            return Ok(None);
        }
        if !self.is_by_hand() {
            return Ok(Some(expected.by_controllers.clone()));
        }
        if self.lowest_level().is_none() {
            self.write_status(&self.joined.downstream, expected).await?;
        }
        let mut status = expected.by_hand.clone();
        if let Some(fields) = status.as_object_mut() {
            fields.remove("observedGeneration");
        }
        Ok(Some(status))
    }

    /// Writes the status as an operator would.
    async fn write_status(&self, client: &TestClient, expected: &ExpectedStatus) -> Result<()> {
        let (path, mut status) = (self.path(), expected.by_hand.clone());
        let found = client.until_exists(&path).await?;
        if !status["observedGeneration"].is_null() {
            status["observedGeneration"] = found["metadata"]["generation"].clone();
        }
        if !has_values(&found["status"], &status) {
            client.merge(&format!("{path}/status"), json!({ "status": status })).await?;
        }
        Ok(())
    }

    /// Keeps writing the status on the lowest level, while it is polled: the object there may change or be replaced
    /// later.
    async fn keep_writing_status(&self, expected: &ExpectedStatus) -> Result<Infallible> {
        let Some(lowest_level) = self.lowest_level().filter(|_| self.is_by_hand()) else {
            return std::future::pending().await;
        };
        loop {
            // The object may be deleted meanwhile.
            if let Err(error) = self.write_status(&lowest_level, expected).await {
                println!("{}: {error:#}", self.path());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the client of the lowest level, if that is not the physical cluster itself.
    fn lowest_level(&self) -> Option<TestClient> {
        self.joined.physical.lowest_level()
    }

    fn is_by_hand(&self) -> bool {
        self.row.status_writer != StatusWriter::Controllers || !self.joined.physical.has_controllers()
    }

    /// Returns the names of its pods, in the mailbox and downstream.
    async fn pods(&self) -> Result<(Vec<String>, Vec<String>)> {
        let path = format!("{PODS}?labelSelector=app%3D{}", self.row.name());
        let names = |list: Option<Value>| {
            let items = list.unwrap_or_default()["items"].take();
            let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut names: Vec<String> = items.as_array().into_iter().flatten().map(name).collect();
            names.sort();
            names
        };
        Ok((names(self.joined.mailbox.get(&path).await?), names(self.joined.downstream.get(&path).await?)))
    }

    fn path(&self) -> String {
        format!("{}/{}", self.row.collection, self.row.name())
    }
}

/// Returns whether `found` has every value of `desired`, comparing lists item by item.
fn has_values(found: &Value, desired: &Value) -> bool {
    covers(found, desired, SharedLists::None)
}

/// Returns whether two objects agree in all fields of `shape`.
fn agree(one: &Value, other: &Value, shape: &Value) -> bool {
    match shape {
        Value::Object(fields) => fields.iter().all(|(name, shape)| agree(&one[name], &other[name], shape)),
        _ => one == other,
    }
}
