//! `holon kubeconfig`: prints a kubeconfig for logical clusters.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::cluster::Path;
use clap::Args;

use crate::clients::admin::AdminClient;
use crate::data_dir;
use crate::kubeconfig::{ADMIN, write};

/// How long the server may take to answer whether the logical clusters exist. Without an answer the kubeconfig is
/// printed anyway.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Kubeconfig {
    /// The logical clusters, one context each; the first becomes the current context
    #[arg(value_name = "PATH", default_value = "root")]
    paths: Vec<String>,
    /// The data directory of the server
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
    /// The user of the kubeconfig [default: an administrator]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group of the user; can be repeated
    #[arg(long = "group", value_name = "NAME", requires = "user")]
    groups: Vec<String>,
    /// The address of the server [default: the one it advertises]
    #[arg(long)]
    server: Option<String>,
}

impl Kubeconfig {
    pub(crate) fn run(self) -> Result<()> {
        let parse = |path: &String| {
            path.parse().with_context(|| format!("{path:?} is not the path of a logical cluster"))
        };
        let paths = self.paths.iter().map(parse).collect::<Result<Vec<Path>>>()?;
        let address = data_dir::address(&self.data_dir)?;
        let authority = data_dir::authority(&self.data_dir)?;
        self.check(&paths)?;
        let server = self.server.unwrap_or(address);
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let (name, groups) = match &self.user {
            Some(user) => (user.as_str(), groups.as_slice()),
            None => ADMIN,
        };
        let client = authority.client(name, groups)?;
        print!("{}", write(&server, &authority, (name, &client), &paths));
        Ok(())
    }

    /// Fails if a logical cluster does not exist. A kubeconfig can be made while the server is stopped: then this
    /// only warns.
    fn check(&self, paths: &[Path]) -> Result<()> {
        let client = AdminClient::open(&self.data_dir)?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        let missing = runtime.block_on(async {
            let check = async {
                for path in paths {
                    if client.find(&format!("/clusters/{path}/api")).await?.is_none() {
                        return Ok(Some(path));
                    }
                }
                anyhow::Ok(None)
            };
            tokio::time::timeout(CHECK_WITHIN, check).await.context("the server did not answer in time")?
        });
        match missing {
            Ok(None) => Ok(()),
            Ok(Some(path)) => {
                let parent = path.parent().unwrap_or_else(Path::root);
                let dir = self.data_dir.display();
                bail!(
                    "there is no logical cluster {path}; `holon lc list --in {parent} --data-dir {dir}` lists those in {parent}"
                )
            }
            Err(error) => {
                eprintln!("holon: cannot check whether the logical clusters exist: {error:#}");
                Ok(())
            }
        }
    }
}
