//! `holon lc`: creates, lists and deletes logical clusters.

use std::path::PathBuf;

use anyhow::{Context, Result};
use api::cluster::Path;
use api::names::{GROUP, VERSION};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use crate::clients::admin::AdminClient;

#[derive(Args)]
pub(crate) struct Lc {
    #[command(subcommand)]
    command: LcCommand,
    /// The data directory of the server
    #[arg(long, global = true, default_value = ".holon")]
    data_dir: PathBuf,
    /// The parent logical cluster
    #[arg(long = "in", global = true, value_name = "PATH", default_value = "root")]
    parent: Path,
}

#[derive(Subcommand)]
enum LcCommand {
    /// Create a logical cluster
    Create { name: String },
    /// List logical clusters
    List,
    /// Delete a logical cluster and everything in it
    Delete { name: String },
}

impl Lc {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(self.execute())
    }

    async fn execute(self) -> Result<()> {
        let client = AdminClient::open(&self.data_dir)?;
        let collection = format!("/clusters/{}/apis/{GROUP}/{VERSION}/logicalclusters", self.parent);
        match &self.command {
            LcCommand::Create { name } => {
                let path =
                    self.parent.child(name).with_context(|| format!("{name:?} is not a valid name"))?;
                let object = json!({
                    "apiVersion": format!("{GROUP}/{VERSION}"),
                    "kind": "LogicalCluster",
                    "metadata": { "name": name },
                });
                let created = client.request(Method::POST, &collection, Some(&object)).await;
                created.with_context(|| self.failed("create", &path))?;
                self.print_created(&path);
            }
            LcCommand::List => {
                let listed = client.request(Method::GET, &collection, None).await;
                self.print_list(
                    &listed
                        .with_context(|| format!("cannot list the logical clusters in {}", self.parent))?,
                );
            }
            LcCommand::Delete { name } => {
                // The name becomes part of a path, so it is checked first.
                let path =
                    self.parent.child(name).with_context(|| format!("{name:?} is not a valid name"))?;
                let deleted = client.request(Method::DELETE, &format!("{collection}/{name}"), None).await;
                deleted.with_context(|| self.failed("delete", &path))?;
                println!("deleting {path} and everything in it");
            }
        }
        Ok(())
    }

    fn failed(&self, verb: &str, path: &Path) -> String {
        format!("cannot {verb} {path} (`holon lc list --in {}` lists the existing ones)", self.parent)
    }

    fn print_created(&self, path: &Path) {
        let (name, dir) = (path.name(), self.data_dir.display());
        println!("created {path}. Next, type:");
        println!("  holon kubeconfig {path} --data-dir {dir} > {name}.kubeconfig");
        println!("  kubectl --kubeconfig {name}.kubeconfig get namespaces");
    }

    fn print_list(&self, list: &Value) {
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |item: &Value, pointer: &str| {
            item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let paths: Vec<_> =
            items.iter().map(|item| format!("{}:{}", self.parent, text(item, "/metadata/name"))).collect();
        if paths.is_empty() {
            println!("no logical clusters in {}. Create one: holon lc create NAME", self.parent);
            return;
        }
        let width = paths.iter().map(String::len).max().unwrap_or_default();
        println!("{:width$}  PHASE", "PATH");
        for (path, item) in paths.iter().zip(items) {
            println!("{path:width$}  {}", text(item, "/status/phase"));
        }
    }
}
