//! With a stand-in downstream: its controllers create the dependents, and it fails as a cluster fails.

use std::time::Duration;

use anyhow::Result;
use controller::remote::Remote;
use jiff::Timestamp;
use serde_json::{Value, json};
use standin::{Clock, Link, Options, ResponseFault, Standin};
use tokio::time::sleep;

use crate::server::{self, Server};
use crate::setup::*;

struct Both {
    mailbox_server: Server,
    standin: Standin,
    mailbox: TestClient,
    below: TestClient,
}

impl Both {
    async fn new() -> Result<Both> {
        Both::with(Options::new("east")).await
    }

    async fn with(options: Options) -> Result<Both> {
        let (mailbox_server, standin) = (Server::start().await?, Standin::start(options).await?);
        let mailbox = TestClient(Remote::new(mailbox_server.client()));
        let below = TestClient(Remote::new(standin.client()));
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

    /// Returns the number of ready pods in the mailbox.
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
async fn objects_of_a_stand_in_are_shown_and_cause_no_writes_at_rest() -> Result<()> {
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
    let faults = [
        ResponseFault::TooManyRequests,
        ResponseFault::Internal,
        ResponseFault::Unavailable,
        ResponseFault::Garbage,
        ResponseFault::LostResponse,
    ];
    let mut replicas = 2;
    for fault in faults {
        replicas = if replicas == 2 { 3 } else { 2 };
        both.standin.faults().inject(fault, 40);
        both.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        both.until_ready(replicas).await?;
        both.standin.faults().clear();
    }
    for link in [Link::Cut, Link::Silent] {
        both.standin.faults().set_link(link);
        replicas = if replicas == 2 { 3 } else { 2 };
        both.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        sleep(Duration::from_secs(2)).await;
        both.standin.faults().clear();
        both.until_ready(replicas).await?;
    }
    both.standin.restart().await?;
    both.below.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    both.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 4 } })).await?;
    both.until_ready(4).await?;
    assert_eq!(both.standin.requests().deletes(), 0);
    Ok(())
}

/// Every response takes half a second: nothing is lost and nothing is done twice, it only takes longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_stand_in_that_answers_slowly_gets_everything_in_the_end() -> Result<()> {
    let both = Both::new().await?;
    let _running = both.start();
    both.until_ready(2).await?;
    both.standin.faults().set_delay(Duration::from_millis(500));
    both.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 4 } })).await?;
    both.mailbox.make(MAPS, placed(map("settings", "one"))).await?;
    both.until_ready(4).await?;
    both.below.until_there(&format!("{MAPS}/settings")).await?;
    both.mailbox.delete(&format!("{MAPS}/settings")).await?;
    both.mailbox.until_gone(&format!("{MAPS}/settings")).await?;
    both.standin.faults().clear();
    both.below.until_gone(&format!("{MAPS}/settings")).await?;
    until("four pods are ready", async || Ok(both.ready_pods().await? == 4)).await?;
    assert_eq!(both.standin.requests().deletes(), 1);
    Ok(())
}

/// A watch is for a kind: the number of objects makes no difference, on either side.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_objects_are_followed_by_as_many_watches_as_five() -> Result<()> {
    let mut watches = Vec::new();
    for count in [5, 50] {
        let both = Both::new().await?;
        let link = server::Link::new();
        let _running = Running::start(both.mailbox_server.through(&link), both.standin.client(), None);
        for number in 0..count {
            both.mailbox.make(MAPS, placed(map(&format!("m{number}"), "one"))).await?;
        }
        for number in 0..count {
            both.below.until_there(&format!("{MAPS}/m{number}")).await?;
        }
        both.until_ready(2).await?;
        until("two pods are ready", async || Ok(both.ready_pods().await? == 2)).await?;
        let below = both.standin.requests().0.into_keys().filter(|(verb, _)| verb == "watch");
        let below: Vec<String> = below.map(|(_, resource)| resource).collect();
        watches.push((below, link.watched()));
    }
    println!("{} watches below, {} of the mailbox", watches[0].0.len(), watches[0].1.len());
    assert_eq!(watches[0], watches[1]);
    // Namespaces, ConfigMaps, Deployments, and the kinds that are projected because of them.
    assert!(watches[0].0.len() <= 12, "{:?}", watches[0].0);
    Ok(())
}

/// A cluster whose clock is five hours ahead: its timestamps are in our future. They are projected unchanged, and
/// nothing waits for those times.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_its_clock_hours_ahead_is_shown_unchanged() -> Result<()> {
    let mut options = Options::new("east");
    options.clock = Clock::held();
    options.clock.advance(Duration::from_secs(5 * 3600));
    let both = Both::with(options).await?;
    let now = Timestamp::now();
    let _running = both.start();
    for replicas in [2, 4] {
        both.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        both.until_ready(replicas).await?;
    }
    let here = both.mailbox.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    let below = both.below.until_there(&format!("{DEPLOYMENTS}/web")).await?;
    assert_eq!(here["status"]["conditions"], below["status"]["conditions"]);
    let dated = below["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap_or_default();
    let dated: Timestamp = dated.parse()?;
    assert!(dated.duration_since(now).as_hours() >= 4, "{dated} is not ahead of {now}");
    until("four pods are ready", async || Ok(both.ready_pods().await? == 4)).await?;
    both.mailbox.delete(&format!("{DEPLOYMENTS}/web")).await?;
    both.below.until_gone(&format!("{DEPLOYMENTS}/web")).await?;
    both.mailbox.until_gone(&format!("{DEPLOYMENTS}/web")).await?;
    assert_eq!(both.standin.requests().deletes(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_due_cron_job_shows_its_job_and_its_pod() -> Result<()> {
    let options = Options { clock: Clock::held(), ..Options::new("east") };
    let both = Both::with(options).await?;
    let _running = both.start();
    both.mailbox.make(CRON_JOBS, placed(minutely())).await?;
    both.below.until_there(&format!("{CRON_JOBS}/minutely")).await?;
    both.until_ready(2).await?;
    assert!(both.mailbox.get(JOBS).await?.is_some_and(|jobs| jobs["items"] == json!([])));
    until("it has been done", async || {
        both.standin.clock().advance(Duration::from_secs(20));
        has_fired(&both.mailbox).await
    })
    .await?;
    both.mailbox.delete(&format!("{CRON_JOBS}/minutely")).await?;
    until("all that came of it is gone", async || {
        let jobs = both.mailbox.get(JOBS).await?.unwrap_or_default();
        Ok(jobs["items"] == json!([]) && both.ready_pods().await? == 2)
    })
    .await
}
