//! With a stand-in downstream: its controllers create the dependents, and it fails as a cluster fails.

use std::time::Duration;

use anyhow::Result;
use controller::remote::Remote;
use jiff::Timestamp;
use serde_json::{Value, json};
use standin::{Clock, Link, Options, ResponseFault, Standin};
use tokio::time::sleep;

use crate::server::{self, InProcessServer};
use crate::setup::*;

struct StandinTest {
    mailbox_server: InProcessServer,
    standin: Standin,
    mailbox: TestClient,
    downstream: TestClient,
}

impl StandinTest {
    async fn new() -> Result<StandinTest> {
        StandinTest::with(Options::new("east")).await
    }

    async fn with(options: Options) -> Result<StandinTest> {
        let (mailbox_server, standin) = (InProcessServer::start().await?, Standin::start(options).await?);
        let mailbox = TestClient(Remote::new(mailbox_server.client()));
        let downstream = TestClient(Remote::new(standin.client()));
        mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
        mailbox.create(DEPLOYMENTS, placed(deployment("web"))).await?;
        Ok(StandinTest { mailbox_server, standin, mailbox, downstream })
    }

    fn start(&self) -> RunningSyncer {
        RunningSyncer::start(self.mailbox_server.client(), self.standin.client(), None)
    }

    async fn until_ready(&self, replicas: u64) -> Result<Value> {
        let is_expected = |found: &Value| {
            let status = &found["status"];
            status["readyReplicas"] == replicas
                && status["replicas"] == replicas
                && status["observedGeneration"] == found["metadata"]["generation"]
        };
        self.mailbox.until(&format!("{DEPLOYMENTS}/web"), is_expected).await
    }

    /// Returns the number of ready pods in the mailbox.
    async fn ready_pods(&self) -> Result<usize> {
        let pods = self.mailbox.get(PODS).await?.unwrap_or_default();
        let is_ready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions
                .into_iter()
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        Ok(pods["items"].as_array().into_iter().flatten().filter(is_ready).count())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_stand_in_are_projected_and_then_nothing_is_written() -> Result<()> {
    let test = StandinTest::new().await?;
    let _running = test.start();
    test.until_ready(2).await?;
    until("two pods are ready", async || Ok(test.ready_pods().await? == 2)).await?;
    test.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 5 } })).await?;
    test.until_ready(5).await?;
    until("five pods are ready", async || Ok(test.ready_pods().await? == 5)).await?;
    until("no request writes for a while", async || {
        let before = test.standin.requests();
        sleep(STEADY).await;
        Ok(test.standin.requests().since(&before).writes() == 0)
    })
    .await?;
    test.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 1 } })).await?;
    test.until_ready(1).await?;
    until("one pod exists", async || {
        let pods = test.mailbox.get(PODS).await?.unwrap_or_default();
        Ok(pods["items"].as_array().is_some_and(|pods| pods.len() == 1))
    })
    .await?;
    assert_eq!(test.standin.requests().deletes(), 0, "the syncer deleted pods to scale");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_syncer_converges_after_every_fault_and_deletes_nothing() -> Result<()> {
    let mut test = StandinTest::new().await?;
    let _running = test.start();
    test.until_ready(2).await?;
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
        test.standin.faults().inject(fault, 40);
        test.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        test.until_ready(replicas).await?;
        test.standin.faults().clear();
    }
    for link in [Link::Cut, Link::Silent] {
        test.standin.faults().set_link(link);
        replicas = if replicas == 2 { 3 } else { 2 };
        test.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        sleep(Duration::from_secs(2)).await;
        test.standin.faults().clear();
        test.until_ready(replicas).await?;
    }
    test.standin.restart().await?;
    test.downstream.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    test.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 4 } })).await?;
    test.until_ready(4).await?;
    assert_eq!(test.standin.requests().deletes(), 0);
    Ok(())
}

/// Every response takes half a second: nothing is lost and nothing is done twice, it only takes longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_stand_in_receives_every_change() -> Result<()> {
    let test = StandinTest::new().await?;
    let _running = test.start();
    test.until_ready(2).await?;
    test.standin.faults().set_delay(Duration::from_millis(500));
    test.mailbox.merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": 4 } })).await?;
    test.mailbox.create(CONFIG_MAPS, placed(map("settings", "one"))).await?;
    test.until_ready(4).await?;
    test.downstream.until_exists(&format!("{CONFIG_MAPS}/settings")).await?;
    test.mailbox.delete(&format!("{CONFIG_MAPS}/settings")).await?;
    test.mailbox.until_deleted(&format!("{CONFIG_MAPS}/settings")).await?;
    test.standin.faults().clear();
    test.downstream.until_deleted(&format!("{CONFIG_MAPS}/settings")).await?;
    until("four pods are ready", async || Ok(test.ready_pods().await? == 4)).await?;
    assert_eq!(test.standin.requests().deletes(), 1);
    Ok(())
}

/// A watch is for a kind: the number of objects makes no difference, on either side.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_objects_need_as_many_watches_as_five() -> Result<()> {
    let mut watches = Vec::new();
    for count in [5, 50] {
        let test = StandinTest::new().await?;
        let link = server::TestLink::new();
        let _running = RunningSyncer::start(test.mailbox_server.through(&link), test.standin.client(), None);
        for number in 0..count {
            test.mailbox.create(CONFIG_MAPS, placed(map(&format!("m{number}"), "one"))).await?;
        }
        for number in 0..count {
            test.downstream.until_exists(&format!("{CONFIG_MAPS}/m{number}")).await?;
        }
        test.until_ready(2).await?;
        until("two pods are ready", async || Ok(test.ready_pods().await? == 2)).await?;
        let downstream = test.standin.requests().0.into_keys().filter(|(verb, _)| verb == "watch");
        let downstream: Vec<String> = downstream.map(|(_, resource)| resource).collect();
        watches.push((downstream, link.watched()));
    }
    println!("{} watches downstream, {} of the mailbox", watches[0].0.len(), watches[0].1.len());
    assert_eq!(watches[0], watches[1]);
    // Namespaces, ConfigMaps, Deployments, and the kinds that are projected because of them.
    assert!(watches[0].0.len() <= 12, "{:?}", watches[0].0);
    Ok(())
}

/// A cluster whose clock is five hours ahead: its timestamps are in our future. They are projected unchanged, and
/// nothing waits for those times.
#[tokio::test(flavor = "multi_thread")]
async fn timestamps_of_a_cluster_with_its_clock_ahead_are_projected_unchanged() -> Result<()> {
    let mut options = Options::new("east");
    options.clock = Clock::held();
    options.clock.advance(Duration::from_secs(5 * 3600));
    let test = StandinTest::with(options).await?;
    let now = Timestamp::now();
    let _running = test.start();
    for replicas in [2, 4] {
        test.mailbox
            .merge(&format!("{DEPLOYMENTS}/web"), json!({ "spec": { "replicas": replicas } }))
            .await?;
        test.until_ready(replicas).await?;
    }
    let in_mailbox = test.mailbox.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    let downstream = test.downstream.until_exists(&format!("{DEPLOYMENTS}/web")).await?;
    assert_eq!(in_mailbox["status"]["conditions"], downstream["status"]["conditions"]);
    let transition_time =
        downstream["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap_or_default();
    let transition_time: Timestamp = transition_time.parse()?;
    assert!(transition_time.duration_since(now).as_hours() >= 4, "{transition_time} is not ahead of {now}");
    until("four pods are ready", async || Ok(test.ready_pods().await? == 4)).await?;
    test.mailbox.delete(&format!("{DEPLOYMENTS}/web")).await?;
    test.downstream.until_deleted(&format!("{DEPLOYMENTS}/web")).await?;
    test.mailbox.until_deleted(&format!("{DEPLOYMENTS}/web")).await?;
    assert_eq!(test.standin.requests().deletes(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_job_and_the_pod_of_a_due_cron_job_are_projected() -> Result<()> {
    let options = Options { clock: Clock::held(), ..Options::new("east") };
    let test = StandinTest::with(options).await?;
    let _running = test.start();
    test.mailbox.create(CRON_JOBS, placed(minutely())).await?;
    test.downstream.until_exists(&format!("{CRON_JOBS}/minutely")).await?;
    test.until_ready(2).await?;
    assert!(test.mailbox.get(JOBS).await?.is_some_and(|jobs| jobs["items"] == json!([])));
    until("the CronJob has fired", async || {
        test.standin.clock().advance(Duration::from_secs(20));
        has_fired(&test.mailbox).await
    })
    .await?;
    test.mailbox.delete(&format!("{CRON_JOBS}/minutely")).await?;
    until("its Job and pod are deleted", async || {
        let jobs = test.mailbox.get(JOBS).await?.unwrap_or_default();
        Ok(jobs["items"] == json!([]) && test.ready_pods().await? == 2)
    })
    .await
}
