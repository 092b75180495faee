//! `holon leave`: a physical cluster goes.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use hyper::Method;

use crate::clients::admin::AdminClient;
use crate::pull::HERE;
use crate::register::{Where, forget};

const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Leave {
    /// Which one
    name: String,
    /// Leave what was sent there where it is: for one that will never answer again
    #[arg(long, visible_alias = "force")]
    forget: bool,
    #[command(flatten)]
    place: Where,
}

impl Leave {
    pub(crate) fn run(self) -> Result<()> {
        tokio::runtime::Runtime::new().context("starting the runtime")?.block_on(self.leave())
    }

    async fn leave(&self) -> Result<()> {
        let (client, name) = (AdminClient::open(&self.place.data_dir)?, &self.name);
        let path = format!("{}/{name}", self.place.physical_clusters());
        let object = client.ask(Method::GET, &path, None).await?;
        let dials_in = !object["spec"]["connection"]["pull"].is_null();
        if self.forget {
            forget(&client, &path).await?;
        }
        client.ask(Method::DELETE, &path, None).await.with_context(|| format!("cannot let {name} go"))?;
        let mut said = String::new();
        // As long as it takes: whoever does not want to wait presses ctrl-c, and it goes on. A server that cannot be asked
        // says nothing about it.
        let unknown =
            || format!("{name} is leaving; whether it is gone is not known. `holon leave {name}` asks again");
        while let Some(object) = client.find(&path).await.with_context(unknown)? {
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let leaving = conditions.into_iter().find(|condition| condition["type"] == "Leaving");
            let message =
                leaving.as_ref().and_then(|leaving| leaving["message"].as_str()).unwrap_or_default();
            if !message.is_empty() && message != said {
                println!("{name}: {message}");
                message.clone_into(&mut said);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        println!("{name} is gone");
        if dials_in {
            let said = match self.forget {
                true => "its syncer stops when it hears of it",
                false => "its syncer takes itself away",
            };
            println!("{said}; should anything of it be left there, type:");
            println!("  kubectl delete namespace/{HERE} clusterrolebinding/{HERE}");
        }
        Ok(())
    }
}
