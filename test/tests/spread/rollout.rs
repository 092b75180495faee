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
async fn ten_in_ten_places() -> Result<(Fleet, Witness)> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for number in 0..10 {
        let name = format!("c{number}");
        let store = Some(witness.store(&name));
        fleet.join(Options { delays: DELAYS, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 10);
    web["spec"]["strategy"] = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 10).await?;
    assert_eq!(shares(&fleet).await?, [Some(1); 10]);
    Ok((fleet, witness))
}

/// Checks the recorded states of the pods themselves on all ten clusters, because statuses may skip some: at most one
/// is down at any time, and each was replaced so many times.
fn never_two_were_down(witness: &Witness, times: usize) {
    let ready = witness.ready();
    let begun = ready.iter().position(|(_, count)| *count == 10).expect("all ten were ready at first");
    let changed = ready[begun..].iter().filter(|(_, count)| *count == 9).count();
    assert!(changed >= 10 * times, "each of the ten was down for a moment: {changed}");
    for (at, (sight, count)) in ready.iter().enumerate().skip(begun) {
        let before: Vec<String> = ready[at.saturating_sub(12)..at]
            .iter()
            .map(|(sight, count)| format!("{count}: {sight}"))
            .collect();
        assert!(*count >= 9, "{count} were ready when {sight}, after\n{}", before.join("\n"));
    }
}

/// Ten targets with one pod each, and one may be unavailable in total: each target's own Deployment would take its only
/// pod down at once, and would be right by itself.
#[tokio::test(flavor = "multi_thread")]
async fn of_ten_pods_in_ten_places_never_more_than_one_is_down() -> Result<()> {
    let (fleet, witness) = ten_in_ten_places().await?;
    let history = History::of_deployments(&fleet).await?;
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, image).await?;
    let web = fleet.root.until_available(WEB, 10).await?;
    history.hears(&web).await?;
    for (name, member) in fleet.members() {
        let pods = member.below.list(&there("/api/v1/namespaces/shop/pods")).await?;
        let images: Vec<&str> =
            pods.iter().filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect();
        assert!(images.contains(&"web:2"), "{name}: {images:?}");
    }
    never_two_were_down(&witness, 1);
    let moments = history.moments("shop", "web");
    check(&moments, |_, now| now.available() >= 9);
    check(&moments, |_, now| now.asked() == 10 && now.sum("/status/replicas") <= 10);
    // The user's status must not report the update as finished before it is.
    check(&moments, |_, now| {
        let done = now.whole["status"]["observedGeneration"] == now.whole["metadata"]["generation"]
            && now.whole["status"]["updatedReplicas"] == 10;
        !done
            || now
                .copies
                .values()
                .all(|copy| copy["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2")
    });
    Ok(())
}

/// An Override was written to all ten targets at once: the user's template was unchanged, so no target counted as
/// outdated.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_of_ten_takes_turns_too() -> Result<()> {
    let (fleet, witness) = ten_in_ten_places().await?;
    let history = History::of_deployments(&fleet).await?;
    let overrides = "/apis/holon.dev/v1alpha1/overrides";
    let overriding = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "zone" },
        "spec": { "rules": [{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "1" }] }] }] },
    });
    fleet.root.make(overrides, overriding).await?;
    until_all_run_with(&fleet, json!("1")).await?;
    let rules = json!([{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "2" }] }] }]);
    fleet.root.merge(&format!("{overrides}/zone"), json!({ "spec": { "rules": rules } })).await?;
    until_all_run_with(&fleet, json!("2")).await?;
    fleet.root.delete(&format!("{overrides}/zone")).await?;
    until_all_run_with(&fleet, json!(null)).await?;
    let web = fleet.root.until_available(WEB, 10).await?;
    history.hears(&web).await?;
    never_two_were_down(&witness, 3);
    check(&history.moments("shop", "web"), |_, now| now.available() >= 9 && now.asked() == 10);
    Ok(())
}

/// Waits until the pods of every target are ready with this value in the variable of an Override.
async fn until_all_run_with(fleet: &Fleet, zone: Value) -> Result<()> {
    until("all of them run with it", async || {
        let mut running = 0;
        for (_, member) in fleet.members() {
            let pods = member.below.list(&there("/api/v1/namespaces/shop/pods")).await?;
            let is_so = |pod: &Value| {
                pod["spec"]["containers"][0]["env"][0]["value"] == zone
                    && condition(pod, "Ready")["status"] == "True"
            };
            running += usize::from(!pods.is_empty() && pods.iter().all(is_so));
        }
        Ok(running == fleet.members().count())
    })
    .await
}

/// The same for a StatefulSet: as in a single one, from the highest ordinal down, each ready before the next is
/// replaced.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_of_ordinals_goes_from_the_highest_down() -> Result<()> {
    let (mut fleet, witness) = (Fleet::alone().await?, Witness::default());
    for name in ["a", "b", "c"] {
        let store = Some(witness.store(name));
        fleet.join(Options { delays: DELAYS, store, ..Options::new(name) }, &[]).await?;
    }
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let sets = "/apis/apps/v1/namespaces/shop/statefulsets";
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "replicas": 6, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } },
            "template": template("web"),
        },
    });
    fleet.root.make(sets, set).await?;
    let is_ready = |set: &Value| set["status"]["readyReplicas"] == 6 && set["status"]["replicas"] == 6;
    fleet.root.until(&format!("{sets}/web"), is_ready).await?;
    let begun = witness.ready().len();
    let overriding = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Override", "metadata": { "name": "zone" },
        "spec": { "rules": [{ "clusterSelector": {}, "env": [{ "set": [{ "name": "ZONE", "value": "1" }] }] }] },
    });
    fleet.root.make("/apis/holon.dev/v1alpha1/overrides", overriding).await?;
    until_all_run_with(&fleet, json!("1")).await?;
    let mut begun_anew: Vec<String> = Vec::new();
    for (sight, count) in &witness.ready()[begun..] {
        assert!(*count >= 5, "{count} were ready when {sight}");
        if !sight.is_ready() && !begun_anew.contains(&sight.name) {
            begun_anew.push(sight.name.clone());
        }
    }
    assert_eq!(begun_anew, ["web-5", "web-4", "web-3", "web-2", "web-1", "web-0"]);
    Ok(())
}

/// A template and the replicas change in one edit: replicas are scaled at once, templates are updated one target after
/// the other. New pods that were not ready yet were counted as unavailable old ones: each target was allowed to take
/// one down, and did so after it had been scaled. In a later version one was allowed before any target had been scaled,
/// and did so while the others had not.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_and_a_new_number_at_once() -> Result<()> {
    for (surge, unavailable) in [(1, 0), (0, 1)] {
        let mut fleet = Fleet::alone().await?;
        // Some targets have finished scaling while others have not.
        for (name, ready) in [("a", 20), ("b", 200), ("c", 600)] {
            let delays = Delays { ready: Duration::from_millis(ready), ..DELAYS };
            fleet.join(Options { delays, ..Options::new(name) }, &[]).await?;
        }
        fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
        let mut web = deployment("web", 6);
        web["spec"]["strategy"] =
            json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
        fleet.root.make(DEPLOYMENTS, web).await?;
        fleet.root.until_available(WEB, 6).await?;
        let history = History::of_deployments(&fleet).await?;
        let change = json!({ "spec": {
            "replicas": 12, "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } },
        } });
        fleet.root.merge(WEB, change).await?;
        let web = fleet.root.until_available(WEB, 12).await?;
        history.hears(&web).await?;
        // As in a single Deployment: no pod is taken down while more than allowed are missing.
        check(&history.moments("shop", "web"), |before, now| {
            now.serving() >= before.serving().min(12 - unavailable) && now.asked() <= 12 + surge
        });
    }
    Ok(())
}

/// One pod was broken on each of two targets, and one may be unavailable. Each target waited for the other to become
/// healthy, so neither got the template that would have repaired both.
#[tokio::test(flavor = "multi_thread")]
async fn degraded_targets_are_repaired_one_after_the_other() -> Result<()> {
    let mut fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut web = deployment("web", 4);
    web["spec"]["strategy"] = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } });
    fleet.root.make(DEPLOYMENTS, web).await?;
    fleet.root.until_available(WEB, 4).await?;
    for name in ["a", "b"] {
        let mailbox = fleet.member(name).mailbox.clone();
        let pods = there("/api/v1/namespaces/shop/pods");
        until("its pods are shown", async || Ok(mailbox.list(&pods).await?.len() == 2)).await?;
        fleet.stop_syncing(name).await;
        let pod = mailbox.list(&pods).await?.remove(0);
        let broken = json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        } });
        let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
        mailbox.merge(&format!("{pods}/{pod}/status"), broken).await?;
        let short = json!({ "status": { "availableReplicas": 1, "unavailableReplicas": 1 } });
        mailbox.merge(&there(&format!("{WEB}/status")), short).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 2).await?;
    let image = json!({ "spec": { "template": {
        "spec": { "containers": [{ "name": "main", "image": "web:2" }] },
    } } });
    fleet.root.merge(WEB, image).await?;
    let renewed = async || -> Result<usize> {
        let mut renewed = 0;
        for (_, member) in fleet.members() {
            let copy = member.mailbox.get(&there(WEB)).await?.unwrap_or_default();
            renewed += usize::from(copy["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2");
        }
        Ok(renewed)
    };
    until("one is mended", async || Ok(renewed().await? > 0)).await?;
    assert_eq!(renewed().await?, 1);
    fleet.sync("a");
    fleet.sync("b");
    fleet.root.until_available(WEB, 4).await?;
    Ok(())
}
