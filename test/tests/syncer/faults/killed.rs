//! The syncer is killed at every write it makes, on either side, before and after the write is executed.
//!
//! A stand-in creates the pods, so the test covers all writes of a syncer: finalizers, applies and deletes, statuses,
//! projections and their removal, the report and the lease. Each round kills it one write later, until it finishes its
//! work without being killed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use controller::remote::Remote;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tokio::time::{Instant, sleep};

use crate::server::{CutPoint, InProcessServer, TestLink};
use crate::setup::*;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/holon-syncer";
/// More writes than any round needs.
const WRITES_MAX: usize = 150;
/// How long a syncer that is not killed may take. It takes moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_a_mailbox_write_is_executed() -> Result<()> {
    KillTest::new().await?.killed_at_every_write(|test| &test.mailbox_link, CutPoint::BeforeWrite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_a_mailbox_write_is_executed() -> Result<()> {
    KillTest::new().await?.killed_at_every_write(|test| &test.mailbox_link, CutPoint::AfterWrite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_a_downstream_write_is_executed() -> Result<()> {
    KillTest::new().await?.killed_at_every_write(|test| &test.downstream_link, CutPoint::BeforeWrite).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_a_downstream_write_is_executed() -> Result<()> {
    KillTest::new().await?.killed_at_every_write(|test| &test.downstream_link, CutPoint::AfterWrite).await
}

struct KillTest {
    mailbox_server: InProcessServer,
    standin: Standin,
    mailbox: TestClient,
    downstream: TestClient,
    mailbox_link: TestLink,
    downstream_link: TestLink,
    state: tempfile::TempDir,
}

impl KillTest {
    async fn new() -> Result<KillTest> {
        let (mailbox_server, standin) =
            (InProcessServer::start().await?, Standin::start(Options::new("east")).await?);
        let mailbox = TestClient(Remote::new(mailbox_server.client()));
        let downstream = TestClient(Remote::new(standin.client()));
        let (mailbox_link, downstream_link) = (TestLink::new(), TestLink::new());
        mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
        mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
        mailbox.create(CONFIG_MAPS, placed(map("m0", "one"))).await?;
        let state = tempfile::tempdir()?;
        Ok(KillTest { mailbox_server, standin, mailbox, downstream, mailbox_link, downstream_link, state })
    }

    fn start(&self) -> RunningSyncer {
        let directory: PathBuf = self.state.path().to_owned();
        let mailbox = self.mailbox_server.through(&self.mailbox_link);
        RunningSyncer::start(mailbox, self.downstream_link.over(self.standin.client()), Some(directory))
    }

    async fn killed_at_every_write(self, link_of: fn(&KillTest) -> &TestLink, point: CutPoint) -> Result<()> {
        self.until_in_sync(0).await?;
        for writes in 0.. {
            ensure!(writes < WRITES_MAX, "the syncer is still killed at write {writes}");
            let round = writes + 1;
            self.make_changes(round).await?;
            let link = link_of(&self);
            link.cut_at(writes, point);
            let running = self.start();
            let finishes = self.finishes(round, link).await.with_context(|| format!("write {writes}"))?;
            drop(running);
            let is_killed = link.is_cut();
            ensure!(finishes || is_killed, "write {writes}: the syncer was neither killed nor finished");
            link.clear_faults();
            // The lease of a killed syncer is deleted, so that the next one does not wait for its end.
            self.mailbox.delete(LEASE).await?;
            self.until_in_sync(round)
                .await
                .with_context(|| format!("killed at write {writes}, {point:?}"))?;
            if !is_killed {
                // Downstream there are at least two applies and one delete; with fewer writes the syncer did nothing.
                ensure!(writes >= 3, "only {writes} writes");
                println!("{point:?}: killed at each of {writes} writes");
                break;
            }
        }
        self.check_deletions()
    }

    /// Changes, creates and deletes objects.
    async fn make_changes(&self, round: usize) -> Result<()> {
        let container = json!({ "name": "web", "image": format!("web:{round}") });
        let change = json!({ "spec": { "replicas": 1 + round % 2, "template": { "spec": { "containers": [container] } } } });
        self.mailbox.merge(&format!("{DEPLOYMENTS}/web"), change).await?;
        self.mailbox.create(CONFIG_MAPS, placed(map(&format!("m{round}"), "one"))).await?;
        self.mailbox.delete(&format!("{CONFIG_MAPS}/m{}", round - 1)).await
    }

    /// Waits and returns whether the syncer finished its work before the link was cut.
    async fn finishes(&self, round: usize, link: &TestLink) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if link.is_cut() {
                return Ok(false);
            }
            if self.first_difference(round).await?.is_none() {
                // The report follows a little later, and is a write as well.
                sleep(STEADY).await;
                return Ok(true);
            }
            ensure!(begun.elapsed() < PATIENCE, "the syncer is neither killed nor finished");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until an undisturbed syncer has brought everything in sync.
    async fn until_in_sync(&self, round: usize) -> Result<()> {
        let running = self.start();
        let mut first_difference = None;
        let same = until("everything is in sync", async || {
            first_difference = self.first_difference(round).await?;
            Ok(first_difference.is_none())
        });
        same.await.with_context(|| first_difference.unwrap_or_default())?;
        running.stop().await;
        Ok(())
    }

    /// Returns the first object that is not in sync.
    async fn first_difference(&self, round: usize) -> Result<Option<String>> {
        let path = format!("{DEPLOYMENTS}/web");
        let read =
            async |client: &TestClient| Ok::<_, anyhow::Error>(client.get(&path).await?.unwrap_or_default());
        let (in_mailbox, downstream) = (read(&self.mailbox).await?, read(&self.downstream).await?);
        let image = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let mut expected_status = downstream["status"].clone();
        if !expected_status["observedGeneration"].is_null() {
            expected_status["observedGeneration"] = in_mailbox["metadata"]["generation"].clone();
        }
        let ready = &in_mailbox["status"]["readyReplicas"];
        if image(&in_mailbox) != image(&downstream)
            || in_mailbox["status"] != expected_status
            || *ready != in_mailbox["spec"]["replicas"]
        {
            return Ok(Some(format!("mailbox {:#}, downstream {expected_status:#}", in_mailbox["status"])));
        }
        for path in [PODS, REPLICA_SETS] {
            let (projected, downstream) =
                (names(&self.mailbox, path).await?, names(&self.downstream, path).await?);
            if projected != downstream {
                return Ok(Some(format!("{path}: {projected:?}, not {downstream:?}")));
            }
        }
        let expected = vec![format!("m{round}")];
        for client in [&self.mailbox, &self.downstream] {
            let placed = names(client, &format!("{CONFIG_MAPS}?labelSelector=holon.dev/placed")).await?;
            if placed != expected {
                return Ok(Some(format!("{placed:?}, not {expected:?}")));
            }
        }
        Ok(None)
    }

    fn check_deletions(&self) -> Result<()> {
        let is_requested = |call: &str| call.starts_with(&format!("DELETE {CONFIG_MAPS}/m"));
        let calls = self.downstream_link.written();
        let unrequested: Vec<_> =
            calls.iter().filter(|call| call.starts_with("DELETE") && !is_requested(call)).collect();
        ensure!(unrequested.is_empty(), "the syncer made deletions that no user requested: {unrequested:?}");
        // Checked once more with the counters of the physical cluster.
        let deleted: Vec<_> =
            self.standin.requests().0.into_keys().filter(|(verb, _)| verb.starts_with("delete")).collect();
        ensure!(
            deleted.iter().all(|(verb, resource)| verb == "delete" && resource == "configmaps"),
            "{deleted:?}"
        );
        Ok(())
    }
}

async fn names(client: &TestClient, path: &str) -> Result<Vec<String>> {
    let list = client.get(path).await?.unwrap_or_default();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<_> = list["items"].as_array().into_iter().flatten().map(name).collect();
    names.sort();
    Ok(names)
}
