//! The kinds of physical clusters in these tests.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use controller::remote::Remote;
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tempfile::TempDir;
use testkit::Server;
use testkit::peers::Cluster;
use tokio::process::Command;

use super::{account, kube_client, run_command};
use crate::setup::TestClient;

/// The logical cluster of another Holon that is the physical cluster here.
const LOGICAL: &str = "root:east";

pub(crate) enum Physical {
    Standin(Box<Standin>),
    Real {
        cluster: Cluster,
        audit: TempDir,
    },
    Logical {
        server: Server,
        audit: TempDir,
        /// The physical cluster of that Holon. Without one it is only an API: no controller creates pods or statuses.
        lowest_level: Option<Box<Standin>>,
    },
}

/// The address of a physical cluster, and its certificate authority.
pub(crate) struct Address {
    pub(crate) server: String,
    /// As in a kubeconfig.
    pub(crate) authority: String,
    /// The proxy on the way, if there is one.
    pub(crate) proxy: Option<String>,
}

impl Physical {
    /// Returns a stand-in with one node, like the real cluster.
    pub(crate) async fn standin() -> Result<Physical> {
        let mut options = Options::new("east");
        options.nodes.truncate(1);
        Ok(Physical::Standin(Box::new(Standin::start(options).await?)))
    }

    /// Returns a real cluster.
    pub(crate) fn real() -> Result<Physical> {
        let audit = tempfile::tempdir()?;
        let (policy, log) = (audit.path().join("policy"), audit.path().join("log"));
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{ "level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"] }],
        });
        std::fs::write(&policy, rules.to_string())?;
        let flag = |name: &str, file: &Path| format!("--audit-{name}={}", file.display());
        let flags = [flag("policy-file", &policy), flag("log-path", &log)];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Ok(Physical::Real { cluster: Cluster::start(&flags), audit })
    }

    pub(crate) async fn logical() -> Result<Physical> {
        let audit = tempfile::tempdir()?;
        let option = format!("--audit-log={}", audit.path().join("log").display());
        let server = scenarios::holon::start(&[&option])?;
        run_command(Command::from(server.command(&["lc", "create", "east"]))).await?;
        Ok(Physical::Logical { server, audit, lowest_level: None })
    }

    /// Returns a logical cluster of another Holon that has a physical cluster with these definitions.
    pub(crate) async fn levels(definitions: Vec<Value>) -> Result<Physical> {
        let (mut physical, standin) = (Physical::logical().await?, Physical::standin().await?);
        if let (Physical::Logical { server, lowest_level, .. }, Physical::Standin(standin)) =
            (&mut physical, standin)
        {
            let client = TestClient(Remote::new(standin.client()));
            for definition in definitions {
                client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await?;
            }
            let file = server.file("lowest.kubeconfig");
            std::fs::write(&file, standin.kubeconfig()?)?;
            let file = file.to_str().context("the path is not UTF-8")?;
            run_command(Command::from(server.command(&["join", "bottom", "--kubeconfig", file]))).await?;
            // Cluster-scoped objects, such as definitions, are only placed on a dedicated cluster.
            let root = TestClient(Remote::new(kube_client(&server.kubeconfig_file("root")).await?));
            let path = "/apis/holon.dev/v1alpha1/physicalclusters/bottom";
            root.merge(path, json!({ "spec": { "dedicatedTo": LOGICAL } })).await?;
            *lowest_level = Some(standin);
        }
        Ok(physical)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Physical::Standin(_) => "a stand-in",
            Physical::Real { .. } => "a real Kubernetes",
            Physical::Logical { lowest_level: None, .. } => "a logical cluster of another Holon",
            Physical::Logical { .. } => "two levels",
        }
    }

    /// Returns whether controllers create pods of Deployments there.
    pub(crate) fn has_controllers(&self) -> bool {
        !matches!(self, Physical::Logical { lowest_level: None, .. })
    }

    /// Returns the client of the lowest level, if that is not this cluster.
    pub(crate) fn lowest_level(&self) -> Option<TestClient> {
        match self {
            Physical::Logical { lowest_level: Some(standin), .. } => {
                Some(TestClient(Remote::new(standin.client())))
            }
            _ => None,
        }
    }

    /// Returns a client of its administrator.
    pub(crate) async fn client(&self) -> Result<TestClient> {
        let client = match self {
            Physical::Standin(standin) => standin.client(),
            Physical::Real { cluster, .. } => kube_client(&cluster.kubeconfig()).await?,
            Physical::Logical { server, .. } => kube_client(&server.kubeconfig_file(LOGICAL)).await?,
        };
        Ok(TestClient(Remote::new(client)))
    }

    pub(crate) async fn address(&self) -> Result<Address> {
        let kubeconfig = match self {
            Physical::Standin(standin) => Kubeconfig::from_yaml(&standin.kubeconfig()?)?,
            Physical::Real { cluster, .. } => Kubeconfig::read_from(cluster.kubeconfig())?,
            Physical::Logical { server, .. } => Kubeconfig::read_from(server.kubeconfig_file(LOGICAL))?,
        };
        let tree = serde_json::to_value(&kubeconfig)?;
        let text = |field: &str| {
            let found = tree["clusters"][0]["cluster"][field].as_str().map(str::to_owned);
            found.with_context(|| format!("the kubeconfig has no {field}: {tree:#}"))
        };
        let authority = text("certificate-authority-data")?;
        Ok(Address { server: text("server")?, authority, proxy: None })
    }

    /// Returns how often the syncer requested a deletion, by resource. A stand-in does not distinguish clients: there
    /// it counts all deletions except one of each of `others`.
    pub(crate) fn deletes(&self, others: &[&str]) -> Result<BTreeMap<String, u64>> {
        let mut deletes = BTreeMap::new();
        let mut count =
            |resource: &str, times: u64| *deletes.entry(resource.to_owned()).or_default() += times;
        match self {
            Physical::Standin(standin) => {
                let counts = standin.requests().0;
                for ((_, resource), times) in
                    counts.iter().filter(|((verb, _), _)| verb.starts_with("delete"))
                {
                    let resource = resource.split('.').next().unwrap_or_default();
                    count(resource, times - others.iter().filter(|other| **other == resource).count() as u64);
                }
            }
            Physical::Real { audit, .. } => {
                deleted(audit, "/user/username", "/objectRef/resource")?.iter().for_each(|it| count(it, 1));
            }
            Physical::Logical { audit, .. } => {
                deleted(audit, "/user", "/resource")?.iter().for_each(|it| count(it, 1));
            }
        }
        deletes.retain(|_, times| *times > 0);
        Ok(deletes)
    }
}

/// Returns the resources of the syncer's deletions, from the entries of an audit log with these fields.
fn deleted(audit: &TempDir, user: &str, resource: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(audit.path().join("log")).context("reading the audit log")?;
    let read = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let ours = line.pointer(user)? == account::NAME && line["verb"].as_str()?.starts_with("delete");
        line.pointer(resource).filter(|_| ours)?.as_str().map(str::to_owned)
    };
    Ok(text.lines().filter_map(read).collect())
}
