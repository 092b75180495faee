//! `holon ca`: the authority that vouches for the server and its clients.

use std::path::PathBuf;

use anyhow::Result;
use apiserver::pki::{Authority, Rotated};
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Ca {
    #[command(subcommand)]
    act: Act,
}

#[derive(Subcommand)]
enum Act {
    /// Take the next of three steps towards a new authority, after which certificates of the old one are worth nothing
    Rotate {
        /// Where the server keeps its certificates
        #[arg(long, default_value = ".holon")]
        data_dir: PathBuf,
    },
}

impl Ca {
    pub(crate) fn run(self) -> Result<()> {
        let Act::Rotate { data_dir } = self.act;
        let again = format!("then type `holon ca rotate --data-dir {}` again", data_dir.display());
        match Authority::open(&data_dir.join("pki"))?.rotate()? {
            Rotated::Trusted => println!(
                "Step 1 of 3: there is a new authority, which is trusted and signs nothing yet.\n\
                 Restart the server and give everybody their kubeconfig anew, so that they trust it too; {again}."
            ),
            Rotated::Signing => println!(
                "Step 2 of 3: the new authority signs; the old one is still trusted.\n\
                 Restart the server and give everybody their kubeconfig anew, so that they have a new certificate; {again}."
            ),
            Rotated::Forgotten => println!(
                "Step 3 of 3: the old authority is no longer trusted.\n\
                 Restart the server; from then on certificates of the old one are refused."
            ),
        }
        Ok(())
    }
}
