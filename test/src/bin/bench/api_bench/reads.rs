//! Gets and lists in one namespace full of ConfigMaps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use hyper::Method;
use memchr::memmem;
use rand::RngExt;
use tokio::task::JoinSet;

use super::client::{BenchConnection, ResponseHead};
use super::load::{Comparison, Effort, Workload};
use super::objects::{ConfigMaps, PREFIX, RARE, name};
use super::report::{Better, ReportRow};
use super::target::{BenchTarget, ServerPair};

const COLLECTION: &str = "/api/v1/namespaces/reads/configmaps";
const PAGE: usize = 500;
/// Clients that fill the namespace.
const FILLERS: usize = 64;

pub(crate) async fn compare(pair: &ServerPair, effort: Effort, objects: usize) -> Result<Vec<ReportRow>> {
    println!("filling a namespace with {objects} objects");
    let config_maps = ConfigMaps::new();
    for target in pair.targets() {
        fill_namespace(target, objects, &config_maps).await?;
    }
    let gets = Comparison::run("G256", "get, 256 at once", pair, (256, effort), |_| Get { objects }).await?;
    let page = List { path: format!("{COLLECTION}?limit={PAGE}"), count: PAGE.min(objects) };
    let pages =
        Comparison::run("L500", "list limit=500, 16 at once", pair, (16, effort), |_| page.clone()).await?;
    let full_list = List { path: COLLECTION.to_owned(), count: objects };
    let what = format!("list all {objects}, one after the other");
    let full_lists = Comparison::run("LFULL", what, pair, (1, effort), |_| full_list.clone()).await?;
    let selected_list =
        List { path: format!("{COLLECTION}?labelSelector=rare%3Dyes"), count: objects.div_ceil(RARE) };
    let what = format!("list by a label that 1 in {RARE} has, 16 at once");
    let selected_lists = Comparison::run("LSEL", what, pair, (16, effort), |_| selected_list.clone()).await?;
    let per_object = |list: &List, lists: &Comparison| {
        let count = list.count as f64;
        lists.row(": server CPU per object", "µs", Better::Less, move |round| round.cpu_us / count)
    };
    Ok(vec![
        gets.rate().goal("≥ 15×"),
        gets.p99(),
        gets.cpu().goal("≤ 25 µs"),
        pages.rate().goal("≥ 10×"),
        pages.p99(),
        per_object(&page, &pages).goal("≤ 3 µs"),
        full_lists.p50().goal("≥ 10×"),
        per_object(&full_list, &full_lists).goal("≤ 3 µs"),
        selected_lists.rate().goal("≥ 20×"),
        selected_lists.p99(),
        selected_lists.cpu(),
    ])
}

async fn fill_namespace(target: &BenchTarget, objects: usize, config_maps: &ConfigMaps) -> Result<()> {
    let mut connections = BenchConnection::open_for(target, FILLERS).await?;
    connections[0].create_namespace("reads").await?;
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for mut connection in connections {
        let (next, config_maps) = (next.clone(), config_maps.clone());
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= objects {
                    return anyhow::Ok(());
                }
                connection.send(Method::POST, COLLECTION, config_maps.body(number)).await?;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// Gets one of the objects.
struct Get {
    objects: usize,
}

impl Workload for Get {
    type Client = BenchConnection;
    const WRITES: bool = false;

    async fn prepare(&self, _setup: &mut BenchConnection) -> Result<()> {
        Ok(())
    }

    async fn client(&self, connection: BenchConnection, _number: usize) -> Result<BenchConnection> {
        Ok(connection)
    }

    async fn step(&self, client: &mut BenchConnection) -> Result<()> {
        let name = name(rand::rng().random_range(0..self.objects));
        let response = client.get(&format!("{COLLECTION}/{name}")).await?;
        ResponseHead::of(&response, "ConfigMap", &name)?;
        Ok(())
    }
}

/// Lists a path that must return this many of our objects.
#[derive(Clone)]
struct List {
    path: String,
    count: usize,
}

impl Workload for List {
    type Client = BenchConnection;
    const WRITES: bool = false;

    async fn prepare(&self, setup: &mut BenchConnection) -> Result<()> {
        // Checks once as JSON what the benchmark later only counts as bytes.
        let response: serde_json::Value = serde_json::from_slice(&setup.get(&self.path).await?)?;
        ensure!(response["kind"] == "ConfigMapList", "{} is a {}", self.path, response["kind"]);
        let ours = |item: &&serde_json::Value| {
            item.pointer("/metadata/name")
                .and_then(|name| name.as_str())
                .is_some_and(|n| n.starts_with(PREFIX))
        };
        let count = response["items"].as_array().into_iter().flatten().filter(ours).count();
        ensure!(count == self.count, "{} holds {count} instead of {}", self.path, self.count);
        Ok(())
    }

    async fn client(&self, connection: BenchConnection, _number: usize) -> Result<BenchConnection> {
        Ok(connection)
    }

    async fn step(&self, client: &mut BenchConnection) -> Result<()> {
        let response = client.get(&self.path).await?;
        // Parsing megabytes of JSON would make this a benchmark of the client.
        let count = memmem::find_iter(&response, &format!("\"name\":\"{PREFIX}")).count();
        ensure!(count == self.count, "{} holds {count} instead of {}", self.path, self.count);
        Ok(())
    }
}
