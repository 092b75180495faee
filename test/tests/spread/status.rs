//! The status at every revision, for tools that wait: `kubectl rollout status`, `helm --wait` and Argo read one status,
//! and must not see success too early, whenever they read it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use api::cluster::Id;
use api::meta::is_being_deleted;
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

/// Computes how many pods of the desired template are available, according to the statuses of all targets.
#[derive(Default)]
struct AvailablePods {
    /// The image that each target last reported, which may be older than the one it was sent.
    last_reported_image: BTreeMap<Id, String>,
}

impl AvailablePods {
    fn after_moment(&mut self, moment: &Moment) -> u64 {
        self.last_reported_image.retain(|mailbox, _| moment.mailbox_objects.contains_key(mailbox));
        let mut available_pods = 0;
        for (mailbox, object) in &moment.mailbox_objects {
            let status = &object["status"];
            if status["observedGeneration"] == object["metadata"]["generation"] {
                self.last_reported_image.insert(*mailbox, image(object).to_owned());
            }
            let number = |field: &str| status[field].as_u64().unwrap_or_default();
            if self
                .last_reported_image
                .get(mailbox)
                .is_some_and(|reported| reported == image(&moment.user_object))
            {
                available_pods += number("updatedReplicas").min(number("availableReplicas"));
            }
        }
        available_pods
    }
}

/// Checks that no status reports success while pods are missing or outdated. Returns for each generation whether
/// success was reported.
fn check_no_early_success(moments: &[Moment]) -> BTreeMap<i64, bool> {
    let mut available_pods = AvailablePods::default();
    let mut generations: BTreeMap<i64, bool> = BTreeMap::new();
    for (at, moment) in moments.iter().enumerate() {
        let available = available_pods.after_moment(moment);
        let generation = moment.user_object["metadata"]["generation"].as_i64().unwrap_or_default();
        let is_current = !moment.user_object.is_null() && verdict(&moment.user_object) == Verdict::Current;
        *generations.entry(generation).or_default() |= is_current;
        if !is_current {
            continue;
        }
        let is_outdated = |object: &&Value| {
            !is_being_deleted(object)
                && object["spec"]["replicas"] != 0
                && image(object) != image(&moment.user_object)
        };
        let outdated = moment.mailbox_objects.values().filter(is_outdated).count();
        let recent: Vec<String> = moments[at.saturating_sub(8)..=at].iter().map(Moment::describe).collect();
        assert!(
            available >= moment.total() && outdated == 0,
            "the status reports success with {available} of {} replicas available and {outdated} outdated targets:\n{}\n{:#}",
            moment.total(),
            recent.join("\n"),
            moment.user_object["status"],
        );
    }
    generations.remove(&0);
    generations
}

/// Creates a workload, scales it, updates it, and moves it off the first target and to another one.
async fn create_update_and_move(targets: usize) -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let names = &NAMES[..=targets];
    for name in names {
        fleet.join(Options { delays: DELAYS, ..Options::new(*name) }, &[]).await?;
    }
    let history = History::of_deployments(&fleet).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", &names[..targets].join(","))).await?;
    let few = targets as u64 * 2;
    fleet.root.create(DEPLOYMENTS, deployment("web", few as u32)).await?;
    let until_current = async |total: u64, expected_image: &str| {
        let is_expected = |web: &Value| {
            verdict(web) == Verdict::Current
                && image(web) == expected_image
                && web["spec"]["replicas"] == total
        };
        fleet.root.until(WEB, is_expected).await
    };
    until_current(few, "web:1").await?;
    let many = few + 5;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": many } })).await?;
    until_current(many, "web:1").await?;
    let new_image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, new_image).await?;
    until_current(many, "web:2").await?;
    fleet.root.place(SHOP, &names[1..].join(",")).await?;
    fleet.member(names[0]).downstream.until_deleted(&downstream_path(WEB)).await?;
    until("all replicas are on the other targets", async || {
        let shares: Vec<u64> = shares(&fleet).await?.into_iter().map(Option::unwrap_or_default).collect();
        Ok(shares[0] == 0 && shares.iter().sum::<u64>() == many)
    })
    .await?;
    until_current(many, "web:2").await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": few } })).await?;
    let web = until_current(few, "web:2").await?;
    history.until_observed(&web).await?;
    let generations = check_no_early_success(&history.moments("shop", "web"));
    assert_eq!(generations.len(), 4, "{generations:?}");
    assert!(
        generations.values().all(|is_reported| *is_reported),
        "success is reported for every generation: {generations:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_one_target_reports_no_early_success() -> Result<()> {
    create_update_and_move(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_two_targets_reports_no_early_success() -> Result<()> {
    create_update_and_move(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_on_five_targets_reports_no_early_success() -> Result<()> {
    create_update_and_move(5).await
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
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 4)).await?;
    let is_current = |web: &Value| verdict(web) == Verdict::Current;
    until("each has two", async || Ok(shares(&fleet).await? == [Some(2), Some(2)])).await?;
    fleet.root.until(WEB, is_current).await?;
    let new_image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.kill_syncer("b");
    for change in [new_image, json!({ "spec": { "replicas": 8 } })] {
        fleet.root.merge(WEB, change).await?;
        let web = fleet.root.until_exists(WEB).await?;
        // The other target has finished, and the silent one counts as outdated.
        let is_partly_updated = |record: &Value| {
            let status = &record["status"];
            status["observedGeneration"] == web["metadata"]["generation"] && status["counts"]["updated"] == 1
        };
        fleet.root.until(WEB_RECORD, is_partly_updated).await?;
        fleet.member("a").mailbox.until(&downstream_path(WEB), is_current).await?;
        let web = fleet.root.until_exists(WEB).await?;
        assert!(!is_current(&web), "{:#}", web["status"]);
    }
    fleet.start_syncer("b");
    let web = fleet.root.until_available(WEB, 8).await?;
    history.until_observed(&web).await?;
    let generations: Vec<bool> =
        check_no_early_success(&history.moments("shop", "web")).into_values().collect();
    assert_eq!(generations, [true, false, true]);
    Ok(())
}
