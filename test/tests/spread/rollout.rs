//! Rollouts over several physical clusters, within the bounds of one Deployment.

use std::time::Duration;

use anyhow::Result;
use scenarios::client::{condition, until};
use scenarios::fleet::Fleet;
use scenarios::history::{History, check};
use scenarios::witness::Witness;
use serde_json::{Value, json};
use standin::{Delays, Options};

use crate::app::*;

/// Slow enough that two pods would be down at the same time without coordination.
const DELAYS: Delays = Delays {
    start: Duration::from_millis(20),
    ready: Duration::from_millis(20),
    stop: Duration::from_millis(20),
    ..Delays::NONE
};

/// Returns a fleet in which `web` has ten replicas, one on each of ten clusters, of which one may be unavailable.
async fn ten_replicas_on_ten_clusters() -> Result<(Fleet, Witness)> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for number in 0..10 {
        let name = format!("c{number}");
        let store = Some(witness.store(&name));
        fleet.join(Options { delays: DELAYS, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 10);
    web["spec"]["strategy"] = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 10).await?;
    assert_eq!(shares(&fleet).await?, [Some(1); 10]);
    Ok((fleet, witness))
}

/// Checks the recorded states of the pods themselves on all ten clusters, because statuses may skip some: at most one
/// is down at any time, and each was replaced so many times.
fn check_at_most_one_down(witness: &Witness, times: usize) {
    let ready = witness.ready();
    let start =
        ready.iter().position(|(_, count)| *count == 10).expect("all ten pods were ready before the change");
    let changed = ready[start..].iter().filter(|(_, count)| *count == 9).count();
    assert!(changed >= 10 * times, "each of the ten pods is replaced {times} times, not {changed} in total");
    for (at, (state, count)) in ready.iter().enumerate().skip(start) {
        let before: Vec<String> = ready[at.saturating_sub(12)..at]
            .iter()
            .map(|(state, count)| format!("{count}: {state}"))
            .collect();
        assert!(*count >= 9, "{count} pods were ready when {state}, after\n{}", before.join("\n"));
    }
}

/// Ten targets with one pod each, and one may be unavailable in total: each target's own Deployment would take its only
/// pod down at once, and would be right by itself.
#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_of_ten_pods_on_ten_clusters_is_down() -> Result<()> {
    let (fleet, witness) = ten_replicas_on_ten_clusters().await?;
    let history = History::of_deployments(&fleet).await?;
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, image).await?;
    let web = fleet.root.until_available(WEB, 10).await?;
    history.until_observed(&web).await?;
    for (name, member) in fleet.members() {
        let pods = member.downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
        let images: Vec<&str> =
            pods.iter().filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect();
        assert!(images.contains(&"web:2"), "{name}: {images:?}");
    }
    check_at_most_one_down(&witness, 1);
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 9);
    check(&moments, |_, now| now.requested() == 10 && now.sum("/status/replicas") <= 10);
    // The user's status must not report the update as finished before it is.
    check(&moments, |_, now| {
        let done = now.user_object["status"]["observedGeneration"]
            == now.user_object["metadata"]["generation"]
            && now.user_object["status"]["updatedReplicas"] == 10;
        !done
            || now
                .mailbox_objects
                .values()
                .all(|object| object["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2")
    });
    Ok(())
}

/// An Override was written to all ten targets at once: the user's template was unchanged, so no target counted as
/// outdated.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_rolled_out_one_target_at_a_time() -> Result<()> {
    let (fleet, witness) = ten_replicas_on_ten_clusters().await?;
    let history = History::of_deployments(&fleet).await?;
    let overrides = "/apis/holon.dev/v1alpha1/overrides";
    let override_object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "zone" },
        "spec": { "rules": [{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "1" }] }] }] },
    });
    fleet.root.create(overrides, override_object).await?;
    until_all_pods_have_zone(&fleet, json!("1")).await?;
    let rules = json!([{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "2" }] }] }]);
    fleet.root.merge(&format!("{overrides}/zone"), json!({ "spec": { "rules": rules } })).await?;
    until_all_pods_have_zone(&fleet, json!("2")).await?;
    fleet.root.delete(&format!("{overrides}/zone")).await?;
    until_all_pods_have_zone(&fleet, json!(null)).await?;
    let web = fleet.root.until_available(WEB, 10).await?;
    history.until_observed(&web).await?;
    check_at_most_one_down(&witness, 3);
    check(&history.moments("shop", "web"), |_, now| now.available() >= 9 && now.requested() == 10);
    Ok(())
}

/// Waits until the pods of every target are ready with this value in the variable of an Override.
async fn until_all_pods_have_zone(fleet: &Fleet, zone: Value) -> Result<()> {
    until("the pods of every target have the variable", async || {
        let mut running = 0;
        for (_, member) in fleet.members() {
            let pods = member.downstream.list(&downstream_path("/api/v1/namespaces/shop/pods")).await?;
            let is_expected = |pod: &Value| {
                pod["spec"]["containers"][0]["env"][0]["value"] == zone
                    && condition(pod, "Ready")["status"] == "True"
            };
            running += usize::from(!pods.is_empty() && pods.iter().all(is_expected));
        }
        Ok(running == fleet.members().count())
    })
    .await
}

/// The same for a StatefulSet: as in a single one, from the highest ordinal down, each ready before the next is
/// replaced.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_of_a_stateful_set_restarts_the_highest_ordinal_first() -> Result<()> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for name in ["a", "b", "c"] {
        let store = Some(witness.store(name));
        fleet.join(Options { delays: DELAYS, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let sets = "/apis/apps/v1/namespaces/shop/statefulsets";
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "replicas": 6, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
            "template": template("web"),
        },
    });
    fleet.root.create(sets, set).await?;
    let is_ready = |set: &Value| set["status"]["readyReplicas"] == 6 && set["status"]["replicas"] == 6;
    fleet.root.until(&format!("{sets}/web"), is_ready).await?;
    let start = witness.ready().len();
    let override_object = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "zone" },
        "spec": { "rules": [{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "1" }] }] }] },
    });
    fleet.root.create("/apis/holon.dev/v1alpha1/overrides", override_object).await?;
    until_all_pods_have_zone(&fleet, json!("1")).await?;
    let mut restart_order: Vec<String> = Vec::new();
    for (state, count) in &witness.ready()[start..] {
        assert!(*count >= 5, "{count} pods were ready when {state}");
        if !state.is_ready() && !restart_order.contains(&state.name) {
            restart_order.push(state.name.clone());
        }
    }
    assert_eq!(restart_order, ["web-5", "web-4", "web-3", "web-2", "web-1", "web-0"]);
    Ok(())
}

/// A template and the replicas change in one edit: replicas are scaled at once, templates are updated one target after
/// the other. New pods that were not ready yet were counted as unavailable old ones: each target was allowed to take
/// one down, and did so after it had been scaled. In a later version one was allowed before any target had been scaled,
/// and did so while the others had not.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_and_replicas_can_change_in_one_edit() -> Result<()> {
    for (surge, unavailable) in [(1, 0), (0, 1)] {
        let mut fleet = Fleet::alone().await?;
        // Some targets have finished scaling while others have not.
        for (name, ready) in [("a", 20), ("b", 200), ("c", 600)] {
            let delays = Delays { ready: Duration::from_millis(ready), ..DELAYS };
            fleet.join(Options { delays, ..Options::new(name) }, &[]).await?;
        }
        fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
        let mut web = deployment("web", 6);
        web["spec"]["strategy"] =
            json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
        fleet.root.create(DEPLOYMENTS, web).await?;
        fleet.root.until_available(WEB, 6).await?;
        let history = History::of_deployments(&fleet).await?;
        let change = json!({ "spec": {
            "replicas": 12, "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } },
        } });
        fleet.root.merge(WEB, change).await?;
        let web = fleet.root.until_available(WEB, 12).await?;
        history.until_observed(&web).await?;
        // As in a single Deployment: no pod is taken down while more than allowed are missing.
        check(&history.moments("shop", "web"), |before, now| {
            now.serving() >= before.serving().min(12 - unavailable) && now.requested() <= 12 + surge
        });
    }
    Ok(())
}

/// One pod was broken on each of two targets, and one may be unavailable. Each target waited for the other to become
/// healthy, so neither got the template that would have repaired both.
#[tokio::test(flavor = "multi_thread")]
async fn degraded_targets_are_repaired_one_after_the_other() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["strategy"] = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    fleet.root.create(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    for name in ["a", "b"] {
        let mailbox = fleet.member(name).mailbox.clone();
        let pods = downstream_path("/api/v1/namespaces/shop/pods");
        until("its pods are projected", async || Ok(mailbox.list(&pods).await?.len() == 2)).await?;
        fleet.stop_syncer(name).await;
        let pod = mailbox.list(&pods).await?.remove(0);
        let broken = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        } });
        let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
        mailbox.merge(&format!("{pods}/{pod}/status"), broken).await?;
        let degraded_status = json!({ "status": { "availableReplicas": 1, "unavailableReplicas": 1 } });
        mailbox.merge(&downstream_path(&format!("{WEB}/status")), degraded_status).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 2).await?;
    let image = json!({ "spec": { "template": {
        "spec": { "containers": [{ "name": "main", "image": "web:2" }] },
    } } });
    fleet.root.merge(WEB, image).await?;
    let updated_targets = async || -> Result<usize> {
        let mut updated_targets = 0;
        for (_, member) in fleet.members() {
            let object = member.mailbox.get(&downstream_path(WEB)).await?.unwrap_or_default();
            updated_targets +=
                usize::from(object["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2");
        }
        Ok(updated_targets)
    };
    until("one target has the new template", async || Ok(updated_targets().await? > 0)).await?;
    assert_eq!(updated_targets().await?, 1);
    fleet.start_syncer("a");
    fleet.start_syncer("b");
    fleet.root.until_available(WEB, 4).await?;
    Ok(())
}
