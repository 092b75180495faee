//! `holon lc`: logical clusters, made, listed and deleted.

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
    act: Act,
    /// Where the server keeps its data
    #[arg(long, global = true, default_value = ".holon")]
    data_dir: PathBuf,
    /// The logical cluster above
    #[arg(long = "in", global = true, value_name = "PATH", default_value = "root")]
    above: Path,
}

#[derive(Subcommand)]
enum Act {
    /// Make a logical cluster
    Create { name: String },
    /// List logical clusters
    List,
    /// Delete a logical cluster and everything in it
    Delete { name: String },
}

impl Lc {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        runtime.block_on(self.act())
    }

    async fn act(self) -> Result<()> {
        let client = AdminClient::open(&self.data_dir)?;
        let collection = format!("/clusters/{}/apis/{GROUP}/{VERSION}/logicalclusters", self.above);
        match &self.act {
            Act::Create { name } => {
                let path = self.above.child(name).with_context(|| format!("{name:?} cannot be a name"))?;
                let object = json!({
                    "apiVersion": format!("{GROUP}/{VERSION}"),
                    "kind": "LogicalCluster",
                    "metadata": { "name": name },
                });
                let made = client.ask(Method::POST, &collection, Some(&object)).await;
                made.with_context(|| self.tried("make", &path))?;
                self.created(&path);
            }
            Act::List => {
                let listed = client.ask(Method::GET, &collection, None).await;
                self.listed(&listed.with_context(|| format!("cannot list what is in {}", self.above))?);
            }
            Act::Delete { name } => {
                // It becomes part of an address; what would lead elsewhere is no name of anything.
                let path = self.above.child(name).with_context(|| format!("{name:?} cannot be a name"))?;
                let gone = client.ask(Method::DELETE, &format!("{collection}/{name}"), None).await;
                gone.with_context(|| self.tried("delete", &path))?;
                println!("{path} is being deleted, with everything in it");
            }
        }
        Ok(())
    }

    fn tried(&self, act: &str, path: &Path) -> String {
        format!("cannot {act} {path} (`holon lc list --in {}` shows what there is)", self.above)
    }

    fn created(&self, path: &Path) {
        let (name, dir) = (path.name(), self.data_dir.display());
        println!("{path} is there. Next, type:");
        println!("  holon kubeconfig {path} --data-dir {dir} > {name}.kubeconfig");
        println!("  kubectl --kubeconfig {name}.kubeconfig get namespaces");
    }

    fn listed(&self, list: &Value) {
        let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |item: &Value, pointer: &str| {
            item.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let paths: Vec<_> =
            items.iter().map(|item| format!("{}:{}", self.above, text(item, "/metadata/name"))).collect();
        if paths.is_empty() {
            println!("There is none in {}. Make one: holon lc create NAME", self.above);
            return;
        }
        let width = paths.iter().map(String::len).max().unwrap_or_default();
        println!("{:width$}  PHASE", "PATH");
        for (path, item) in paths.iter().zip(items) {
            println!("{path:width$}  {}", text(item, "/status/phase"));
        }
    }
}
