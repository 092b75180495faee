//! Server-side apply as controllers and deployment tools use it: mostly without a change.

use anyhow::{Result, ensure};
use hyper::Method;

use super::client::{Connection, Head};
use super::load::{Comparison, Effort, Workload};
use super::objects::{deployment, deployment_of, name};
use super::report::Row;
use super::target::Pair;

pub(crate) async fn compare(pair: &Pair, effort: Effort) -> Result<Vec<Row>> {
    let apply = |id: &'static str, what| move |round| Apply { namespace: format!("{id}-{round}"), what };
    let same = Comparison::run(
        "A0",
        "apply a Deployment that is there, 16 at once",
        pair,
        (16, effort),
        apply("a0", What::Same),
    )
    .await?;
    let changed = Comparison::run(
        "A1",
        "apply a Deployment with another image, 16 at once",
        pair,
        (16, effort),
        apply("a1", What::Image),
    )
    .await?;
    Ok(vec![same.rate(), same.p99(), same.cpu(), changed.rate(), changed.p99(), changed.cpu()])
}

/// What a client applies after the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// The same object again. The server must not write anything.
    Same,
    /// The object with one changed field.
    Image,
}

/// Each client applies a Deployment of its own.
struct Apply {
    namespace: String,
    what: What,
}

struct Applier {
    connection: Connection,
    path: String,
    name: String,
    version: String,
    steps: usize,
}

impl Workload for Apply {
    type Client = Applier;
    const WRITES: bool = true;

    async fn prepare(&self, setup: &mut Connection) -> Result<()> {
        setup.create_namespace(&self.namespace).await
    }

    async fn client(&self, mut connection: Connection, number: usize) -> Result<Applier> {
        let name = name(number);
        let collection = format!("/apis/apps/v1/namespaces/{}/deployments", self.namespace);
        let path = format!("{collection}/{name}?fieldManager=bench&force=true");
        let answer = connection.send(Method::PATCH, &path, deployment(&name)).await?;
        let version = Head::of(&answer, "Deployment", &name)?.metadata.version.to_owned();
        Ok(Applier { connection, path, name, version, steps: 0 })
    }

    async fn step(&self, client: &mut Applier) -> Result<()> {
        client.steps += 1;
        let Applier { connection, path, name, version, steps } = client;
        let body = match self.what {
            What::Same => deployment(name),
            What::Image => deployment_of(name, &format!("registry.example/shop/web:2.0.{steps}")),
        };
        let answer = connection.send(Method::PATCH, path, body).await?;
        let next = Head::of(&answer, "Deployment", name)?.metadata.version;
        let (same, wanted) = (next == version, self.what == What::Same);
        ensure!(same == wanted, "{name} was at {version} and is at {next}");
        *version = next.to_owned();
        Ok(())
    }
}
