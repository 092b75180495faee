//! What stand-ins cost that have nothing to do: `cargo run --release -p standin --example idle -- 30 60`.
//!
//! Starts so many, each with a Deployment of three pods, waits until all are ready, and then for so many seconds; prints
//! memory and the processor time of those seconds.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use standin::{Options, Standin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let count = numbers.next().unwrap_or(Ok(30))?;
    let seconds = numbers.next().unwrap_or(Ok(60))?;
    let before = memory_kib();
    let begun = Instant::now();
    let mut standins = Vec::new();
    for number in 0..count {
        let standin = Standin::start(Options::new(format!("standin-{number}"))).await?;
        let body = deployment().to_string().into_bytes();
        let request = http::Request::post("/apis/apps/v1/namespaces/default/deployments");
        let request = request.header("content-type", "application/json").body(body)?;
        standin.client().request::<Value>(request).await?;
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
    println!("{count} stand-ins with 3 ready pods each after {:.1?}", begun.elapsed());
    // What was freed on the way is given back after a while, if at all.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (rss, cpu) = (memory_kib(), cpu_ticks());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let ticks = cpu_ticks() - cpu;
    println!("memory: {} MiB, {} KiB each above the empty process", rss >> 10, (rss - before) / count.max(1));
    println!("processor: {} ms in {seconds} s", ticks * 10);
    Ok(())
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": {
            "replicas": 3, "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": "nginx" }] },
            },
        },
    })
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
    let tick = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    tick(11) + tick(12)
}
