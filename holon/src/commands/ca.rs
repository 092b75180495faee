//! `holon ca`: the authority that vouches for the server and its clients.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use apiserver::pki::{Authority, Rotated};
use clap::{Args, Subcommand};
use storage::etcd::{Etcd, Options};

use crate::data_dir;

#[derive(Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// Take the next of three steps towards a new authority, after which certificates of the old one are worth nothing
    Rotate {
        /// The data directory of the server, as `holon start` takes it
        #[arg(long, default_value = ".holon")]
        data_dir: PathBuf,
        /// The etcd of the server, if it keeps its store there: the authority is that of all servers of the etcd
        #[arg(long = "etcd-endpoints", value_delimiter = ',')]
        etcd_endpoints: Vec<String>,
    },
}

impl Ca {
    pub(crate) fn run(self) -> Result<()> {
        let Act::Rotate { data_dir, etcd_endpoints } = self.act;
        let mut again = format!("then type `holon ca rotate --data-dir {}", data_dir.display());
        let done = match etcd_endpoints.as_slice() {
            [] => data_dir::authority(&data_dir)?.rotate()?,
            endpoints => {
                again += &format!(" --etcd-endpoints {}", endpoints.join(","));
                let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
                runtime.block_on(rotate_shared(&data_dir, endpoints))?
            }
        };
        let servers = if etcd_endpoints.is_empty() { "the server" } else { "all servers of the etcd" };
        match done {
            Rotated::Trusted => println!(
                "Step 1 of 3: there is a new authority, which is trusted and signs nothing yet.\n\
                 Restart {servers} and give everybody their kubeconfig anew, so that they trust it too; {again}` again."
            ),
            Rotated::Signing => println!(
                "Step 2 of 3: the new authority signs; the old one is still trusted.\n\
                 Restart {servers} and give everybody their kubeconfig anew, so that they have a new certificate; {again}` again."
            ),
            Rotated::Forgotten => println!(
                "Step 3 of 3: the old authority is no longer trusted.\n\
                 Restart {servers}; from then on certificates of the old one are refused."
            ),
        }
        Ok(())
    }
}

async fn rotate_shared(data_dir: &Path, endpoints: &[String]) -> Result<Rotated> {
    let pki = data_dir::pki(data_dir::existing(data_dir)?);
    let mut options = Options::new(endpoints.iter().cloned());
    // The servers compact, as they were told to.
    options.compaction = None;
    let (store, feed) = Etcd::connect(options).await?;
    tokio::select! {
        done = Authority::rotate_shared(&pki, &store) => Ok(done?),
        _ = feed.run() => bail!("the connection to etcd ended"),
    }
}
