//! Server-side apply as controllers and deployment tools use it: mostly without a change.

use anyhow::{Result, ensure};
use hyper::Method;

use super::client::{BenchConnection, ResponseHead};
use super::load::{Comparison, Effort, Workload};
use super::objects::{deployment, deployment_of, name};
use super::report::ReportRow;
use super::target::ServerPair;

pub(crate) async fn compare(pair: &ServerPair, effort: Effort) -> Result<Vec<ReportRow>> {
    let apply = |id: &'static str, change| move |round| Apply { namespace: format!("{id}-{round}"), change };
    let same = Comparison::run(
        "A0",
        "apply an unchanged Deployment, 16 at once",
        pair,
        (16, effort),
        apply("a0", AppliedChange::Same),
    )
    .await?;
    let changed = Comparison::run(
        "A1",
        "apply a Deployment with another image, 16 at once",
        pair,
        (16, effort),
        apply("a1", AppliedChange::Image),
    )
    .await?;
    Ok(vec![same.rate(), same.p99(), same.cpu(), changed.rate(), changed.p99(), changed.cpu()])
}

/// The change that a client applies after the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AppliedChange {
    /// The same object again. The server must not write anything.
    Same,
    /// The object with one changed field.
    Image,
}

/// Each client applies a Deployment of its own.
struct Apply {
    namespace: String,
    change: AppliedChange,
}

struct Applier {
    connection: BenchConnection,
    path: String,
    name: String,
    version: String,
    steps: usize,
}

impl Workload for Apply {
    type Client = Applier;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut BenchConnection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, mut connection: BenchConnection, number: usize) -> Result<Applier> {
        let name = name(number);
        let collection = format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace);
        let path = format!("{collection}/{name}?fieldManager=bench&force=true");
        let response = connection.send(Method::PATCH, &path, deployment(&name)).await?;
        let version = ResponseHead::of(&response, "Deployment", &name)?.metadata.version.to_owned();
        Ok(Applier { connection, path, name, version, steps: 0 })
    }

    async fn step(&self, client: &mut Applier) -> Result<()> {
        client.steps += 1;
        let Applier { connection, path, name, version, steps } = client;
        let body = match self.change {
            AppliedChange::Same => deployment(name),
            AppliedChange::Image => deployment_of(name, &format!("registry.example/shop/web:2.0.{steps}")),
        };
        let response = connection.send(Method::PATCH, path, body).await?;
        let next = ResponseHead::of(&response, "Deployment", name)?.metadata.version;
        let (is_same, expect_same) = (next == version, self.change == AppliedChange::Same);
        ensure!(is_same == expect_same, "{name} was at {version} and is at {next}");
        *version = next.to_owned();
        Ok(())
    }
}
