//! A mailbox, a physical cluster, a syncer, and test clients of both.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use api::names::{PLACED, TRUE};
use controller::remote::Remote;
use controller::tasks::Tasks;
use kube::Client;
pub(crate) use scenarios::client::{TestClient, until};
use serde_json::{Value, json};
use syncer::{Settings, Syncer};
use testkit::objects::condition;
pub(crate) use testkit::objects::namespace;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::server::{InProcessServer, TestLink};

pub(crate) const MAILBOX: &str = "~bcdfghjkmnpqrstv";
/// How long a wait may take before it fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nothing may be written for the state to count as steady.
pub(crate) const STEADY: Duration = Duration::from_secs(3);

pub(crate) struct SyncerTest {
    pub(crate) mailbox_server: InProcessServer,
    pub(crate) downstream_server: InProcessServer,
    pub(crate) mailbox: TestClient,
    pub(crate) downstream: TestClient,
    /// The links of the syncer.
    pub(crate) mailbox_link: TestLink,
    pub(crate) downstream_link: TestLink,
    pub(crate) directory: Option<PathBuf>,
}

/// A running syncer. It is aborted when dropped.
pub(crate) struct RunningSyncer {
    tasks: Option<Tasks>,
    handle: JoinHandle<()>,
}

impl RunningSyncer {
    pub(crate) fn start(mailbox: Client, downstream: Client, directory: Option<PathBuf>) -> RunningSyncer {
        let settings = Settings {
            name: "east".to_owned(),
            mailbox: MAILBOX.to_owned(),
            directory,
            encryption_key: Some([7; 32]),
        };
        let tasks = Tasks::new();
        let running = Syncer::new(mailbox, downstream, settings).run(tasks.stop());
        let handle = tokio::spawn(async move { running.await.expect("the syncer runs until it is stopped") });
        RunningSyncer { tasks: Some(tasks), handle }
    }

    /// Stops the syncer gracefully.
    pub(crate) async fn stop(mut self) {
        drop(self.tasks.take());
        (&mut self.handle).await.unwrap();
    }
}

impl Drop for RunningSyncer {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl SyncerTest {
    pub(crate) async fn new() -> Result<SyncerTest> {
        let (mailbox_server, downstream_server) =
            (InProcessServer::start().await?, InProcessServer::start().await?);
        Ok(SyncerTest {
            mailbox: TestClient(Remote::new(mailbox_server.client())),
            downstream: TestClient(Remote::new(downstream_server.client())),
            mailbox_server,
            downstream_server,
            mailbox_link: TestLink::new(),
            downstream_link: TestLink::new(),
            directory: None,
        })
    }

    pub(crate) fn start(&self) -> RunningSyncer {
        let mailbox = self.mailbox_server.through(&self.mailbox_link);
        let downstream = self.downstream_server.through(&self.downstream_link);
        RunningSyncer::start(mailbox, downstream, self.directory.clone())
    }

    /// Creates a placed object in the mailbox.
    pub(crate) async fn place(&self, path: &str, object: Value) -> Result<Value> {
        self.mailbox.create(path, placed(object)).await
    }

    /// Waits until nothing is written downstream for a while.
    pub(crate) async fn until_steady(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            self.downstream_link.written();
            sleep(STEADY).await;
            let written = self.downstream_link.written();
            match written.is_empty() {
                true => return Ok(()),
                false if begun.elapsed() > PATIENCE => {
                    bail!("the syncer still writes downstream: {written:?}")
                }
                false => {}
            }
        }
    }

    /// Returns a condition of the report.
    pub(crate) async fn condition(&self, name: &str) -> Result<Value> {
        let report = self.mailbox.get("/apis/holon.dev/v1alpha1/physicalclusters/east").await?;
        Ok(condition(&report.unwrap_or_default(), name))
    }
}

pub(crate) fn placed(mut object: Value) -> Value {
    object["metadata"]["labels"][PLACED] = TRUE.into();
    object
}

pub(crate) const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";

/// Returns a CronJob that fires every minute.
pub(crate) fn minutely() -> Value {
    let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } });
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "minutely", "namespace": "shop" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": pod } } },
    })
}

/// Returns whether the projections of a CronJob that fired are complete: its schedule time, its Job, and that Job's
/// pod.
pub(crate) async fn has_fired(mailbox: &TestClient) -> Result<bool> {
    let items = async |path: &str| {
        let list = mailbox.get(path).await?.unwrap_or_default()["items"].take();
        anyhow::Ok(list.as_array().cloned().unwrap_or_default())
    };
    let cron = mailbox.get(&format!("{CRON_JOBS}/minutely")).await?.unwrap_or_default();
    let is_owned_by = |owner: &Value| {
        let uid = owner["metadata"]["uid"].clone();
        move |object: &&Value| object["metadata"]["ownerReferences"][0]["uid"] == uid
    };
    let (jobs, pods) = (items(JOBS).await?, items(PODS).await?);
    let job = jobs.iter().filter(is_owned_by(&cron)).find(|job| job["status"]["succeeded"] == 1);
    let pod = job.and_then(|job| pods.iter().find(is_owned_by(job)));
    let has_times = ["lastScheduleTime", "lastSuccessfulTime"].map(|time| cron["status"][time].is_string());
    Ok(has_times == [true, true] && pod.is_some_and(|pod| pod["status"]["phase"] == "Succeeded"))
}

pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/shop/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
pub(crate) const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
pub(crate) const PODS: &str = "/api/v1/namespaces/shop/pods";

pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "shop" }, "data": { "key": value } })
}

pub(crate) fn deployment(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": "shop" },
        "spec": {
            "replicas": 2, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "web", "image": "web:1" }] } },
        },
    })
}
