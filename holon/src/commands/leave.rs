//! `holon leave`: removes a physical cluster.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use hyper::Method;

use crate::clients::admin::AdminClient;
use crate::pull::SYNCER_NAMESPACE;
use crate::register::{PhysicalClusterLocation, forget};

const POLL_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Leave {
    /// The name of the physical cluster
    name: String,
    /// Do not delete placed objects; use it for a physical cluster that is lost
    #[arg(long, visible_alias = "force")]
    forget: bool,
    #[command(flatten)]
    location: PhysicalClusterLocation,
}

impl Leave {
    pub(crate) fn run(self) -> Result<()> {
        tokio::runtime::Runtime::new().context("cannot start the runtime")?.block_on(self.leave())
    }

    async fn leave(&self) -> Result<()> {
        let (client, name) = (AdminClient::open(&self.location.data_dir)?, &self.name);
        let path = format!("{}/{name}", self.location.physical_clusters());
        let object = client.request(Method::GET, &path, None).await?;
        let dials_in = !object["spec"]["connection"]["pull"].is_null();
        if self.forget {
            forget(&client, &path).await?;
        }
        client.request(Method::DELETE, &path, None).await.with_context(|| format!("cannot remove {name}"))?;
        let mut printed = String::new();
        // Without a timeout: after ctrl-c the removal continues. If the server cannot be reached, the state is
        // unknown.
        let unknown = || {
            format!(
                "{name} is leaving, but the server did not answer whether it has left. Run `holon leave {name}` again"
            )
        };
        while let Some(object) = client.find(&path).await.with_context(unknown)? {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let leaving = conditions.into_iter().find(|condition| condition["type"] == "Leaving");
            let message =
                leaving.as_ref().and_then(|leaving| leaving["message"].as_str()).unwrap_or_default();
            if !message.is_empty() && message != printed {
                println!("{name}: {message}");
                message.clone_into(&mut printed);
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        println!("{name} has left");
        if dials_in {
            let outcome = match self.forget {
                true => "its syncer stops once it reaches the server",
                false => "its syncer uninstalls itself",
            };
            println!("{outcome}. To delete leftovers of the syncer in the physical cluster, run:");
            println!("  kubectl delete namespace/{SYNCER_NAMESPACE} clusterrolebinding/{SYNCER_NAMESPACE}");
        }
        Ok(())
    }
}
