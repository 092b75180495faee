//! Figures of Holon alone: the time until it serves, and the cost of a logical cluster.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use hyper::Method;
use serde_json::{Value, json};
use testkit::Server;
use tokio::task::JoinSet;

use super::client::{BenchConnection, ResponseHead};
use super::report::{Better, ReportRow};
use super::target::BenchTarget;

const COLLECTION: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
/// Clients that create logical clusters.
const CREATORS: usize = 16;

/// Measures the time from an empty directory to a response.
pub(crate) async fn start(program: &Path, rounds: usize) -> Result<Vec<ReportRow>> {
    println!("START: from an empty directory");
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let begun = Instant::now();
        let server = Server::start_with(program.to_owned(), &[]);
        let ready = begun.elapsed();
        // The time of `holon kubeconfig` does not count.
        let target = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
        let begun = Instant::now();
        let response = BenchConnection::open(&target).await?.get("/api/v1/namespaces/default").await?;
        ResponseHead::of(&response, "Namespace", "default")?;
        figures.push(((ready + begun.elapsed()).as_secs_f64() * 1000.0, None));
    }
    let what = "start in an empty directory, to the first response";
    Ok(vec![ReportRow::new("START", what, "ms", Better::Less, &figures).goal("≤ 60 ms")])
}

/// Creates many logical clusters in an otherwise idle server.
pub(crate) async fn logical_clusters(program: &Path, count: usize) -> Result<Vec<ReportRow>> {
    println!("LC: {count} logical clusters");
    let server = Server::start_with(program.to_owned(), &[]);
    let target = BenchTarget::open("Holon", &server.kubeconfig_file("root"), vec![server.pid()])?;
    let connections = BenchConnection::open_for(&target, CREATORS).await?;
    let mut observer = connections[0].clone();
    // The first logical cluster creates what all of them share.
    create(&mut observer, "first").await?;
    let (rss, cpu, begun) = (target.rss_bytes()?, target.cpu_seconds()?, Instant::now());
    let mut tasks = JoinSet::new();
    for (creator, mut connection) in connections.into_iter().enumerate() {
        tasks.spawn(async move {
            for number in (creator..count).step_by(CREATORS) {
                create(&mut connection, &format!("lc-{number}")).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let each = |total: f64| [(total / count as f64, None)];
    let rss = target.rss_bytes()?.saturating_sub(rss) as f64;
    let cpu = (target.cpu_seconds()? - cpu) * 1e6;
    all_ready(&mut observer, count + 1).await?;
    let what = |figure: &str| format!("create {count} logical clusters: {figure}");
    Ok(vec![
        ReportRow::new("LC", what("rate"), "1/s", Better::More, &[(count as f64 / seconds, None)])
            .goal("≥ 4000/s"),
        ReportRow::new("LC", what("server CPU each"), "µs", Better::Less, &each(cpu)),
        ReportRow::new("LC", what("memory each"), "B", Better::Less, &each(rss)),
    ])
}

async fn create(connection: &mut BenchConnection, name: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "holon.dev/v1alpha1",
        "kind": "LogicalCluster",
        "metadata": { "name": name },
    });
    let response = connection.send(Method::POST, COLLECTION, object.to_string().into()).await?;
    ResponseHead::of(&response, "LogicalCluster", name)?;
    Ok(())
}

/// Checks that every logical cluster is ready at once.
async fn all_ready(connection: &mut BenchConnection, count: usize) -> Result<()> {
    let list: Value = serde_json::from_slice(&connection.get(COLLECTION).await?)?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = items.iter().filter(|item| item.pointer("/status/phase") == Some(&json!("Ready"))).count();
    ensure!(ready == count, "{ready} logical clusters of {count} are ready");
    Ok(())
}
