//! The cost of idle stand-ins: `cargo bench -p standin --bench idle -- 30 60`.
//!
//! Starts so many, each with one of every kind of workload, waits until their three web pods are ready, and then for so many
//! seconds; prints memory and the processor time of those seconds.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standin::{Options, Standin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = arguments().map(|text| text.parse::<u64>());
    let count = numbers.next().unwrap_or(Ok(30))?;
    let seconds = numbers.next().unwrap_or(Ok(60))?;
    let before = memory_kib();
    let started = Instant::now();
    let mut standins = Vec::new();
    for number in 0..count {
        let standin = Standin::start(Options::new(format!("standin-{number}"))).await?;
        let client = standin.client();
        for (path, object) in workloads() {
            let request = http::Request::post(path).header("content-type", "application/json");
            client.request::<Value>(request.body(object.to_string().into_bytes())?).await?;
        }
        standins.push(standin);
    }
    for standin in &standins {
        let client = standin.client();
        loop {
            let request =
                http::Request::get("/apis/apps/v1/namespaces/default/deployments/web").body(Vec::new())?;
            let web: Value = client.request(request).await?;
            if web["status"]["availableReplicas"] == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("{count} stand-ins with 7 pods each after {:.1?}", started.elapsed());
    // The allocator returns freed memory to the system after a delay, if at all.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (rss, cpu) = (memory_kib(), cpu_ticks());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let ticks = cpu_ticks() - cpu;
    println!("memory: {} MiB, {} KiB each above the empty process", rss >> 10, (rss - before) / count.max(1));
    println!("processor: {} ms in {seconds} s", ticks * 10);
    Ok(())
}

fn workloads() -> Vec<(&'static str, Value)> {
    let selector = json!({ "matchLabels": { "app": "web" } });
    let template = json!({
        "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
    });
    let mut ending = json!({ "template": template });
    ending["template"]["spec"]["restartPolicy"] = "Never".into();
    let object = |api: &str, kind: &str, spec: Value| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "web" }, "spec": spec });
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    let labelled = |app: &str, mut spec: Value| {
        spec["selector"]["matchLabels"]["app"] = app.into();
        spec["template"] = template.clone();
        spec["template"]["metadata"]["labels"]["app"] = app.into();
        spec
    };
    vec![
        (
            "/apis/apps/v1/namespaces/default/deployments",
            object("apps/v1", "Deployment", labelled("web", json!({ "replicas": 3 }))),
        ),
        (
            "/apis/apps/v1/namespaces/default/statefulsets",
            object(
                "apps/v1",
                "StatefulSet",
                labelled("db", json!({ "serviceName": "db", "volumeClaimTemplates": [claim] })),
            ),
        ),
        (
            "/apis/apps/v1/namespaces/default/daemonsets",
            object("apps/v1", "DaemonSet", labelled("agent", json!({}))),
        ),
        ("/apis/batch/v1/namespaces/default/jobs", object("batch/v1", "Job", ending.clone())),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            object(
                "batch/v1",
                "CronJob",
                json!({ "schedule": "0 3 * * *", "jobTemplate": { "spec": ending } }),
            ),
        ),
        (
            "/api/v1/namespaces/default/services",
            object(
                "v1",
                "Service",
                json!({ "type": "LoadBalancer", "selector": { "app": "web" }, "ports": [{ "port": 80 }] }),
            ),
        ),
        (
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            object("policy/v1", "PodDisruptionBudget", json!({ "minAvailable": 1, "selector": selector })),
        ),
    ]
}

/// Resident memory of this process.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// Processor time of this process, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let tick = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    tick(11) + tick(12)
}

/// The arguments, without the one that cargo adds.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench")
}
