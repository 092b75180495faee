//! The syncer is killed at every write it makes, on either side, before and after the write is executed.
//!
//! A stand-in creates the pods, so the test covers all writes of a syncer: finalizers, applies and deletes, statuses,
//! projections and their removal, the report and the lease. Each turn kills it one write later, until it finishes its
//! work without being killed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use controller::remote::Remote;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tokio::time::{Instant, sleep};

use crate::server::{Link, Moment, Server};
use crate::setup::*;

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/holon-syncer";
/// More writes than any turn needs.
const TURNS_MAX: usize = 150;
/// How long a syncer that is not killed may take. It takes moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn at_a_write_into_the_mailbox_before_it_is_done() -> Result<()> {
    Stage::new().await?.killed_at_every_write(|stage| &stage.mailbox_link, Moment::Before).await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_write_into_the_mailbox_after_it_is_done() -> Result<()> {
    Stage::new().await?.killed_at_every_write(|stage| &stage.mailbox_link, Moment::After).await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_write_below_before_it_is_done() -> Result<()> {
    Stage::new().await?.killed_at_every_write(|stage| &stage.below_link, Moment::Before).await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_write_below_after_it_is_done() -> Result<()> {
    Stage::new().await?.killed_at_every_write(|stage| &stage.below_link, Moment::After).await
}

struct Stage {
    mailbox_server: Server,
    standin: Standin,
    mailbox: TestClient,
    below: TestClient,
    mailbox_link: Link,
    below_link: Link,
    state: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Result<Stage> {
        let (mailbox_server, standin) = (Server::start().await?, Standin::start(Options::new("east")).await?);
        let mailbox = TestClient(Remote::new(mailbox_server.client()));
        let below = TestClient(Remote::new(standin.client()));
        let (mailbox_link, below_link) = (Link::new(), Link::new());
        mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
        mailbox.make(DEPLOYMENTS, placed(deployment("web"))).await?;
        mailbox.make(MAPS, placed(map("m0", "one"))).await?;
        let state = tempfile::tempdir()?;
        Ok(Stage { mailbox_server, standin, mailbox, below, mailbox_link, below_link, state })
    }

    fn start(&self) -> Running {
        let directory: PathBuf = self.state.path().to_owned();
        let mailbox = self.mailbox_server.through(&self.mailbox_link);
        Running::start(mailbox, self.below_link.over(self.standin.client()), Some(directory))
    }

    async fn killed_at_every_write(self, which: fn(&Stage) -> &Link, moment: Moment) -> Result<()> {
        self.settles(0).await?;
        for writes in 0.. {
            ensure!(writes < TURNS_MAX, "it is still killed at write {writes}");
            let turn = writes + 1;
            self.ask(turn).await?;
            let link = which(&self);
            link.cut_at(writes, moment);
            let running = self.start();
            let got_through =
                self.got_through(turn, link).await.with_context(|| format!("write {writes}"))?;
            drop(running);
            let is_killed = link.is_cut();
            ensure!(got_through || is_killed, "write {writes}: neither killed nor through");
            link.mend();
            // The lease of a killed syncer is deleted, so that the next one does not wait for its end.
            self.mailbox.delete(LEASE).await?;
            self.settles(turn).await.with_context(|| format!("killed at write {writes}, {moment:?}"))?;
            if !is_killed {
                // Downstream there are at least two applies and one delete; with fewer writes the syncer did nothing.
                ensure!(writes >= 3, "only {writes} writes");
                println!("{moment:?}: killed at {writes} writes");
                break;
            }
        }
        self.nothing_else_was_deleted()
    }

    /// Changes, creates and deletes objects.
    async fn ask(&self, turn: usize) -> Result<()> {
        let container = json!({ "name": "web", "image": format!("web:{turn}") });
        let change = json!({ "spec": { "replicas": 1 + turn % 2, "template": { "spec": { "containers": [container] } } } });
        self.mailbox.merge(&format!("{DEPLOYMENTS}/web"), change).await?;
        self.mailbox.make(MAPS, placed(map(&format!("m{turn}"), "one"))).await?;
        self.mailbox.delete(&format!("{MAPS}/m{}", turn - 1)).await
    }

    /// Waits and returns whether the syncer finished its work before the link was cut.
    async fn got_through(&self, turn: usize, link: &Link) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if link.is_cut() {
                return Ok(false);
            }
            if self.differs(turn).await?.is_none() {
                // The report follows a little later, and is a write as well.
                sleep(STEADY).await;
                return Ok(true);
            }
            ensure!(begun.elapsed() < PATIENCE, "it is not killed, and does not get through");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until an undisturbed syncer has brought everything in sync.
    async fn settles(&self, turn: usize) -> Result<()> {
        let running = self.start();
        let mut differs = None;
        let same = until("all is as it was asked for", async || {
            differs = self.differs(turn).await?;
            Ok(differs.is_none())
        });
        same.await.with_context(|| differs.unwrap_or_default())?;
        running.stop().await;
        Ok(())
    }

    /// Returns the first object that is not in sync.
    async fn differs(&self, turn: usize) -> Result<Option<String>> {
        let path = format!("{DEPLOYMENTS}/web");
        let read =
            async |client: &TestClient| Ok::<_, anyhow::Error>(client.get(&path).await?.unwrap_or_default());
        let (here, real) = (read(&self.mailbox).await?, read(&self.below).await?);
        let image = |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["image"].clone();
        let mut exact = real["status"].clone();
        if !exact["observedGeneration"].is_null() {
            exact["observedGeneration"] = here["metadata"]["generation"].clone();
        }
        let ready = &here["status"]["readyReplicas"];
        if image(&here) != image(&real) || here["status"] != exact || *ready != here["spec"]["replicas"] {
            return Ok(Some(format!("here {:#}, below {exact:#}", here["status"])));
        }
        for path in [PODS, SETS] {
            let (shown, real) = (names(&self.mailbox, path).await?, names(&self.below, path).await?);
            if shown != real {
                return Ok(Some(format!("{path}: {shown:?}, not {real:?}")));
            }
        }
        let expected = vec![format!("m{turn}")];
        for client in [&self.mailbox, &self.below] {
            let placed = names(client, &format!("{MAPS}?labelSelector=holon.dev/placed")).await?;
            if placed != expected {
                return Ok(Some(format!("{placed:?}, not {expected:?}")));
            }
        }
        Ok(None)
    }

    fn nothing_else_was_deleted(&self) -> Result<()> {
        let is_asked = |call: &str| call.starts_with(&format!("DELETE {MAPS}/m"));
        let calls = self.below_link.written();
        let unasked: Vec<_> =
            calls.iter().filter(|call| call.starts_with("DELETE") && !is_asked(call)).collect();
        ensure!(unasked.is_empty(), "deletes that nobody asked for: {unasked:?}");
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
