//! The status at every revision, for tools that wait: `kubectl rollout status`, `helm --wait` and Argo read one status,
//! and must not see success too early, whenever they read it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::cluster::Id;
use scenarios::client::until;
use scenarios::fleet::Fleet;
use scenarios::history::{History, Moment};
use scenarios::kstatus::{Verdict, verdict};
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;

/// Slow enough for intermediate states to be visible.
const DELAYS: Delays = Delays {
    start: Duration::from_millis(20),
    ready: Duration::from_millis(20),
    stop: Duration::from_millis(20),
    ..Delays::NONE
};
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn image(object: &Value) -> &str {
    object["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// Computes how many pods of the wanted template are available, according to the statuses of all targets.
#[derive(Default)]
struct Served {
    /// The image that each target last reported, which may be older than the one it was sent.
    runs: BTreeMap<Id, String>,
}

impl Served {
    fn after(&mut self, moment: &Moment) -> u64 {
        self.runs.retain(|mailbox, _| moment.copies.contains_key(mailbox));
        let mut served = 0;
        for (mailbox, copy) in &moment.copies {
            let status = &copy["status"];
            if status["observedGeneration"] == copy["metadata"]["generation"] {
                self.runs.insert(*mailbox, image(copy).to_owned());
            }
            let number = |field: &str| status[field].as_u64().unwrap_or_default();
            if self.runs.get(mailbox).is_some_and(|runs| runs == image(&moment.whole)) {
                served += number("updatedReplicas").min(number("availableReplicas"));
            }
        }
        served
    }
}

/// Checks that no status reports success while pods are missing or outdated. Returns for each generation whether
/// success was reported.
fn judge(moments: &[Moment]) -> BTreeMap<i64, bool> {
    let mut served = Served::default();
    let mut generations: BTreeMap<i64, bool> = BTreeMap::new();
    for (at, moment) in moments.iter().enumerate() {
        let served = served.after(moment);
        let generation = moment.whole["metadata"]["generation"].as_i64().unwrap_or_default();
        let is_done = !moment.whole.is_null() && verdict(&moment.whole) == Verdict::Current;
        *generations.entry(generation).or_default() |= is_done;
        if !is_done {
            continue;
        }
        let is_old = |copy: &&Value| {
            let stays = copy["metadata"]["deletionTimestamp"].is_null();
            stays && copy["spec"]["replicas"] != 0 && image(copy) != image(&moment.whole)
        };
        let old = moment.copies.values().filter(is_old).count();
        let told: Vec<String> = moments[at.saturating_sub(8)..=at].iter().map(Moment::told).collect();
        assert!(
            served >= moment.total() && old == 0,
            "it is said to be done with {served} of {} available and {old} targets old:\n{}\n{:#}",
            moment.total(),
            told.join("\n"),
            moment.whole["status"],
        );
    }
    generations.remove(&0);
    generations
}

/// Creates a workload, scales it, updates it, and moves it off the first target and to another one.
async fn told(targets: usize) -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let names = &NAMES[..=targets];
    for name in names {
        fleet.join(Options { delays: DELAYS, ..Options::new(*name) }, &[]).await?;
    }
    let history = History::of_deployments(&fleet).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", &names[..targets].join(","))).await?;
    let few = targets as u64 * 2;
    fleet.root.make(DEPLOYMENTS, deployment("web", few as u32)).await?;
    let done = async |total: u64, wanted: &str| {
        let is_so = |web: &Value| {
            verdict(web) == Verdict::Current && image(web) == wanted && web["spec"]["replicas"] == total
        };
        fleet.root.until(WEB, is_so).await
    };
    done(few, "web:1").await?;
    let many = few + 5;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": many } })).await?;
    done(many, "web:1").await?;
    let newer = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, newer).await?;
    done(many, "web:2").await?;
    fleet.root.place(SHOP, &names[1..].join(",")).await?;
    fleet.member(names[0]).below.until_gone(&there(WEB)).await?;
    until("all of it is where it should be", async || {
        let shares: Vec<u64> = shares(&fleet).await?.into_iter().map(Option::unwrap_or_default).collect();
        Ok(shares[0] == 0 && shares.iter().sum::<u64>() == many)
    })
    .await?;
    done(many, "web:2").await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": few } })).await?;
    let web = done(few, "web:2").await?;
    history.hears(&web).await?;
    let generations = judge(&history.moments("shop", "web"));
    assert_eq!(generations.len(), 4, "{generations:?}");
    assert!(generations.values().all(|done| *done), "of each it is told in the end: {generations:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_one_target_reports_no_early_success() -> Result<()> {
    told(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_two_targets_reports_no_early_success() -> Result<()> {
    told(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_five_targets_reports_no_early_success() -> Result<()> {
    told(5).await
}

/// One of two targets is silent while the template changes, and while it is scaled. Its old numbers must not make the
/// status report success until it reports again.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_with_a_silent_target_reports_no_early_success() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        fleet.join(Options { delays: DELAYS, ..Options::new(name) }, &[]).await?;
    }
    let history = History::of_deployments(&fleet).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 4)).await?;
    let is_done = |web: &Value| verdict(web) == Verdict::Current;
    until("each has two", async || Ok(shares(&fleet).await? == [Some(2), Some(2)])).await?;
    fleet.root.until(WEB, is_done).await?;
    let newer = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.stop_syncing("b").await;
    for change in [newer, json!({ "spec": { "replicas": 8 } })] {
        fleet.root.merge(WEB, change).await?;
        let web = fleet.root.until_there(WEB).await?;
        // The other target has finished, and the silent one is known not to have.
        let is_half_done = |record: &Value| {
            let status = &record["status"];
            status["observedGeneration"] == web["metadata"]["generation"] && status["counts"]["updated"] == 1
        };
        fleet.root.until(WEB_RECORD, is_half_done).await?;
        fleet.member("a").mailbox.until(&there(WEB), is_done).await?;
        let web = fleet.root.until_there(WEB).await?;
        assert!(!is_done(&web), "{:#}", web["status"]);
    }
    fleet.sync("b");
    let web = fleet.root.until_available(WEB, 8).await?;
    history.hears(&web).await?;
    let generations: Vec<bool> = judge(&history.moments("shop", "web")).into_values().collect();
    assert_eq!(generations, [true, false, true]);
    Ok(())
}
