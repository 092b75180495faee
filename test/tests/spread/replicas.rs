//! The division of replicas over physical clusters, with never too many or too few in between.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use scenarios::history::{History, Moment, check};
use scenarios::kstatus::{self, Verdict};
use serde_json::json;
use standin::{Delays, Options};

use crate::app::*;

/// Returns the default surge of a Deployment: a quarter, rounded up.
fn surge(total: u64) -> u64 {
    total.div_ceil(4)
}

/// Checks that the targets together are scaled up at most to the total and its surge, and scaled down at most to the
/// total.
pub(crate) fn stays_within_total(before: &Moment, now: &Moment) -> bool {
    let most = now.total() + surge(now.total());
    now.requested() <= before.requested().max(most) && now.requested() >= before.requested().min(now.total())
}

/// Returns the replicas of each target. A target with zero replicas has a mailbox object too.
async fn requested_by_all(fleet: &Fleet) -> Result<Vec<u64>> {
    until("every target has a mailbox object", async || Ok(shares(fleet).await?.iter().all(Option::is_some)))
        .await?;
    Ok(shares(fleet).await?.into_iter().flatten().collect())
}

/// kcp gave every target the full number first and divided it later: at that moment there were as many times too many
/// pods as there were targets.
async fn scale_through_totals(names: &[&str]) -> Result<()> {
    scale_through_totals_on(&Fleet::of(names).await?).await
}

pub(crate) async fn scale_through_totals_on(fleet: &Fleet) -> Result<()> {
    let history = History::of_deployments(fleet).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 0)).await?;
    let mut last = json!(null);
    for total in [0, 1, 7, 100, 3] {
        fleet.root.merge(WEB, json!({ "spec": { "replicas": total } })).await?;
        last = fleet.root.until_available(WEB, total).await?;
        let shares = requested_by_all(fleet).await?;
        let (most, least) = (shares.iter().max().unwrap(), shares.iter().min().unwrap());
        assert_eq!(shares.iter().sum::<u64>(), total, "{shares:?}");
        assert!(most - least <= 1, "{shares:?} of {total}");
        assert_eq!(shares.len(), fleet.members().count());
    }
    history.until_observed(&last).await?;
    check(&history.moments("shop", "web"), stays_within_total);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_on_one_is_exact() -> Result<()> {
    scale_through_totals(&["a"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_on_two_requests_the_total_at_every_revision() -> Result<()> {
    scale_through_totals(&["a", "b"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_on_three_requests_the_total_at_every_revision() -> Result<()> {
    scale_through_totals(&["a", "b", "c"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_on_five_requests_the_total_at_every_revision() -> Result<()> {
    scale_through_totals(&["a", "b", "c", "d", "e"]).await
}

fn placement(spec: serde_json::Value) -> serde_json::Value {
    json!({ "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "all" }, "spec": spec })
}

pub(crate) const PLACEMENTS: &str = "/apis/holon.dev/v1alpha1/placements";

/// The expected division by the weights 170, 110 and 60, as users see it.
#[tokio::test(flavor = "multi_thread")]
async fn weights_divide_every_total() -> Result<()> {
    let rows: [(u64, &[u64]); 8] = [
        (1, &[1, 0, 0]),
        (2, &[1, 1, 0]),
        (4, &[2, 1, 1]),
        (7, &[4, 2, 1]),
        (9, &[4, 3, 2]),
        (10, &[5, 3, 2]),
        (13, &[7, 4, 2]),
        (3, &[1, 1, 1]),
    ];
    check_weights_on(&Fleet::of(&["a", "b", "c"]).await?, &[("a", 170), ("b", 110), ("c", 60)], &rows).await
}

/// Checks the division of each total by these weights.
pub(crate) async fn check_weights_on(
    fleet: &Fleet,
    weights: &[(&str, i64)],
    rows: &[(u64, &[u64])],
) -> Result<()> {
    let history = History::of_deployments(fleet).await?;
    let weight =
        |(name, weight): &(&str, i64)| json!({ "clusterSelector": { "names": [name] }, "weight": weight });
    let shares_of: Vec<serde_json::Value> = weights.iter().map(weight).collect();
    fleet.root.create(PLACEMENTS, placement(json!({ "weights": "Static", "shares": shares_of }))).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    for (total, expected) in rows {
        fleet.root.merge(WEB, json!({ "spec": { "replicas": total } })).await?;
        let web = fleet.root.until_available(WEB, *total).await?;
        assert_eq!(requested_by_all(fleet).await?, *expected, "of {total}");
        history.until_observed(&web).await?;
    }
    check(&history.moments("shop", "web"), stays_within_total);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_above_every_maximum_are_pending_and_counted() -> Result<()> {
    let shares_of = json!([
        { "clusterSelector": { "names": ["a"] }, "max": 2 },
        { "clusterSelector": { "names": ["b", "c"] }, "max": 4 },
        { "clusterSelector": { "names": ["c"] }, "min": 1 },
    ]);
    check_maximums_on(&Fleet::of(&["a", "b", "c"]).await?, shares_of, &[2, 4, 4]).await
}

/// Checks that each target gets its maximum, and three more replicas fit nowhere.
pub(crate) async fn check_maximums_on(
    fleet: &Fleet,
    shares_of: serde_json::Value,
    most: &[u64],
) -> Result<()> {
    let (capacity, expected) = (most.iter().sum::<u64>(), most.iter().copied().map(Some).collect::<Vec<_>>());
    let total = capacity + 3;
    fleet.root.create(PLACEMENTS, placement(json!({ "shares": shares_of }))).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", capacity as u32)).await?;
    fleet.root.until_available(WEB, capacity).await?;
    assert_eq!(shares(fleet).await?, expected);
    fleet.root.merge(WEB, json!({ "spec": { "replicas": total } })).await?;
    let record = fleet.root.until(WEB_RECORD, |record| record["spec"]["pending"] == 3).await?;
    assert_eq!(record["spec"]["total"], total);
    let record =
        fleet.root.until(WEB_RECORD, |record| condition(record, "Complete")["status"] == "False").await?;
    let bounds = fleet
        .members()
        .zip(most)
        .map(|((name, _), most)| format!("; {name} takes at most {most}: max in spec.shares"));
    let message =
        format!("3 of {total} are pending: no target has capacity for them{}", bounds.collect::<String>());
    assert_eq!(condition(&record, "Complete")["message"], message, "{record:#}");
    assert_eq!(shares(fleet).await?, expected);
    // As many run as fit, and the user's status does not report more.
    let web = fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == capacity).await?;
    assert_eq!(web["status"]["unavailableReplicas"], 3, "{:#}", web["status"]);
    assert_eq!(condition(&web, "Placed")["message"], message, "{:#}", web["status"]);
    until("an Event reports the pending replicas", async || {
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        Ok(events.iter().any(|event| event["reason"] == "Pending" && event["message"] == message))
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joining_cluster_gets_its_share_without_missing_replicas() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 9)).await?;
    fleet.root.until_available(WEB, 9).await?;
    let history = History::of_deployments(&fleet).await?;
    fleet.join(standin::Options::new("c"), &[]).await?;
    until("each has three", async || Ok(shares(&fleet).await? == [Some(3), Some(3), Some(3)])).await?;
    let web = fleet.root.until_available(WEB, 9).await?;
    history.until_observed(&web).await?;
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 9 && now.requested() >= 9);
    check(&moments, |_, now| now.requested() <= 9 + surge(9));
    Ok(())
}

/// Each target has all replicas, and the workload is available when each target is. The status once reported six
/// replicas of three, which no tool accepts as finished.
#[tokio::test(flavor = "multi_thread")]
async fn a_duplicated_workload_has_all_replicas_on_every_target() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(PLACEMENTS, placement(json!({ "division": "Duplicate" }))).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 3)).await?;
    until("each has three", async || Ok(shares(&fleet).await? == [Some(3), Some(3)])).await?;
    let web = fleet.root.until(WEB, |web| kstatus::verdict(web) == Verdict::Current).await?;
    assert_eq!((&web["status"]["replicas"], &web["status"]["availableReplicas"]), (&json!(3), &json!(3)));
    // The status has the lowest numbers of any target.
    fleet.member("b").standin().freeze();
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 5 } })).await?;
    fleet
        .member("a")
        .downstream
        .until(&downstream_path(WEB), |web| web["status"]["availableReplicas"] == 5)
        .await?;
    let web = fleet.root.until(WEB, |web| web["status"]["replicas"] == 5).await?;
    assert_eq!(web["status"]["availableReplicas"], 3);
    assert_ne!(kstatus::verdict(&web), Verdict::Current);
    fleet.member("b").standin().thaw();
    fleet.root.until_available(WEB, 5).await?;
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 1 } })).await?;
    until("each has one", async || Ok(shares(&fleet).await? == [Some(1), Some(1)])).await
}

/// An object that differed only in form was written again and again: a change of its annotations increases a
/// Deployment's generation, so each reconcile saw a rollout in progress, and wrote the object in the form for that.
#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_object_is_written_once() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    for name in ["a", "b"] {
        // Slow enough for reconciles to happen in between.
        fleet.join(Options { delays: Delays::SHORT, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 4)).await?;
    fleet.root.until_available(WEB, 4).await?;
    let versions_now = async || {
        let mut versions =
            vec![fleet.root.until_exists(WEB_RECORD).await?["metadata"]["resourceVersion"].clone()];
        for (name, member) in fleet.members() {
            let object = member.mailbox.until_exists(&downstream_path(WEB)).await?;
            assert_eq!(object["metadata"]["generation"], 1, "{name}");
            versions.push(object["metadata"]["resourceVersion"].clone());
        }
        anyhow::Ok(versions)
    };
    // Pending events are still processed.
    let mut before = versions_now().await?;
    until("no object is written for a second", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = versions_now().await?;
        Ok(std::mem::replace(&mut before, now.clone()) == now)
    })
    .await
}
