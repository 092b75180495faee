//! With a stand-in below: its controllers bring about what is shown, and it fails as a cluster fails.

use std::time::Duration;

use anyhow::Result;
use controller::remote::Remote;
use serde_json::{Value, json};
use standin::{Link, Options, Standin, Trouble};
use tokio::time::sleep;

use crate::server::Server;
use crate::world::*;

struct Both {
    mailbox_server: Server,
    standin: Standin,
    mailbox: Eyes,
    below: Eyes,
}

impl Both {
    async fn new() -> Result<Both> {
        let (mailbox_server, standin) = (Server::start().await?, Standin::start(Options::new("east")).await?);
        let mailbox = Eyes(Remote::new(mailbox_server.client()));
        let below = Eyes(Remote::new(standin.client()));
        mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
        mailbox.make(DEPLOYMENTS, placed(deployment("web"))).await?;
        Ok(Both { mailbox_server, standin, mailbox, below })
    }

    fn start(&self) -> Running {
        Running::start(self.mailbox_server.client(), self.standin.client(), None)
    }

    async fn until_ready(&self, replicas: u64) -> Result<Value> {
        let is_so = |found: &Value| {
            let status = &found["status"];
            status["readyReplicas"] == replicas
                && status["replicas"] == replicas
                && status["observedGeneration"] == found["metadata"]["generation"]
        };
        self.mailbox.until(&format!("{DEPLOYMENTS}/web"), is_so).await
    }

    /// Pods of the mailbox that are ready.
    async fn ready_pods(&self) -> Result<usize> {
        let pods = self.mailbox.get(PODS).await?.unwrap_or_default();
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.into_iter().any(|said| said["type"] == "Ready" && said["status"] == "True")
        };
        Ok(pods["items"].as_array().into_iter().flatten().filter(is_ready).count())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stand_in_runs_is_shown_and_asks_for_nothing_when_at_rest() -> Result<()> {
    let both = Both::new().await?;
    let _running = both.start();
    both.until_ready(2).await?;
    until("two pods are ready", async || Ok(both.ready_pods().await? == 2)).await?;
    both.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 5 } })).await?;
    both.until_ready(5).await?;
    until("five pods are ready", async || Ok(both.ready_pods().await? == 5)).await?;
    until("nothing is written", async || {
        let before = both.standin.requests();
        sleep(STEADY).await;
        Ok(both.standin.requests().since(&before).writes() == 0)
    })
    .await?;
    both.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 1 } })).await?;
    both.until_ready(1).await?;
    until("one pod is left", async || {
        let pods = both.mailbox.get(PODS).await?.unwrap_or_default();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 1))
    })
    .await?;
    assert_eq!(both.standin.requests().deletes(), 0, "scaling is no deletion of ours");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_stand_in_suffers_it_converges_and_nothing_is_deleted() -> Result<()> {
    let mut both = Both::new().await?;
    let _running = both.start();
    both.until_ready(2).await?;
    let troubles = [
        Trouble::TooManyRequests,
        Trouble::Internal,
        Trouble::Unavailable,
        Trouble::Garbage,
        Trouble::LostAnswer,
    ];
    let mut replicas = 2;
    for trouble in troubles {
        replicas = if replicas == 2 { 3 } else { 2 };
        both.standin.faults().trouble(trouble, 40);
        both.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        both.until_ready(replicas).await?;
        both.standin.faults().heal();
    }
    for link in [Link::Cut, Link::Silent] {
        both.standin.faults().set_link(link);
        replicas = if replicas == 2 { 3 } else { 2 };
        both.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        sleep(Duration::from_secs(2)).await;
        both.standin.faults().heal();
        both.until_ready(replicas).await?;
    }
    both.standin.restart().await?;
    both.below.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    both.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 4 } })).await?;
    both.until_ready(4).await?;
    assert_eq!(both.standin.requests().deletes(), 0);
    Ok(())
}
