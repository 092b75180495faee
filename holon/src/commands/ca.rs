//! `holon ca`: rotates the certificate authority.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use apiserver::http::pki::{Authority, Rotated};
use clap::{Args, Subcommand};
use storage::etcd::{Etcd, Options};

use crate::data_dir;

#[derive(Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    command: CaCommand,
}

#[derive(Subcommand)]
enum CaCommand {
    /// Take the next of the three steps to a new certificate authority, after which certificates of the old one are
    /// refused
    Rotate {
        /// The data directory of the server
        #[arg(long, default_value = ".holon")]
        data_dir: PathBuf,
        /// The etcd of the server, if it keeps its store there. All servers that share the etcd share the certificate
        /// authority
        #[arg(long = "etcd-endpoints", value_delimiter = ',')]
        etcd_endpoints: Vec<String>,
    },
}

impl Ca {
    pub(crate) fn run(self) -> Result<()> {
        let CaCommand::Rotate { data_dir, etcd_endpoints } = self.command;
        let mut next_step = format!("then run `holon ca rotate --data-dir {}", data_dir.display());
        let rotated = match etcd_endpoints.as_slice() {
            [] => data_dir::authority(&data_dir)?.rotate()?,
            endpoints => {
                next_step += &format!(" --etcd-endpoints {}", endpoints.join(","));
                let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
                runtime.block_on(rotate_shared(&data_dir, endpoints))?
            }
        };
        let servers =
            if etcd_endpoints.is_empty() { "the server" } else { "all servers that share the etcd" };
        match rotated {
            Rotated::Trusted => println!(
                "Step 1 of 3: created a new authority. It is trusted, and signs nothing yet.\n\
                 Restart {servers} and issue all kubeconfigs again, so that clients trust it; {next_step}`."
            ),
            Rotated::Signing => println!(
                "Step 2 of 3: the new authority signs certificates. The old one is still trusted.\n\
                 Restart {servers} and issue all kubeconfigs again, so that clients have a new certificate; {next_step}`."
            ),
            Rotated::Forgotten => println!(
                "Step 3 of 3: the old authority is no longer trusted.\n\
                 Restart {servers}. Then certificates of the old authority are refused."
            ),
        }
        Ok(())
    }
}

async fn rotate_shared(data_dir: &Path, endpoints: &[String]) -> Result<Rotated> {
    let pki = data_dir::pki(data_dir::existing(data_dir)?);
    let mut options = Options::new(endpoints.iter().cloned());
    // The servers compact; this command does not.
    options.compaction = None;
    let (store, feed) = Etcd::connect(options).await?;
    tokio::select! {
        rotated = Authority::rotate_shared(&pki, &store) => Ok(rotated?),
        _ = feed.run() => bail!("the connection to etcd ended"),
    }
}
