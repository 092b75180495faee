//! `holon kubeconfig`: what kubectl needs to reach logical clusters.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::cluster::Path;
use clap::Args;

use crate::clients::admin::AdminClient;
use crate::data_dir;
use crate::kubeconfig::{ADMIN, write};

/// How long the server has to say which logical clusters exist. Without an answer the kubeconfig is printed all the same.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Kubeconfig {
    /// The logical clusters, a context for each; the first is the current one
    #[arg(value_name = "PATH", default_value = "root")]
    paths: Vec<String>,
    /// Where the server keeps its data
    #[arg(long, default_value = ".holon")]
    data_dir: PathBuf,
    /// Whom the kubeconfig is for [default: an administrator]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A group the user is in; may be given several times
    #[arg(long = "group", value_name = "NAME", requires = "user")]
    groups: Vec<String>,
    /// Where the server is reached [default: where it last said it is]
    #[arg(long)]
    server: Option<String>,
}

impl Kubeconfig {
    pub(crate) fn run(self) -> Result<()> {
        let parse =
            |path: &String| path.parse().with_context(|| format!("{path:?} names no logical cluster"));
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

    /// Fails if a logical cluster does not exist. A server that is not running cannot be asked, and kubeconfigs can be made
    /// beforehand: then this only says so.
    fn check(&self, paths: &[Path]) -> Result<()> {
        let client = AdminClient::open(&self.data_dir)?;
        let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
        let missing = runtime.block_on(async {
            let asked = async {
                for path in paths {
                    if client.find(&format!("/clusters/{path}/api")).await?.is_none() {
                        return Ok(Some(path));
                    }
                }
                anyhow::Ok(None)
            };
            tokio::time::timeout(CHECK_WITHIN, asked).await.context("the server does not answer")?
        });
        match missing {
            Ok(None) => Ok(()),
            Ok(Some(path)) => {
                let above = path.parent().unwrap_or_else(Path::root);
                let dir = self.data_dir.display();
                bail!(
                    "there is no logical cluster {path}; `holon lc list --in {above} --data-dir {dir}` lists those in {above}"
                )
            }
            Err(error) => {
                eprintln!("holon: cannot check whether the logical clusters exist: {error:#}");
                Ok(())
            }
        }
    }
}
