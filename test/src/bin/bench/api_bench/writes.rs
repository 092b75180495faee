//! Creates and updates. Each round writes into a namespace of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use hyper::Method;

use super::client::{Connection, Head};
use super::load::{Comparison, Effort, Workload};
use super::objects::{ConfigMaps, deployment, name};
use super::report::Row;
use super::target::Pair;

pub(crate) async fn compare(pair: &Pair, effort: Effort) -> Result<Vec<Row>> {
    let create = |id: &'static str, kind| move |round| Create::new(format!("{id}-{round}"), kind);
    let serial = Comparison::run(
        "C1",
        "create, one after the other",
        pair,
        (1, effort),
        create("c1", Kind::ConfigMap),
    )
    .await?;
    let many =
        Comparison::run("C64", "create, 64 at once", pair, (64, effort), create("c64", Kind::ConfigMap))
            .await?;
    let deployments = Comparison::run(
        "D",
        "create a Deployment, 64 at once",
        pair,
        (64, effort),
        create("d", Kind::Deployment),
    )
    .await?;
    let update = |round| Update { namespace: format!("u64-{round}"), config_maps: ConfigMaps::new() };
    let updates = Comparison::run("U64", "update, 64 at once", pair, (64, effort), update).await?;
    Ok(vec![
        serial.p50().goal("≥ 4×"),
        serial.cpu(),
        many.rate().goal("≥ 10×"),
        many.p99().goal("≤ 15 ms"),
        many.cpu().goal("≥ 12×, ≤ 100 µs"),
        deployments.rate(),
        deployments.p99(),
        deployments.cpu(),
        updates.rate().goal("≥ 10×"),
        updates.p99(),
        updates.cpu(),
    ])
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    ConfigMap,
    Deployment,
}

/// Creates new objects without end.
struct Create {
    namespace: String,
    kind: Kind,
    config_maps: ConfigMaps,
    next: AtomicUsize,
}

impl Create {
    fn new(namespace: String, kind: Kind) -> Create {
        Create { namespace, kind, config_maps: ConfigMaps::new(), next: AtomicUsize::new(0) }
    }
}

impl Workload for Create {
    type Client = Connection;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut Connection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, connection: Connection, _number: usize) -> Result<Connection> {
        Ok(connection)
    }

    async fn step(&self, client: &mut Connection) -> Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (namespace, name) = (&self.namespace, name(number));
        let (path, kind, body) = match self.kind {
            Kind::ConfigMap => {
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                (path, "ConfigMap", self.config_maps.body(number))
            }
            Kind::Deployment => {
                let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
                (path, "Deployment", deployment(&name))
            }
        };
        let answer = client.send(Method::POST, &path, body).await?;
        Head::of(&answer, kind, &name)?;
        Ok(())
    }
}

/// Each client updates an object of its own, at the resource version of the last response.
struct Update {
    namespace: String,
    config_maps: ConfigMaps,
}

struct Updater {
    connection: Connection,
    number: usize,
    version: String,
    steps: usize,
}

impl Workload for Update {
    type Client = Updater;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut Connection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, mut connection: Connection, number: usize) -> Result<Updater> {
        let path = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        let answer = connection.send(Method::POST, &path, self.config_maps.body(number)).await?;
        let version = Head::of(&answer, "ConfigMap", &name(number))?.metadata.version.to_owned();
        Ok(Updater { connection, number, version, steps: 0 })
    }

    async fn step(&self, client: &mut Updater) -> Result<()> {
        client.steps += 1;
        let name = name(client.number);
        let path = format!("/api/v1/namespaces/{}/configmaps/{name}", self.namespace);
        let body = self.config_maps.changed(client.number, &client.version, client.steps);
        let answer = client.connection.send(Method::PUT, &path, body).await?;
        let version = Head::of(&answer, "ConfigMap", &name)?.metadata.version;
        anyhow::ensure!(version != client.version, "{name} was updated and is still at {version}");
        client.version = version.to_owned();
        Ok(())
    }
}
