//! The same with a real Kubernetes downstream: its API server, controllers and scheduler, and simulated
//! nodes.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result};
use controller::remote::Remote;
use http::{Method, Request};
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use testkit::peers::Cluster;
use tokio::time::sleep;
use tower::util::MapRequestLayer;

use crate::server::InProcessServer;
use crate::setup::*;

/// A record of a client's writes.
#[derive(Clone, Default)]
struct WriteLog(Arc<Mutex<Vec<String>>>);

/// Returns a client that records its writes.
async fn client(cluster: &Cluster, written: &WriteLog) -> Result<Client> {
    let config = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let written = written.clone();
    let record = move |request: Request<Body>| {
        if request.method() != Method::GET {
            written.0.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
        request
    };
    Ok(ClientBuilder::try_from(config)?.with_layer(&MapRequestLayer::new(record)).build())
}

fn placed_in(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    placed(object)
}

fn pod_template(name: &str) -> Value {
    json!({ "metadata": { "labels": { "app": name } }, "spec": { "containers": [{ "name": "main", "image": "busybox" }] } })
}

/// A collection, an object, and whether the object has reached the expected state.
type KindSample = (&'static str, Value, fn(&Value) -> bool);

/// Returns one object of each kind, with a check of its status in the mailbox.
fn kind_samples() -> Vec<KindSample> {
    let selector = |name: &str| json!({ "matchLabels": { "app": name } });
    let mut once = pod_template("once");
    once["spec"]["restartPolicy"] = json!("Never");
    vec![
        ("apis/apps/v1/namespaces/shop/deployments", deployment("web"), |found| {
            found["status"]["readyReplicas"] == 2
        }),
        (
            "apis/apps/v1/namespaces/shop/statefulsets",
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
                "spec": {
                    "replicas": 1, "selector": selector("db"), "serviceName": "db", "template": pod_template("db"),
                    "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } } } }],
                },
            }),
            |found| found["status"]["replicas"] == 1,
        ),
        (
            "apis/apps/v1/namespaces/shop/daemonsets",
            json!({
                "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "agent" },
                "spec": { "selector": selector("agent"), "template": pod_template("agent") },
            }),
            |found| found["status"]["numberReady"] == 1,
        ),
        (
            "apis/batch/v1/namespaces/shop/jobs",
            json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "once" }, "spec": { "template": once } }),
            |found| found["status"]["succeeded"] == 1,
        ),
        (
            "api/v1/namespaces/shop/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
                "spec": { "type": "NodePort", "selector": { "app": "web" }, "ports": [{ "port": 80 }] },
            }),
            |found| found["status"]["loadBalancer"].is_object(),
        ),
        (
            "api/v1/namespaces/shop/secrets",
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" }, "data": { "a": "Yg==" } }),
            |_| true,
        ),
    ]
}

/// Returns the names of the objects in a collection.
async fn names(client: &TestClient, path: &str) -> Result<Vec<String>> {
    let list = client.get(path).await?.context(path.to_owned())?;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<_> = list["items"].as_array().into_iter().flatten().map(name).collect();
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes cluster"]
async fn a_real_kubernetes_runs_placed_objects_and_they_are_projected() -> Result<()> {
    let cluster = Cluster::start(&[]);
    let server = InProcessServer::start().await?;
    let written = WriteLog::default();
    let mailbox = TestClient(Remote::new(server.client()));
    let downstream = TestClient(Remote::new(client(&cluster, &WriteLog::default()).await?));
    let running = RunningSyncer::start(server.client(), client(&cluster, &written).await?, None);
    mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    check_cron_job(&mailbox, &downstream).await?;
    for (path, object, _) in kind_samples() {
        mailbox
            .create(&format!("/{path}"), placed_in("shop", object))
            .await
            .with_context(|| path.to_owned())?;
    }
    for (path, object, is_expected) in kind_samples() {
        let path = format!("/{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        let projected = mailbox.until(&path, is_expected).await?;
        let downstream_object = downstream.until_exists(&path).await?;
        let mut expected_status = downstream_object["status"].clone();
        if expected_status["observedGeneration"].is_i64() {
            expected_status["observedGeneration"] = projected["metadata"]["generation"].clone();
        }
        if !expected_status.is_null() && !path.contains("statefulsets") {
            mailbox.until(&path, |found| found["status"] == expected_status).await?;
        }
    }
    // All dependents are projected.
    for path in [
        PODS,
        REPLICA_SETS,
        "/api/v1/namespaces/shop/persistentvolumeclaims",
        "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices",
    ] {
        let downstream_objects = names(&downstream, path).await?;
        let projected = until(&format!("{path} has {downstream_objects:?}"), async || {
            Ok(names(&mailbox, path).await? == downstream_objects)
        })
        .await;
        if projected.is_err() {
            let report =
                mailbox.get("/apis/holon.dev/v1alpha1/physicalclusters/east").await?.unwrap_or_default();
            println!("only {:?}; {:#}", names(&mailbox, path).await?, report["status"]["conditions"]);
        }
        projected?;
    }
    let pods = mailbox.get(PODS).await?.context("pods")?;
    let web =
        pods["items"].as_array().into_iter().flatten().find(|pod| pod["metadata"]["labels"]["app"] == "web");
    let web = web.context("a pod of web")?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    until("the pod's events are projected", async || {
        let events = mailbox.get("/api/v1/namespaces/shop/events").await?.unwrap_or_default();
        let about = |event: &Value| event["involvedObject"]["name"] == web && event["reason"] == "Scheduled";
        Ok(events["items"].as_array().into_iter().flatten().any(about))
    })
    .await?;

    until_steady(&written).await?;
    latencies(&mailbox, &downstream, &web).await?;

    // Deleting a projected pod deletes the real one, and its controller creates another.
    mailbox.delete(&format!("{PODS}/{web}")).await?;
    downstream.until_deleted(&format!("{PODS}/{web}")).await?;
    mailbox.until_deleted(&format!("{PODS}/{web}")).await?;
    mailbox.until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["readyReplicas"] == 2).await?;
    // Scaling in the mailbox scales downstream; scaling downstream is reverted.
    mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 3 } })).await?;
    mailbox.until(&format!("{DEPLOYMENTS}/web"), |found| found["status"]["readyReplicas"] == 3).await?;
    downstream.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 1 } })).await?;
    downstream.until(&format!("{DEPLOYMENTS}/web"), |found| found["spec"]["replicas"] == 3).await?;
    // The report has the capacity of the cluster.
    let report = mailbox.until("/apis/holon.dev/v1alpha1/physicalclusters/east", |found| {
        found["status"]["nodes"]["ready"] == 1
    });
    let report = report.await?;
    assert_eq!(report["status"]["allocatable"]["cpu"], "64", "{report:#}");
    reports_usage_quotas_and_kinds(&mailbox, &downstream).await?;

    for (path, object, _) in kind_samples() {
        let path = format!("/{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        mailbox.delete(&path).await?;
        mailbox.until_deleted(&path).await?;
        downstream.until_deleted(&path).await?;
    }
    until("no pod exists", async || {
        Ok(names(&downstream, PODS).await?.is_empty() && names(&mailbox, PODS).await?.is_empty())
    })
    .await?;
    running.stop().await;
    assert!(cluster.down());
    Ok(())
}

/// A CronJob fires within a minute; its Job and that Job's pod are projected, and are deleted with it.
async fn check_cron_job(mailbox: &TestClient, downstream: &TestClient) -> Result<()> {
    mailbox.create(CRON_JOBS, placed(minutely())).await?;
    let begun = Instant::now();
    while !has_fired(mailbox).await? {
        anyhow::ensure!(begun.elapsed().as_secs() < 100, "{:#?}", names(mailbox, JOBS).await?);
        sleep(std::time::Duration::from_millis(200)).await;
    }
    mailbox.delete(&format!("{CRON_JOBS}/minutely")).await?;
    downstream.until_deleted(&format!("{CRON_JOBS}/minutely")).await?;
    until("its Job and pod are deleted", async || {
        let remaining =
            [names(mailbox, JOBS).await?, names(downstream, JOBS).await?, names(mailbox, PODS).await?];
        Ok(remaining.iter().all(Vec::is_empty))
    })
    .await
}

/// The report has the requests of pods, the quotas and the served kinds.
async fn reports_usage_quotas_and_kinds(mailbox: &TestClient, downstream: &TestClient) -> Result<()> {
    let mut pod_with_requests = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "hungry", "namespace": "shop" },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    pod_with_requests["spec"]["containers"][0]["resources"] =
        json!({ "requests": { "cpu": "1500m", "memory": "3Gi" } });
    downstream.create(PODS, pod_with_requests).await?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small", "namespace": "shop" },
        "spec": { "hard": { "requests.cpu": "8", "pods": "40" } },
    });
    downstream.create("/api/v1/namespaces/shop/resourcequotas", quota).await?;
    // The inventory is counted once a minute.
    let path = "/apis/holon.dev/v1alpha1/physicalclusters/east";
    let begun = Instant::now();
    loop {
        let status = mailbox.get(path).await?.unwrap_or_default()["status"].take();
        let quota = &status["quotas"][0];
        let is_expected = status["requested"]["cpu"] == "1500m"
            && status["requested"]["memory"] == "3Gi"
            && quota["namespace"] == "shop"
            && quota["hard"]["pods"] == "40"
            && quota["used"]["requests.cpu"] == "1500m";
        if is_expected {
            let kinds = status["kinds"].as_array().into_iter().flatten();
            let serves = |group: &str, kind: &str| {
                kinds.clone().any(|found| found["group"] == group && found["kind"] == kind)
            };
            assert!(serves("apps", "Deployment") && serves("batch", "CronJob"), "{:#}", status["kinds"]);
            let versions = |group: &str, plural: &str| -> Value {
                let found =
                    kinds.clone().find(|found| found["group"] == group && found["resource"] == plural);
                found.map(|found| found["versions"].clone()).unwrap_or_default()
            };
            assert_eq!(versions("apps", "deployments"), json!(["v1"]));
            // The cluster's preferred version comes first.
            assert_eq!(versions("autoscaling", "horizontalpodautoscalers"), json!(["v2", "v1"]));
            break;
        }
        anyhow::ensure!(begun.elapsed().as_secs() < 150, "{status:#}");
        sleep(std::time::Duration::from_secs(1)).await;
    }
    downstream.delete("/api/v1/namespaces/shop/resourcequotas/small").await?;
    downstream.delete(&format!("{PODS}/hungry")).await?;
    downstream.until_deleted(&format!("{PODS}/hungry")).await
}

/// Waits until nothing is written downstream for a while.
async fn until_steady(written: &WriteLog) -> Result<()> {
    until("nothing is written", async || {
        written.0.lock().unwrap().clear();
        sleep(STEADY).await;
        Ok(written.0.lock().unwrap().is_empty())
    })
    .await
}

/// Measures how long a change takes each way, for the log.
async fn latencies(mailbox: &TestClient, downstream: &TestClient, pod: &str) -> Result<()> {
    mailbox.create(CONFIG_MAPS, placed(map("clock", "0"))).await?;
    let (clock, pod) = (format!("{CONFIG_MAPS}/clock"), format!("{PODS}/{pod}"));
    downstream.until_exists(&clock).await?;
    let (mut down, mut up) = (Vec::new(), Vec::new());
    for round in 1..=50 {
        let word = round.to_string();
        let begun = Instant::now();
        mailbox.merge(&clock, json!({ "data": { "key": word } })).await?;
        downstream.until(&clock, |found| found["data"]["key"] == word).await?;
        down.push(begun.elapsed());
        let begun = Instant::now();
        downstream.merge(&format!("{pod}/status"), json!({ "status": { "message": word } })).await?;
        mailbox.until(&pod, |found| found["status"]["message"] == word).await?;
        up.push(begun.elapsed());
    }
    for (direction, took) in [("from the mailbox to a real kube-apiserver", &mut down), ("and back", &mut up)]
    {
        took.sort();
        println!("{direction}: p50 {:?}, most {:?}", took[took.len() / 2], took[took.len() - 1]);
    }
    mailbox.delete(&clock).await?;
    downstream.until_deleted(&clock).await
}
