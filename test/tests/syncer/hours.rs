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

use crate::server::Link;
use crate::setup::*;

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than a call waits for a server that does not answer, which is a minute.
const PATIENCE: Duration = Duration::from_secs(90);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// How a server is unreachable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Away {
    /// The connection is cut.
    Cut,
    /// It accepts requests and does not answer.
    Mute,
    /// Our credentials have expired.
    Expired,
    Failing,
}

const WAYS: [Away; 4] = [Away::Cut, Away::Mute, Away::Expired, Away::Failing];

impl Away {
    fn begin(self, link: &Link) {
        match self {
            Away::Cut => link.cut(true),
            Away::Mute => link.mute(),
            Away::Expired => link.answer(Some((401, "{\"kind\":\"Status\",\"code\":401}"))),
            Away::Failing => link.answer(Some((500, "{\"kind\":\"Status\",\"code\":500}"))),
        }
    }
}

fn says(value: &str) -> impl Fn(&Value) -> bool {
    move |found| found["data"]["key"] == value
}

/// Starts a syncer, and returns once three objects are in sync.
async fn at_rest() -> Result<(SyncerTest, Running)> {
    let test = SyncerTest::new().await?;
    test.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    for name in ["changed", "deleted", "kept"] {
        test.place(MAPS, map(name, "one")).await?;
    }
    let running = test.start();
    for name in ["changed", "deleted", "kept"] {
        test.below.until_there(&format!("{MAPS}/{name}")).await?;
    }
    test.rests().await?;
    Ok((test, running))
}

/// Makes changes while a server is unreachable.
async fn ask(test: &SyncerTest) -> Result<()> {
    test.place(MAPS, map("new", "one")).await?;
    test.mailbox.merge(&format!("{MAPS}/changed"), json!({ "data": { "key": "two" } })).await?;
    test.mailbox.delete(&format!("{MAPS}/deleted")).await
}

/// Checks that all changes were applied, and nothing else was deleted.
async fn made_good(test: &SyncerTest) -> Result<()> {
    sleep(PATIENCE).await;
    let path = |name: &str| format!("{MAPS}/{name}");
    test.below.until_there(&path("new")).await?;
    test.below.until(&path("changed"), says("two")).await?;
    test.below.until(&path("kept"), says("one")).await?;
    test.below.until_gone(&path("deleted")).await?;
    test.mailbox.until_gone(&path("deleted")).await?;
    let written = test.below_link.written();
    let deletes: Vec<_> = written.iter().filter(|call| call.starts_with("DELETE")).collect();
    assert_eq!(deletes, [&format!("DELETE {}", path("deleted"))]);
    until("all is said to be well", async || Ok(test.condition("Synced").await?["status"] == "True")).await
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_the_physical_cluster_is_made_good() -> Result<()> {
    for away in WAYS {
        println!("{away:?}");
        let (test, _running) = at_rest().await?;
        away.begin(&test.below_link);
        ask(&test).await?;
        test.below.merge(&format!("{MAPS}/kept"), json!({ "data": { "key": "meddled" } })).await?;
        until("it is said", async || Ok(test.condition("Ready").await?["status"] == "False")).await?;
        sleep(HOUR).await;
        test.below_server.forget_history().await?;
        assert_eq!(test.below_link.written(), Vec::<String>::new());
        test.below_link.mend();
        made_good(&test).await?;
        until("it is said", async || Ok(test.condition("Ready").await?["status"] == "True")).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_syncer_enforces_the_last_desired_state_for_an_hour_without_holon() -> Result<()> {
    for away in WAYS {
        println!("{away:?}");
        let (test, _running) = at_rest().await?;
        away.begin(&test.mailbox_link);
        ask(&test).await?;
        for _ in 0..4 {
            sleep(HOUR / 4).await;
            test.below.merge(&format!("{MAPS}/kept"), json!({ "data": { "key": "meddled" } })).await?;
            test.below.until(&format!("{MAPS}/kept"), says("one")).await?;
        }
        // The syncer cannot know the changes made since then, and must not delete anything.
        for name in ["changed", "deleted"] {
            test.below.until(&format!("{MAPS}/{name}"), says("one")).await?;
        }
        test.mailbox_server.forget_history().await?;
        test.mailbox_link.mend();
        made_good(&test).await?;
    }
    Ok(())
}

/// At rest, the syncer renews its lease every ten seconds as its heartbeat, and writes nothing else, neither in the
/// mailbox nor downstream.
#[tokio::test(start_paused = true)]
async fn an_hour_at_rest_writes_nothing_but_the_lease() -> Result<()> {
    let (test, _running) = at_rest().await?;
    busy(&test).await?;
    sleep(PATIENCE).await;
    for link in [&test.mailbox_link, &test.below_link] {
        link.written();
        link.renewed();
    }
    sleep(HOUR).await;
    assert_eq!(test.mailbox_link.written(), Vec::<String>::new());
    assert_eq!(test.below_link.written(), Vec::<String>::new());
    assert_eq!(test.below_link.renewed(), 0);
    let beats = test.mailbox_link.renewed();
    assert!((300..=400).contains(&beats), "the lease was written {beats} times");
    Ok(())
}

/// Two hundred status changes and fifty events happen while a link is cut. Of ten changes of one status only the last
/// is written, once, and each event is written once.
#[tokio::test(start_paused = true)]
async fn changes_behind_a_cut_link_are_written_once() -> Result<()> {
    for which in [|test: &SyncerTest| test.mailbox_link.clone(), |test: &SyncerTest| test.below_link.clone()]
    {
        let (test, _running) = at_rest().await?;
        busy(&test).await?;
        sleep(PATIENCE).await;
        let link = which(&test);
        link.cut(true);
        test.below_link.written();
        pile_up(&test).await?;
        test.mailbox_link.written();
        link.cut(false);
        sleep(PATIENCE).await;
        for name in apps() {
            let path = format!("{DEPLOYMENTS}/{name}");
            let (here, below) =
                (test.mailbox.until_there(&path).await?, test.below.until_there(&path).await?);
            assert_eq!(here["status"], below["status"], "{name}");
            assert_eq!(here["status"]["replicas"], CHANGES, "{name}");
        }
        let shown = test.mailbox.get(EVENTS).await?.unwrap_or_default();
        assert_eq!(shown["items"].as_array().map(Vec::len), Some(NEWS));
        let mut times = BTreeMap::<String, usize>::new();
        let written = test.mailbox_link.written();
        written.iter().for_each(|call| *times.entry(call.clone()).or_default() += 1);
        let statuses = times.keys().filter(|call| call.contains("/deployments/")).count();
        assert_eq!(statuses, APPS, "{times:#?}");
        let often: Vec<_> =
            times.iter().filter(|(call, times)| !call.ends_with("/events") && **times > 1).collect();
        // The start and the end of the failure are two reports.
        let often: Vec<_> =
            often.into_iter().filter(|(call, _)| !call.contains("/physicalclusters/")).collect();
        assert!(often.is_empty(), "{often:#?}");
        assert_eq!(times.get(&format!("POST {EVENTS}")), Some(&NEWS));
        assert!(test.below_link.written().is_empty());
    }
    Ok(())
}

const EVENTS: &str = "/api/v1/namespaces/shop/events";
const APPS: usize = 20;
const CHANGES: usize = 10;
const NEWS: usize = 50;

fn apps() -> impl Iterator<Item = String> + Clone {
    (0..APPS).map(|number| format!("app-{number}"))
}

/// Creates Deployments with a status.
async fn busy(test: &SyncerTest) -> Result<()> {
    for name in apps() {
        test.place(DEPLOYMENTS, deployment(&name)).await?;
        let path = format!("{DEPLOYMENTS}/{name}");
        test.below.until_there(&path).await?;
        test.below.merge(&format!("{path}/status"), json!({ "status": { "observedGeneration": 1 } })).await?;
        test.mailbox.until(&path, |found| !found["status"]["observedGeneration"].is_null()).await?;
    }
    Ok(())
}

/// Changes each status repeatedly over a quarter of an hour, and creates events.
async fn pile_up(test: &SyncerTest) -> Result<()> {
    for change in 1..=CHANGES {
        for name in apps() {
            let status = json!({ "status": { "replicas": change, "observedGeneration": 1 } });
            test.below.merge(&format!("{DEPLOYMENTS}/{name}/status"), status).await?;
        }
        sleep(HOUR / 40).await;
    }
    for (number, name) in apps().cycle().take(NEWS).enumerate() {
        let app = test.below.until_there(&format!("{DEPLOYMENTS}/{name}")).await?;
        let about = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": name, "uid": app["metadata"]["uid"],
        });
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("news.{number}") },
            "involvedObject": about, "reason": "Told", "message": "something happened", "type": "Normal",
        });
        test.below.make(EVENTS, event).await?;
    }
    Ok(())
}

/// Drift is corrected within a second. That is a second of the simulated clock, which stands still during work: the
/// test measures waiting, not the speed of the machine.
#[tokio::test(start_paused = true)]
async fn drift_is_corrected_within_a_second() -> Result<()> {
    let (test, _running) = at_rest().await?;
    for turn in 0..10 {
        sleep(HOUR / 60).await;
        let begun = Instant::now();
        let path = format!("{MAPS}/kept");
        match turn % 2 {
            0 => drop(test.below.merge(&path, json!({ "data": { "key": "meddled" } })).await?),
            _ => test.below.delete(&path).await?,
        }
        test.below.until(&path, says("one")).await?;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    Ok(())
}

/// Every response takes five seconds: long, but less than any timeout.
#[tokio::test(start_paused = true)]
async fn from_servers_that_take_their_time_everything_comes_in_the_end() -> Result<()> {
    let (test, _running) = at_rest().await?;
    for link in [&test.mailbox_link, &test.below_link] {
        link.slow("", Duration::from_secs(5));
    }
    ask(&test).await?;
    test.below.merge(&format!("{MAPS}/kept"), json!({ "data": { "key": "meddled" } })).await?;
    sleep(HOUR / 30).await;
    made_good(&test).await
}

/// The holder of the lease has a clock that is five hours off. While it renews the lease, nothing is written, however
/// old the lease looks; when it stops, the lease is soon taken, however new it looks.
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_neither_loses_nor_keeps_the_lease() -> Result<()> {
    let test = SyncerTest::new().await?;
    test.mailbox.make(NAMESPACES, placed(namespace("shop"))).await?;
    let renewed = |hours: i64| {
        let time = Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        json!({ "spec": {
            "holderIdentity": "another", "leaseDurationSeconds": 30,
            "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        } })
    };
    let mut lease = renewed(-5);
    lease["metadata"]["name"] = json!("holon-syncer");
    test.mailbox.make(LEASES, lease).await?;
    let path = format!("{LEASES}/holon-syncer");
    let _running = test.start();
    for _ in 0..30 {
        sleep(Duration::from_secs(10)).await;
        test.mailbox.merge(&path, renewed(-5)).await?;
    }
    assert_eq!(test.below_link.written(), Vec::<String>::new());
    test.mailbox.merge(&path, renewed(5)).await?;
    let begun = Instant::now();
    test.below.until_there(&format!("{NAMESPACES}/shop")).await?;
    let waited = begun.elapsed().as_secs();
    // Thirty seconds on the syncer's own clock, and a check every two.
    assert!((28..40).contains(&waited), "{waited} s");
    Ok(())
}
