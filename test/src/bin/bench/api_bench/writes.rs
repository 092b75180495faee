//! Creates and updates. Each round writes into a namespace of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use hyper::Method;

use super::client::{BenchConnection, ResponseHead};
use super::load::{Comparison, Effort, Workload};
use super::objects::{ConfigMaps, deployment, name};
use super::report::ReportRow;
use super::target::ServerPair;

pub(crate) async fn compare(pair: &ServerPair, effort: Effort) -> Result<Vec<ReportRow>> {
    let create = |id: &'static str, kind| move |round| Create::new(format!("{id}-{round}"), kind);
    let serial = Comparison::run(
        "C1",
        "create, one after the other",
        pair,
        (1, effort),
        create("c1", CreatedKind::ConfigMap),
    )
    .await?;
    let parallel = Comparison::run(
        "C64",
        "create, 64 at once",
        pair,
        (64, effort),
        create("c64", CreatedKind::ConfigMap),
    )
    .await?;
    let deployments = Comparison::run(
        "D",
        "create a Deployment, 64 at once",
        pair,
        (64, effort),
        create("d", CreatedKind::Deployment),
    )
    .await?;
    let update = |round| Update { namespace: format!("u64-{round}"), config_maps: ConfigMaps::new() };
    let updates = Comparison::run("U64", "update, 64 at once", pair, (64, effort), update).await?;
    Ok(vec![
        serial.p50().goal("≥ 4×"),
        serial.cpu(),
        parallel.rate().goal("≥ 10×"),
        parallel.p99().goal("≤ 15 ms"),
        parallel.cpu().goal("≥ 12×, ≤ 100 µs"),
        deployments.rate(),
        deployments.p99(),
        deployments.cpu(),
        updates.rate().goal("≥ 10×"),
        updates.p99(),
        updates.cpu(),
    ])
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CreatedKind {
    ConfigMap,
    Deployment,
}

/// Creates new objects without end.
struct Create {
    namespace: String,
    kind: CreatedKind,
    config_maps: ConfigMaps,
    next: AtomicUsize,
}

impl Create {
    fn new(namespace: String, kind: CreatedKind) -> Create {
        Create { namespace, kind, config_maps: ConfigMaps::new(), next: AtomicUsize::new(0) }
    }
}

impl Workload for Create {
    type Client = BenchConnection;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut BenchConnection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, connection: BenchConnection, _number: usize) -> Result<BenchConnection> {
        Ok(connection)
    }

    async fn step(&self, client: &mut BenchConnection) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (namespace, name) = (&self.namespace, name(number));
        let (path, kind, body) = match self.kind {
            CreatedKind::ConfigMap => {
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                (path, "ConfigMap", self.config_maps.body(number))
            }
            CreatedKind::Deployment => {
                let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
                (path, "Deployment", deployment(&name))
            }
        };
        let response = client.send(Method::POST, &path, body).await?;
        ResponseHead::of(&response, kind, &name)?;
        Ok(())
    }
}

/// Each client updates an object of its own, at the resource version of the last response.
struct Update {
    namespace: String,
    config_maps: ConfigMaps,
}

struct Updater {
    connection: BenchConnection,
    number: usize,
    version: String,
    steps: usize,
}

impl Workload for Update {
    type Client = Updater;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut BenchConnection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, mut connection: BenchConnection, number: usize) -> Result<Updater> {
        let path = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let response = connection.send(Method::POST, &path, self.config_maps.body(number)).await?;
        let version = ResponseHead::of(&response, "ConfigMap", &name(number))?.metadata.version.to_owned();
        Ok(Updater { connection, number, version, steps: 0 })
    }

    async fn step(&self, client: &mut Updater) -> Result<()> {
        client.steps += 1;
        let name = name(client.number);
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace);
        let body = self.config_maps.changed(client.number, &client.version, client.steps);
        let response = client.connection.send(Method::PUT, &path, body).await?;
        let version = ResponseHead::of(&response, "ConfigMap", &name)?.metadata.version;
        anyhow::ensure!(version != client.version, "{name} was updated and is still at {version}");
        client.version = version.to_owned();
        Ok(())
    }
}
