//! Autoscalers and disruption budgets: their bounds are divided over the targets of their workload.

use anyhow::Result;
use scenarios::client::until;
use scenarios::fleet::{Fleet, FleetMember};
use scenarios::kstatus::{self, Verdict};
use serde_json::{Value, json};

use crate::app::*;

pub(crate) const SCALERS: &str = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";

/// Returns an autoscaler of `web`, up to ten replicas.
pub(crate) fn scaler() -> Value {
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": { "name": "web" },
        "spec": {
            "minReplicas": 1, "maxReplicas": 10,
            "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        },
    })
}

/// Sets the replicas on a physical cluster, as an autoscaler would, until the status has this number.
pub(crate) async fn scale_downstream(member: &FleetMember, replicas: u64) -> Result<()> {
    scale_downstream_at(member, &downstream_path(WEB), replicas).await
}

pub(crate) async fn scale_downstream_at(member: &FleetMember, path: &str, replicas: u64) -> Result<()> {
    let is_annotated =
        |object: &Value| !object["metadata"]["annotations"][api::names::SCALED_DOWNSTREAM].is_null();
    member.mailbox.until(path, is_annotated).await?;
    until("the mailbox reports the replicas", async || {
        let web = member.downstream.until_exists(path).await?;
        if web["spec"]["replicas"] != replicas {
            member.downstream.merge(path, json!({ "spec": { "replicas": replicas } })).await?;
        }
        let object = member.mailbox.until_exists(path).await?;
        Ok(object["status"]["replicas"] == replicas && object["status"]["availableReplicas"] == replicas)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_an_autoscaler_are_divided_over_all_targets() -> Result<()> {
    check_bounds_on(&Fleet::of(&["a", "b", "c"]).await?).await
}

pub(crate) async fn check_bounds_on(fleet: &Fleet) -> Result<()> {
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut scaler = scaler();
    scaler["spec"]["minReplicas"] = json!(2);
    fleet.root.create(SCALERS, scaler).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 3)).await?;
    fleet.root.until_available(WEB, 3).await?;
    let path = format!("{SCALERS}/web");
    let bounds = async || {
        let (mut least, mut most) = (Vec::new(), 0);
        for (_, member) in fleet.members() {
            let scaler = member.downstream.until_exists(&downstream_path(&path)).await?;
            least.push(scaler["spec"]["minReplicas"].as_u64().unwrap_or_default());
            most += scaler["spec"]["maxReplicas"].as_u64().unwrap_or_default();
        }
        anyhow::Ok((least, most))
    };
    let (least, most) = bounds().await?;
    assert_eq!((least, most), (vec![1; fleet.members().count()], 10));
    // Replicas set by the autoscaler downstream are not reverted, and all targets together stay within the maximum.
    for (_, member) in fleet.members() {
        let downstream = member.downstream.until_exists(&downstream_path(&path)).await?;
        scale_downstream(member, downstream["spec"]["maxReplicas"].as_u64().unwrap_or_default()).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    let mut requested = 0;
    for (_, member) in fleet.members() {
        requested += member.downstream.until_exists(&downstream_path(WEB)).await?["spec"]["replicas"]
            .as_u64()
            .unwrap_or_default();
    }
    assert_eq!(requested, 10);
    fleet.root.merge(&path, json!({ "spec": { "minReplicas": 7, "maxReplicas": 8 } })).await?;
    until("the new bounds are divided", async || {
        let (least, most) = bounds().await?;
        Ok(least.iter().sum::<u64>() == 7 && most == 8)
    })
    .await
}

/// One replica over two targets was divided into one and zero, and an autoscaler ignores a Deployment with zero
/// replicas: the second target never ran any.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_runs_on_every_target() -> Result<()> {
    for scaled_first in [true, false] {
        let fleet = Fleet::of(&["a", "b"]).await?;
        fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
        if scaled_first {
            fleet.root.create(SCALERS, scaler()).await?;
        }
        fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
        if !scaled_first {
            fleet.root.until_available(WEB, 1).await?;
            fleet.root.create(SCALERS, scaler()).await?;
        }
        for (_, member) in fleet.members() {
            member
                .downstream
                .until(&downstream_path(WEB), |object| object["status"]["availableReplicas"] == 1)
                .await?;
        }
        // From then on the autoscaler owns the number, as soon as the syncer has seen the annotation.
        until("each has three", async || {
            for (_, member) in fleet.members() {
                scale_downstream(member, 3).await?;
            }
            let web = fleet.root.until_exists(WEB).await?;
            Ok(web["status"]["availableReplicas"] == 6)
        })
        .await?;
    }
    Ok(())
}

/// An update of an autoscaled Deployment reached only the first target: that target never counted as finished, because
/// it never had the initial number of replicas.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_is_updated_on_every_target() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    for (_, member) in fleet.members() {
        scale_downstream(member, 4).await?;
    }
    let new_image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, new_image).await?;
    for (_, member) in fleet.members() {
        let is_updated = |object: &Value| {
            object["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
                && object["status"]["updatedReplicas"] == 4
                && object["spec"]["replicas"] == 4
        };
        member.downstream.until(&downstream_path(WEB), is_updated).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["updatedReplicas"] == 8).await.map(drop)
}

/// A percentage in a budget was computed from the initial replicas, however many the autoscaler had added since.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_the_pods_an_autoscaler_created() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 2)).await?;
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "app": "web" } } },
    });
    fleet.root.create(budgets, budget).await?;
    for (name, replicas) in [("a", 6), ("b", 4)] {
        scale_downstream(fleet.member(name), replicas).await?;
    }
    for (name, least) in [("a", 3), ("b", 2)] {
        let path = downstream_path(&format!("{budgets}/web"));
        fleet.member(name).downstream.until(&path, |budget| budget["spec"]["minAvailable"] == least).await?;
    }
    Ok(())
}

/// A chart with an autoscaler sets no replicas, so the default is one; each of two targets has at least one, and more
/// when the autoscaler scales up. A tool that waited for the desired number waited forever.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_set_by_downstream_autoscalers_become_the_desired_number() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.create(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 1)).await?;
    let is_done = |replicas: u64| {
        move |web: &Value| web["spec"]["replicas"] == replicas && kstatus::verdict(web) == Verdict::Current
    };
    fleet.root.until(WEB, is_done(2)).await?;
    scale_downstream(fleet.member("a"), 4).await?;
    fleet.root.until(WEB, is_done(5)).await?;
    // When the user applies another number, the autoscaler still owns it.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 1 } })).await?;
    fleet.root.until(WEB, is_done(5)).await?;
    for (name, expected) in [("a", 4), ("b", 1)] {
        let downstream = fleet.member(name).downstream.until_exists(&downstream_path(WEB)).await?;
        assert_eq!(downstream["spec"]["replicas"], expected, "{name}");
    }
    // Zero replicas stay zero: an autoscaler does not change them.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 0 } })).await?;
    fleet.root.until(WEB, is_done(0)).await.map(drop)
}

/// The bounds of a budget were divided although its workload was duplicated: of a minimum of eight of ten pods on each
/// target, a minimum of one was left.
#[tokio::test(flavor = "multi_thread")]
async fn bounds_of_duplicated_workloads_are_not_divided() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    let placement = json!({
        "apiVersion": "holon.dev/v1alpha1", "kind": "Placement", "metadata": { "name": "everywhere" },
        "spec": { "division": "Duplicate" },
    });
    fleet.root.create("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.create(NAMESPACES, namespace("shop")).await?;
    fleet.root.create(DEPLOYMENTS, deployment("web", 10)).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 8, "selector": { "matchLabels": { "app": "web" } } },
    });
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    fleet.root.create(budgets, budget).await?;
    fleet.root.create(SCALERS, scaler()).await?;
    for (_, member) in fleet.members() {
        let downstream = &member.downstream;
        downstream.until(&downstream_path(WEB), |web| web["status"]["availableReplicas"] == 10).await?;
        downstream
            .until(&downstream_path(&format!("{budgets}/web")), |budget| budget["spec"]["minAvailable"] == 8)
            .await?;
        let bounds =
            |scaler: &Value| (scaler["spec"]["minReplicas"].as_u64(), scaler["spec"]["maxReplicas"].as_u64());
        downstream
            .until(&downstream_path(&format!("{SCALERS}/web")), |scaler| {
                bounds(scaler) == (Some(1), Some(10))
            })
            .await?;
    }
    Ok(())
}
