//! `holon start`: runs a server.

use anyhow::{Context, Result};
use clap::Args;

use crate::server::ServerOptions;

#[derive(Args)]
pub(crate) struct Start {
    #[command(flatten)]
    server: ServerOptions,
}

impl Start {
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(self.server.serve(async |running| {
            println!(
                "Holon serves {}, ready after {:.0?}. Next, type:",
                running.server,
                running.started.elapsed()
            );
            println!("  export KUBECONFIG={}", running.kubeconfig.display());
            println!("  kubectl get namespaces");
            Ok(())
        }))
    }
}
