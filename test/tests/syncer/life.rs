//! The life of an object of every kind, on every kind of physical cluster: placed, changed, scaled, drifted, deleted
//! downstream, removed.
//!
//! One story, a [table](rows) of kinds, seven environments. Where the controller of a kind runs, it writes the
//! statuses; elsewhere the test writes them, as an operator's program would.

mod rows;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::time::sleep;

use self::rows::{DEFINITIONS, Maker, Row, Shown};
use crate::joined::{JoinedCluster, Physical, SyncMode};
use crate::setup::{NAMESPACES, PODS, TestClient, namespace, placed, until};

#[tokio::test(flavor = "multi_thread")]
async fn on_a_stand_in_the_server_dials() -> Result<()> {
    live(Physical::standin().await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_stand_in_that_dials_in() -> Result<()> {
    live(Physical::standin().await?, SyncMode::Pull).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn on_a_real_kubernetes_the_server_dials() -> Result<()> {
    live(Physical::real()?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn on_a_real_kubernetes_that_dials_in() -> Result<()> {
    live(Physical::real()?, SyncMode::Pull).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_logical_cluster_of_another_holon() -> Result<()> {
    live(Physical::logical().await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_levels_down_the_server_dials() -> Result<()> {
    live(Physical::levels(vec![rows::definition()]).await?, SyncMode::Push).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_levels_down_of_one_that_dials_in() -> Result<()> {
    live(Physical::levels(vec![rows::definition()]).await?, SyncMode::Pull).await
}

async fn live(physical: Physical, mode: SyncMode) -> Result<()> {
    let joined = JoinedCluster::new(physical, mode).await?;
    let lived = all_lives(&joined).await;
    if lived.is_err() {
        println!("{joined}: the syncer says {:#}", joined.report().await?["status"]["conditions"]);
    }
    lived
}

async fn all_lives(joined: &JoinedCluster) -> Result<()> {
    joined.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    let definition = joined.mailbox.make(DEFINITIONS, placed(rows::definition())).await?;
    let definition = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap_or_default());
    until("what is defined here is served here", async || {
        Ok(joined.mailbox.get(rows::GARDENS).await?.is_some())
    })
    .await?;
    // Two levels down, some kinds are only placed if a workload needs them.
    joined.mailbox.make(rows::DEPLOYMENTS, placed(rows::user())).await?;
    let rows = rows::all();
    // Objects stay until all rows are done, because some depend on others: an Ingress is only placed with the Service
    // it names.
    let end = Barrier::new(rows.len());
    let end = &end;
    let lives =
        rows.iter().map(|row| async move { Life { joined, row, end }.live().await.context(row.collection) });
    futures::future::try_join_all(lives).await?;
    let user = format!("{}/user", rows::DEPLOYMENTS);
    for path in [user, definition, format!("{NAMESPACES}/shop")] {
        joined.mailbox.delete(&path).await?;
        joined.mailbox.until_gone(&path).await?;
        joined.below.until_gone(&path).await?;
    }
    // Downstream, exactly the objects that were removed in the mailbox were deleted, once each.
    let asked = rows.iter().map(Row::resource).chain(["customresourcedefinitions", "namespaces"]);
    let mut asked: BTreeMap<String, u64> = asked.map(|resource| (resource.to_owned(), 1)).collect();
    // The Deployment of the table, and the one that needs the others.
    asked.insert("deployments".to_owned(), 2);
    let meddled: Vec<&str> = rows.iter().map(Row::resource).collect();
    assert_eq!(joined.physical.deletes(&meddled)?, asked);
    Ok(())
}

struct Life<'a> {
    joined: &'a JoinedCluster,
    row: &'a Row,
    end: &'a Barrier,
}

impl Life<'_> {
    async fn live(&self) -> Result<()> {
        self.placed().await.context("placed")?;
        self.changed(&self.row.change).await.context("changed")?;
        let mut shown = &self.row.shows;
        if let Some((scale, scaled)) = &self.row.scale {
            self.changed(scale).await.context("scaled")?;
            self.shows(scaled).await.context("scaled")?;
            // Where the test writes the status, it switches to another one, so that a stale status would be noticed.
            shown = if self.is_by_hand() { &self.row.shows } else { scaled };
        }
        self.drifted().await.context("drifted")?;
        self.deleted_below(shown).await.context("deleted below")?;
        self.end.wait().await;
        self.removed().await.context("removed")
    }

    async fn placed(&self) -> Result<()> {
        let Row { collection, object, .. } = self.row;
        self.joined.mailbox.make(collection, placed(object.clone())).await?;
        self.joined.below.until(&self.path(), |found| covers(found, object)).await?;
        self.at_the_bottom(object).await?;
        self.shows(&self.row.shows).await
    }

    /// A change in the mailbox is applied downstream.
    async fn changed(&self, change: &Value) -> Result<()> {
        let before = self.joined.below.until_there(&self.path()).await?;
        ensure!(!covers(&before, change), "nothing would change: {before:#}");
        self.joined.mailbox.merge(&self.path(), change.clone()).await?;
        self.joined.below.until(&self.path(), |found| covers(found, change)).await?;
        self.at_the_bottom(change).await
    }

    /// If there is another level below, the change is applied there too.
    async fn at_the_bottom(&self, wanted: &Value) -> Result<()> {
        match self.bottom() {
            Some(bottom) => {
                let found = bottom.until(&self.path(), |found| covers(found, wanted)).await;
                found.map(drop).context("at the bottom")
            }
            None => Ok(()),
        }
    }

    /// Drift downstream is corrected.
    async fn drifted(&self) -> Result<()> {
        let (path, drift) = (self.path(), &self.row.drift);
        let right = self.joined.mailbox.until_there(&path).await?;
        let wrong = self.joined.below.merge(&path, drift.clone()).await?;
        ensure!(covers(&wrong, drift) && !agree(&wrong, &right, drift), "it did not drift: {wrong:#}");
        self.joined.below.until(&path, |found| agree(found, &right, drift)).await.map(drop)
    }

    /// An object that is deleted downstream is applied again, and works as before.
    async fn deleted_below(&self, shown: &Shown) -> Result<()> {
        let (path, wanted) = (self.path(), &self.row.change);
        let before = self.joined.below.until_there(&path).await?;
        self.joined.below.delete(&path).await?;
        let is_another =
            |found: &Value| found["metadata"]["uid"] != before["metadata"]["uid"] && covers(found, wanted);
        self.joined.below.until(&path, is_another).await?;
        self.shows(shown).await
    }

    /// An object that is removed in the mailbox is deleted downstream, with its dependents.
    async fn removed(&self) -> Result<()> {
        let path = self.path();
        self.joined.mailbox.delete(&path).await?;
        self.joined.below.until_gone(&path).await?;
        self.joined.mailbox.until_gone(&path).await?;
        if let Some(bottom) = self.bottom() {
            bottom.until_gone(&path).await.context("at the bottom")?;
        }
        until("its pods are gone", async || {
            let (here, below) = self.pods().await?;
            Ok(here.is_empty() && below.is_empty())
        })
        .await
    }

    /// The mailbox shows the downstream status unchanged, and the pods.
    async fn shows(&self, shown: &Shown) -> Result<()> {
        let Some(expected) = self.expected(shown).await? else { return Ok(()) };
        tokio::select! {
            seen = self.seen(&expected) => seen,
            failed = self.keep_by_hand(shown) => failed.map(|never| match never {}),
        }
    }

    async fn seen(&self, expected: &Value) -> Result<()> {
        let (path, JoinedCluster { mailbox, below, .. }) = (self.path(), self.joined);
        let found = mailbox.until(&path, |found| {
            let observed = &found["status"]["observedGeneration"];
            covers(&found["status"], expected)
                && (observed.is_null() || *observed == found["metadata"]["generation"])
        });
        found.await.with_context(|| format!("to show {expected}"))?;
        let mut seen = Value::Null;
        let same = until("the status is the same on both sides", async || {
            let here = mailbox.get(&path).await?.unwrap_or_default();
            let mut exact = below.get(&path).await?.unwrap_or_default()["status"].take();
            // Each server counts its own generations.
            if !exact["observedGeneration"].is_null() {
                exact["observedGeneration"] = here["metadata"]["generation"].clone();
            }
            seen = json!({ "here": here["status"], "below": exact });
            Ok(here["status"] == exact)
        });
        same.await.with_context(|| format!("{seen:#}"))?;
        if !self.row.pods || !self.joined.physical.has_controllers() {
            return Ok(());
        }
        until("its pods are shown", async || {
            let (here, below) = self.pods().await?;
            Ok(!below.is_empty() && here == below)
        })
        .await
    }

    /// Returns the expected status, and writes it if no controller and no lower level does. `None` for kinds without a
    /// status.
    async fn expected(&self, shown: &Shown) -> Result<Option<Value>> {
        if shown.by_hand.is_null() {
            return Ok(None);
        }
        if !self.is_by_hand() {
            return Ok(Some(shown.by_controllers.clone()));
        }
        if self.bottom().is_none() {
            self.write_by_hand(&self.joined.below, shown).await?;
        }
        let mut status = shown.by_hand.clone();
        if let Some(fields) = status.as_object_mut() {
            fields.remove("observedGeneration");
        }
        Ok(Some(status))
    }

    /// Writes the status as a user's program would.
    async fn write_by_hand(&self, place: &TestClient, shown: &Shown) -> Result<()> {
        let (path, mut status) = (self.path(), shown.by_hand.clone());
        let found = place.until_there(&path).await?;
        if !status["observedGeneration"].is_null() {
            status["observedGeneration"] = found["metadata"]["generation"].clone();
        }
        if !covers(&found["status"], &status) {
            place.merge(&format!("{path}/status"), json!({ "status": status })).await?;
        }
        Ok(())
    }

    /// Keeps writing the status on the lowest level, while it is polled: the object there may change or be replaced
    /// later.
    async fn keep_by_hand(&self, shown: &Shown) -> Result<Infallible> {
        let Some(bottom) = self.bottom().filter(|_| self.is_by_hand()) else {
            return std::future::pending().await;
        };
        loop {
            // The object may be deleted meanwhile.
            if let Err(error) = self.write_by_hand(&bottom, shown).await {
                println!("{}: {error:#}", self.path());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the client of the lowest level, if that is not the physical cluster itself.
    fn bottom(&self) -> Option<TestClient> {
        self.joined.physical.bottom()
    }

    fn is_by_hand(&self) -> bool {
        self.row.maker != Maker::Controllers || !self.joined.physical.has_controllers()
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
        Ok((names(self.joined.mailbox.get(&path).await?), names(self.joined.below.get(&path).await?)))
    }

    fn path(&self) -> String {
        format!("{}/{}", self.row.collection, self.row.name())
    }
}

/// Returns whether `found` has every value of `wanted`, comparing lists item by item.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| found.get(name).is_some_and(|found| covers(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| covers(found, wanted))
        }
        _ => found == wanted,
    }
}

/// Returns whether two objects agree in all fields of `shape`.
fn agree(one: &Value, other: &Value, shape: &Value) -> bool {
    match shape {
        Value::Object(fields) => fields.iter().all(|(name, shape)| agree(&one[name], &other[name], shape)),
        _ => one == other,
    }
}
