//! Hours of disconnection, in simulated time.
//!
//! Everything runs in one process without sockets, so tokio's clock jumps to the next timer: the renewal of a lease, a
//! retry, a timeout. The time of day is not simulated, but no decision depends on it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::server::TestLink;
use crate::setup::*;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than a call waits for a server that does not answer, which is a minute.
const PATIENCE: Duration = Duration::from_secs(90);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The way in which a server is unreachable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outage {
    /// The connection is cut.
    Cut,
    /// It accepts requests and does not answer.
    Unresponsive,
    /// Our credentials have expired.
    Expired,
    Failing,
}

const OUTAGES: [Outage; 4] = [Outage::Cut, Outage::Unresponsive, Outage::Expired, Outage::Failing];

impl Outage {
    fn start(self, link: &TestLink) {
        match self {
            Outage::Cut => link.cut(true),
            Outage::Unresponsive => link.stop_responding(),
            Outage::Expired => link.respond_with(Some((401, "{\"kind\":\"Status\",\"code\":401}"))),
            Outage::Failing => link.respond_with(Some((500, "{\"kind\":\"Status\",\"code\":500}"))),
        }
    }
}

fn has_value(value: &str) -> impl Fn(&Value) -> bool {
    move |found| found["data"]["key"] == value
}

/// Starts a syncer, and returns once three objects are in sync.
async fn three_synced_objects() -> Result<(SyncerTest, RunningSyncer)> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["changed", "deleted", "kept"] {
        test.place(CONFIG_MAPS, map(name, "one")).await?;
    }
    let running = test.start();
    for name in ["changed", "deleted", "kept"] {
        test.downstream.until_exists(&format!("{CONFIG_MAPS}/{name}")).await?;
    }
    test.until_steady().await?;
    Ok((test, running))
}

/// Makes changes while a server is unreachable.
async fn make_changes(test: &SyncerTest) -> Result<()> {
    test.place(CONFIG_MAPS, map("new", "one")).await?;
    test.mailbox.merge(&format!("{CONFIG_MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    test.mailbox.delete(&format!("{CONFIG_MAPS}/deleted")).await
}

/// Checks that all changes were applied, and nothing else was deleted.
async fn check_changes_are_applied(test: &SyncerTest) -> Result<()> {
    sleep(PATIENCE).await;
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    test.downstream.until_exists(&path("new")).await?;
    test.downstream.until(&path("changed"), has_value("two")).await?;
    test.downstream.until(&path("kept"), has_value("one")).await?;
    test.downstream.until_deleted(&path("deleted")).await?;
    test.mailbox.until_deleted(&path("deleted")).await?;
    let written = test.downstream_link.written();
    let deletes: Vec<_> = written.iter().filter(|call| call.starts_with("DELETE")).collect();
    assert_eq!(deletes, [&format!("DELETE {}", path("deleted"))]);
    until("Synced is True", async || Ok(test.condition("Synced").await?["status"] == "True")).await
}

#[tokio::test(start_paused = true)]
async fn changes_during_an_hour_without_the_physical_cluster_are_applied_afterwards() -> Result<()> {
    for outage in OUTAGES {
        println!("{outage:?}");
        let (test, _running) = three_synced_objects().await?;
        outage.start(&test.downstream_link);
        make_changes(&test).await?;
        test.downstream
            .merge(&format!("{CONFIG_MAPS}/kept"), json!({ "data": { "key": "meddled" } }))
            .await?;
        until("Ready is False", async || Ok(test.condition("Ready").await?["status"] == "False")).await?;
        sleep(HOUR).await;
        test.downstream_server.forget_history().await?;
        assert_eq!(test.downstream_link.written(), Vec::<String>::new());
        test.downstream_link.clear_faults();
        check_changes_are_applied(&test).await?;
        until("Ready is True", async || Ok(test.condition("Ready").await?["status"] == "True")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_syncer_enforces_the_last_desired_state_for_an_hour_without_holon() -> Result<()> {
    for outage in OUTAGES {
        println!("{outage:?}");
        let (test, _running) = three_synced_objects().await?;
        outage.start(&test.mailbox_link);
        make_changes(&test).await?;
        for _ in 0..4 {
            sleep(HOUR / 4).await;
            test.downstream
                .merge(&format!("{CONFIG_MAPS}/kept"), json!({ "data": { "key": "meddled" } }))
                .await?;
            test.downstream.until(&format!("{CONFIG_MAPS}/kept"), has_value("one")).await?;
        }
        // The syncer cannot know the changes made since then, and must not delete anything.
        for name in ["changed", "deleted"] {
            test.downstream.until(&format!("{CONFIG_MAPS}/{name}"), has_value("one")).await?;
        }
        test.mailbox_server.forget_history().await?;
        test.mailbox_link.clear_faults();
        check_changes_are_applied(&test).await?;
    }
    Ok(())
}

/// Without changes, the syncer renews its lease every ten seconds as its heartbeat, and writes nothing else, neither in
/// the mailbox nor downstream.
#[tokio::test(start_paused = true)]
async fn an_idle_hour_writes_nothing_but_the_lease() -> Result<()> {
    let (test, _running) = three_synced_objects().await?;
    create_apps(&test).await?;
    sleep(PATIENCE).await;
    for link in [&test.mailbox_link, &test.downstream_link] {
        link.written();
        link.renewed();
    }
    sleep(HOUR).await;
    assert_eq!(test.mailbox_link.written(), Vec::<String>::new());
    assert_eq!(test.downstream_link.written(), Vec::<String>::new());
    assert_eq!(test.downstream_link.renewed(), 0);
    let renewals = test.mailbox_link.renewed();
    assert!((300..=400).contains(&renewals), "the lease was written {renewals} times");
    Ok(())
}

/// Two hundred status changes and fifty events happen while a link is cut. Of ten changes of one status only the last
/// is written, once, and each event is written once.
#[tokio::test(start_paused = true)]
async fn changes_behind_a_cut_link_are_written_once() -> Result<()> {
    for link_of in
        [|test: &SyncerTest| test.mailbox_link.clone(), |test: &SyncerTest| test.downstream_link.clone()]
    {
        let (test, _running) = three_synced_objects().await?;
        create_apps(&test).await?;
        sleep(PATIENCE).await;
        let link = link_of(&test);
        link.cut(true);
        test.downstream_link.written();
        change_statuses_and_create_events(&test).await?;
        test.mailbox_link.written();
        link.cut(false);
        sleep(PATIENCE).await;
        for name in apps() {
            let path = format!("{DEPLOYMENTS}/{name}");
            let (in_mailbox, downstream) =
                (test.mailbox.until_exists(&path).await?, test.downstream.until_exists(&path).await?);
            assert_eq!(in_mailbox["status"], downstream["status"], "{name}");
            assert_eq!(in_mailbox["status"]["replicas"], CHANGES, "{name}");
        }
        let projected = test.mailbox.get(EVENTS).await?.unwrap_or_default();
        assert_eq!(projected["items"].as_array().map(Vec::len), Some(NEW_EVENTS));
        let mut times = BTreeMap::<String, usize>::new();
        let written = test.mailbox_link.written();
        written.iter().for_each(|call| *times.entry(call.clone()).or_default() += 1);
        let statuses = times.keys().filter(|call| call.contains("/deployments/")).count();
        assert_eq!(statuses, APPS, "{times:#?}");
        let repeated: Vec<_> =
            times.iter().filter(|(call, times)| !call.ends_with("/events") && **times > 1).collect();
        // The start and the end of the failure are two reports.
        let repeated: Vec<_> =
            repeated.into_iter().filter(|(call, _)| !call.contains("/physicalclusters/")).collect();
        assert!(repeated.is_empty(), "{repeated:#?}");
        assert_eq!(times.get(&format!("POST {EVENTS}")), Some(&NEW_EVENTS));
        assert!(test.downstream_link.written().is_empty());
    }
    Ok(())
}

const EVENTS: &str = "/api/v1/namespaces/shop/events";
const APPS: usize = 20;
const CHANGES: usize = 10;
const NEW_EVENTS: usize = 50;

fn apps() -> impl Iterator<Item = String> + Clone {
    (0..APPS).map(|number| format!("app-{number}"))
}

/// Creates Deployments with a status.
async fn create_apps(test: &SyncerTest) -> Result<()> {
    for name in apps() {
        test.place(DEPLOYMENTS, deployment(&name)).await?;
        let path = format!("{DEPLOYMENTS}/{name}");
        test.downstream.until_exists(&path).await?;
        test.downstream
            .merge(&format!("{path}/status"), json!({ "status": { "observedGeneration": 1 } }))
            .await?;
        test.mailbox.until(&path, |found| !found["status"]["observedGeneration"].is_null()).await?;
    }
    Ok(())
}

/// Changes each status repeatedly over a quarter of an hour, and creates events.
async fn change_statuses_and_create_events(test: &SyncerTest) -> Result<()> {
    for change in 1..=CHANGES {
        for name in apps() {
            let status = json!({ "status": { "replicas": change, "observedGeneration": 1 } });
            test.downstream.merge(&format!("{DEPLOYMENTS}/{name}/status"), status).await?;
        }
        sleep(HOUR / 40).await;
    }
    for (number, name) in apps().cycle().take(NEW_EVENTS).enumerate() {
        let app = test.downstream.until_exists(&format!("{DEPLOYMENTS}/{name}")).await?;
        let about = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name, "uid": app["metadata"]["uid"],
        });
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("event.{number}") },
            "involvedObject": about, "reason": "Reported", "message": "something happened", "type": "Normal",
        });
        test.downstream.create(EVENTS, event).await?;
    }
    Ok(())
}

/// Drift is corrected within a second. That is a second of the simulated clock, which stands still during work: the
/// test measures waiting, not the speed of the machine.
#[tokio::test(start_paused = true)]
async fn drift_is_corrected_within_a_second() -> Result<()> {
    let (test, _running) = three_synced_objects().await?;
    for round in 0..10 {
        sleep(HOUR / 60).await;
        let begun = Instant::now();
        let path = format!("{CONFIG_MAPS}/kept");
        match round % 2 {
            0 => drop(test.downstream.merge(&path, json!({ "data": { "key": "meddled" } })).await?),
            _ => test.downstream.delete(&path).await?,
        }
        test.downstream.until(&path, has_value("one")).await?;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    Ok(())
}

/// Every response takes five seconds: long, but less than any timeout.
#[tokio::test(start_paused = true)]
async fn slow_servers_receive_every_change() -> Result<()> {
    let (test, _running) = three_synced_objects().await?;
    for link in [&test.mailbox_link, &test.downstream_link] {
        link.delay("", Duration::from_secs(5));
    }
    make_changes(&test).await?;
    test.downstream.merge(&format!("{CONFIG_MAPS}/kept"), json!({ "data": { "key": "meddled" } })).await?;
    sleep(HOUR / 30).await;
    check_changes_are_applied(&test).await
}

/// The holder of the lease has a clock that is five hours off. While it renews the lease, nothing is written, however
/// old the lease looks; when it stops, the lease is soon taken, however new it looks.
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_neither_loses_nor_keeps_the_lease() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.create(NAMESPACES, placed(namespace("shop"))).await?;
    let renewed = |hours: i64| {
        let time = Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        json!({ "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 30,
            "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        } })
    };
    let mut lease = renewed(-5);
    lease["metadata"]["name"] = json!("holon-syncer");
    test.mailbox.create(LEASES, lease).await?;
    let path = format!("{LEASES}/holon-syncer");
    let _running = test.start();
    for _ in 0..30 {
        sleep(Duration::from_secs(10)).await;
        test.mailbox.merge(&path, renewed(-5)).await?;
    }
    assert_eq!(test.downstream_link.written(), Vec::<String>::new());
    test.mailbox.merge(&path, renewed(5)).await?;
    let begun = Instant::now();
    test.downstream.until_exists(&format!("{NAMESPACES}/shop")).await?;
    let waited_s = begun.elapsed().as_secs();
    // Thirty seconds on the syncer's own clock, and a check every two.
    assert!((28..40).contains(&waited_s), "{waited_s} s");
    Ok(())
}
