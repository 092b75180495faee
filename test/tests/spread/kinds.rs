//! Every kind in its own way: divided, copied, or in one place.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use controller::kind::Kind;
use scenarios::client::{PATIENCE, condition, until};
use scenarios::fleet::{Fleet, Member};
use scenarios::history::{History, check};
use scenarios::kstatus::{self, Verdict};
use serde_json::{Value, json};
use standin::{Clock, Options};

use crate::app::*;

/// Returns collections of the namespace `shop`, and an object for each.
fn guestbook() -> Vec<(&'static str, Value)> {
    let named = |kind: &str, version: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    let with = |mut object: Value, field: &str, value: Value| {
        object[field] = value;
        object
    };
    let mut frontend = deployment("frontend", 5);
    let pod = &mut frontend["spec"]["template"]["spec"];
    pod["serviceAccountName"] = json!("guest");
    pod["volumes"] = json!([
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "password", "secret": { "secretName": "password" } },
    ]);
    let database = json!({
        "replicas": 3, "serviceName": "database", "selector": { "matchLabels": { "app": "database" } },
        "template": template("database"),
    });
    let service = |app: &str| json!({ "selector": { "app": app }, "ports": [{ "port": 80 }] });
    let backend = json!({ "service": { "name": "frontend", "port": { "number": 80 } } });
    vec![
        (
            "/api/v1/namespaces/shop/configmaps",
            with(named("ConfigMap", "v1", "settings"), "data", json!({ "a": "1" })),
        ),
        (
            "/api/v1/namespaces/shop/configmaps",
            with(named("ConfigMap", "v1", "unused"), "data", json!({ "a": "1" })),
        ),
        (
            "/api/v1/namespaces/shop/secrets",
            with(named("Secret", "v1", "password"), "stringData", json!({ "p": "w" })),
        ),
        ("/api/v1/namespaces/shop/serviceaccounts", named("ServiceAccount", "v1", "guest")),
        ("/apis/apps/v1/namespaces/shop/deployments", frontend),
        (
            "/apis/apps/v1/namespaces/shop/statefulsets",
            with(named("StatefulSet", "apps/v1", "database"), "spec", database),
        ),
        (
            "/api/v1/namespaces/shop/services",
            with(named("Service", "v1", "frontend"), "spec", service("frontend")),
        ),
        (
            "/api/v1/namespaces/shop/services",
            with(named("Service", "v1", "database"), "spec", service("database")),
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/shop/ingresses",
            with(
                named("Ingress", "networking.k8s.io/v1", "frontend"),
                "spec",
                json!({ "defaultBackend": backend }),
            ),
        ),
        (
            "/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
            with(
                named("PodDisruptionBudget", "policy/v1", "frontend"),
                "spec",
                json!({ "minAvailable": "60%", "selector": { "matchLabels": { "app": "frontend" } } }),
            ),
        ),
    ]
}

fn path_of((collection, object): &(&str, Value)) -> String {
    format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap_or_default())
}

async fn guestbook_on(names: &[&str]) -> Result<()> {
    guestbook_in(&Fleet::of(names).await?).await
}

pub(crate) async fn guestbook_in(fleet: &Fleet) -> Result<()> {
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    for row in guestbook() {
        fleet.root.apply(&path_of(&row), row.1.clone()).await?;
    }
    fleet.root.until_available(&format!("{DEPLOYMENTS}/frontend"), 5).await?;
    let sets = "/apis/apps/v1/namespaces/shop/statefulsets";
    fleet.root.until(&format!("{sets}/database"), |set| set["status"]["readyReplicas"] == 3).await?;
    // Workloads and their dependencies are on the clusters; objects that no workload names stay in the logical cluster.
    let mut ordinals = Vec::new();
    let mut minimum = 0;
    for (name, member) in fleet.members() {
        let frontends =
            member.below.get(&there(&format!("{DEPLOYMENTS}/frontend"))).await?.unwrap_or_default();
        let is_used = frontends["spec"]["replicas"].as_u64().unwrap_or_default() > 0;
        for row in guestbook() {
            let path = there(&path_of(&row));
            match row.1["metadata"]["name"] == "unused" {
                true => assert_eq!(member.below.get(&path).await?, None, "{name}"),
                false if is_used => drop(member.below.until_there(&path).await?),
                false => {}
            }
        }
        let budget = member
            .below
            .until_there(&there("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/frontend"))
            .await?;
        minimum += budget["spec"]["minAvailable"].as_u64().unwrap_or_default();
        let pods = member.below.list(&there("/api/v1/namespaces/shop/pods")).await?;
        let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
        ordinals.extend(names.filter(|name| name.starts_with("database-")).map(str::to_owned));
    }
    ordinals.sort();
    assert_eq!(ordinals, ["database-0", "database-1", "database-2"], "each number once");
    if fleet.members().count() > 1 {
        assert_eq!(minimum, 3, "60 % of five, over all");
    }
    fleet.root.delete(SHOP).await?;
    fleet.root.until_gone(SHOP).await?;
    for (_, member) in fleet.members() {
        member.mailbox.until_gone(&there(SHOP)).await?;
        member.below.until_gone(&there(SHOP)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_one() -> Result<()> {
    guestbook_on(&["a"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_two() -> Result<()> {
    guestbook_on(&["a", "b"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_three() -> Result<()> {
    guestbook_on(&["a", "b", "c"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guestbook_runs_unmodified_on_five() -> Result<()> {
    guestbook_on(&["a", "b", "c", "d", "e"]).await
}

pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";

pub(crate) fn ending_template() -> Value {
    json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_hundred_over_three_runs_a_hundred() -> Result<()> {
    // In proportion to the division of the parallelism: 7, 7 and 6 of 20.
    hundred_in(&Fleet::of(&["a", "b", "c"]).await?, &[35, 30]).await
}

/// Checks that each target runs one of these numbers of completions, and all together a hundred.
pub(crate) async fn hundred_in(fleet: &Fleet, parts: &[usize]) -> Result<()> {
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    // A Job is divided once, over the targets at that time, so all targets must be known first.
    fleet.root.make(DEPLOYMENTS, deployment("web", 3)).await?;
    let count = fleet.members().count();
    let all = |record: &Value| record["spec"]["targets"].as_array().is_some_and(|all| all.len() == count);
    fleet.root.until(WEB_RECORD, all).await?;
    fleet.root.delete(WEB).await?;
    fleet.root.until_gone(WEB_RECORD).await?;
    until("nothing of it is left", async || {
        let mut left = 0;
        for (_, member) in fleet.members() {
            left += member.below.list(&there("/api/v1/namespaces/shop/pods")).await?.len();
        }
        Ok(left == 0)
    })
    .await?;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "sums" },
        "spec": { "completions": 100, "parallelism": 20, "template": ending_template() },
    });
    let history = History::of(fleet, Kind::new("batch", "v1", "jobs", "Job", true)).await?;
    fleet.root.make(JOBS, job).await?;
    let sums = format!("{JOBS}/sums");
    let job = fleet.root.until(&sums, |job| condition(job, "Complete")["status"] == "True").await?;
    history.hears(&job).await?;
    let moments = history.moments("shop", "sums");
    check(&moments, |before, now| {
        let (completions, workers) = (now.sum("/spec/completions"), now.sum("/spec/parallelism"));
        completions <= 100 && workers <= 20 && completions >= before.sum("/spec/completions")
    });
    let asked = moments.last().map(|now| (now.sum("/spec/completions"), now.sum("/spec/parallelism")));
    assert_eq!(asked, Some((100, 20)));
    assert_eq!(job["status"]["succeeded"], 100, "{:#}", job["status"]);
    let mut ran = 0;
    for (name, member) in fleet.members() {
        let pods = member.below.list(&there("/api/v1/namespaces/shop/pods")).await?;
        assert!(parts.contains(&pods.len()), "{name} ran {}", pods.len());
        ran += pods.len();
    }
    assert_eq!(ran, 100);
    Ok(())
}

pub(crate) fn every_minute() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "nightly" },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": ending_template() } } },
    })
}

/// Waits until exactly one physical cluster has the object.
pub(crate) async fn in_one_place(fleet: &Fleet, path: &str) -> Result<()> {
    until("it is in one place", async || {
        let mut places = 0;
        for (_, member) in fleet.members() {
            places += usize::from(member.below.get(&there(path)).await?.is_some());
        }
        Ok(places == 1)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_fires_once_however_many_clusters_there_are() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    let clock = Clock::held();
    for name in ["a", "b", "c"] {
        fleet.join(Options { clock: clock.clone(), ..Options::new(name) }, &[]).await?;
    }
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let crons = "/apis/batch/v1/namespaces/shop/cronjobs";
    fleet.root.make(crons, every_minute()).await?;
    in_one_place(&fleet, &format!("{crons}/nightly")).await?;
    clock.advance(Duration::from_secs(60));
    let cron = fleet
        .root
        .until(&format!("{crons}/nightly"), |cron| cron["status"]["lastSuccessfulTime"].is_string())
        .await?;
    assert!(cron["status"]["lastScheduleTime"].is_string(), "{:#}", cron["status"]);
    let mut jobs = 0;
    for (_, member) in fleet.members() {
        jobs += member.below.list(&there(JOBS)).await?.len();
    }
    assert_eq!(jobs, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_an_autoscaler_hold_over_all() -> Result<()> {
    autoscaled_in(&Fleet::of(&["a", "b", "c"]).await?).await
}

pub(crate) async fn autoscaled_in(fleet: &Fleet) -> Result<()> {
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let mut scaler = scaler();
    scaler["spec"]["minReplicas"] = json!(2);
    fleet.root.make(SCALERS, scaler).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 3)).await?;
    fleet.root.until_available(WEB, 3).await?;
    let path = format!("{SCALERS}/web");
    let bounds = async || {
        let (mut least, mut most) = (Vec::new(), 0);
        for (_, member) in fleet.members() {
            let scaler = member.below.until_there(&there(&path)).await?;
            least.push(scaler["spec"]["minReplicas"].as_u64().unwrap_or_default());
            most += scaler["spec"]["maxReplicas"].as_u64().unwrap_or_default();
        }
        anyhow::Ok((least, most))
    };
    let (least, most) = bounds().await?;
    assert_eq!((least, most), (vec![1; fleet.members().count()], 10));
    // Replicas set by the autoscaler downstream are not reverted, and all targets together stay within the maximum.
    for (_, member) in fleet.members() {
        let below = member.below.until_there(&there(&path)).await?;
        scale_below(member, below["spec"]["maxReplicas"].as_u64().unwrap_or_default()).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["availableReplicas"] == 10).await?;
    let mut asked = 0;
    for (_, member) in fleet.members() {
        asked +=
            member.below.until_there(&there(WEB)).await?["spec"]["replicas"].as_u64().unwrap_or_default();
    }
    assert_eq!(asked, 10);
    fleet.root.merge(&path, json!({ "spec": { "minReplicas": 7, "maxReplicas": 8 } })).await?;
    until("the new bounds hold", async || {
        let (least, most) = bounds().await?;
        Ok(least.iter().sum::<u64>() == 7 && most == 8)
    })
    .await
}

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

/// Sets the replicas on a physical cluster, as an autoscaler would, until the number is as wanted.
pub(crate) async fn scale_below(member: &Member, replicas: u64) -> Result<()> {
    scale_below_at(member, &there(WEB), replicas).await
}

pub(crate) async fn scale_below_at(member: &Member, path: &str, replicas: u64) -> Result<()> {
    let is_told = |copy: &Value| !copy["metadata"]["annotations"][api::names::SCALED_DOWNSTREAM].is_null();
    member.mailbox.until(path, is_told).await?;
    until("it has as many", async || {
        let web = member.below.until_there(path).await?;
        if web["spec"]["replicas"] != replicas {
            member.below.merge(path, json!({ "spec": { "replicas": replicas } })).await?;
        }
        let copy = member.mailbox.until_there(path).await?;
        Ok(copy["status"]["replicas"] == replicas && copy["status"]["availableReplicas"] == replicas)
    })
    .await
}

/// One replica over two targets was divided into one and zero, and an autoscaler ignores a Deployment with zero
/// replicas: the second target never ran any.
#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaled_deployment_runs_on_every_target() -> Result<()> {
    for scaled_first in [true, false] {
        let fleet = Fleet::of(&["a", "b"]).await?;
        fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
        if scaled_first {
            fleet.root.make(SCALERS, scaler()).await?;
        }
        fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
        if !scaled_first {
            fleet.root.until_available(WEB, 1).await?;
            fleet.root.make(SCALERS, scaler()).await?;
        }
        for (_, member) in fleet.members() {
            member.below.until(&there(WEB), |copy| copy["status"]["availableReplicas"] == 1).await?;
        }
        // From then on the autoscaler owns the number, as soon as the syncer has seen the annotation.
        until("each has three", async || {
            for (_, member) in fleet.members() {
                scale_below(member, 3).await?;
            }
            let web = fleet.root.until_there(WEB).await?;
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
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 2)).await?;
    for (_, member) in fleet.members() {
        scale_below(member, 4).await?;
    }
    let newer = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "web:2" }] } } } });
    fleet.root.merge(WEB, newer).await?;
    for (_, member) in fleet.members() {
        let is_new = |copy: &Value| {
            copy["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
                && copy["status"]["updatedReplicas"] == 4
                && copy["spec"]["replicas"] == 4
        };
        member.below.until(&there(WEB), is_new).await?;
    }
    fleet.root.until(WEB, |web| web["status"]["updatedReplicas"] == 8).await.map(drop)
}

/// A percentage in a budget was computed from the initial replicas, however many the autoscaler had added since.
#[tokio::test(flavor = "multi_thread")]
async fn a_budget_counts_the_pods_an_autoscaler_made() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 2)).await?;
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "app": "web" } } },
    });
    fleet.root.make(budgets, budget).await?;
    for (name, replicas) in [("a", 6), ("b", 4)] {
        scale_below(fleet.member(name), replicas).await?;
    }
    for (name, least) in [("a", 3), ("b", 2)] {
        let path = there(&format!("{budgets}/web"));
        fleet.member(name).below.until(&path, |budget| budget["spec"]["minAvailable"] == least).await?;
    }
    Ok(())
}

/// A chart with an autoscaler sets no replicas, so the default is one; each of two targets has at least one, and more
/// when the autoscaler scales up. A tool that waited for the wanted number waited forever.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_set_by_downstream_autoscalers_become_the_desired_number() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 1)).await?;
    let is_done = |replicas: u64| {
        move |web: &Value| web["spec"]["replicas"] == replicas && kstatus::verdict(web) == Verdict::Current
    };
    fleet.root.until(WEB, is_done(2)).await?;
    scale_below(fleet.member("a"), 4).await?;
    fleet.root.until(WEB, is_done(5)).await?;
    // When the user applies another number, the autoscaler still owns it.
    fleet.root.merge(WEB, json!({ "spec": { "replicas": 1 } })).await?;
    fleet.root.until(WEB, is_done(5)).await?;
    for (name, expected) in [("a", 4), ("b", 1)] {
        let below = fleet.member(name).below.until_there(&there(WEB)).await?;
        assert_eq!(below["spec"]["replicas"], expected, "{name}");
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
    fleet.root.make("/apis/holon.dev/v1alpha1/placements", placement).await?;
    fleet.root.make(NAMESPACES, namespace("shop")).await?;
    fleet.root.make(DEPLOYMENTS, deployment("web", 10)).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
        "spec": { "minAvailable": 8, "selector": { "matchLabels": { "app": "web" } } },
    });
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    fleet.root.make(budgets, budget).await?;
    fleet.root.make(SCALERS, scaler()).await?;
    for (_, member) in fleet.members() {
        let below = &member.below;
        below.until(&there(WEB), |web| web["status"]["availableReplicas"] == 10).await?;
        below.until(&there(&format!("{budgets}/web")), |budget| budget["spec"]["minAvailable"] == 8).await?;
        let bounds =
            |scaler: &Value| (scaler["spec"]["minReplicas"].as_u64(), scaler["spec"]["maxReplicas"].as_u64());
        below
            .until(&there(&format!("{SCALERS}/web")), |scaler| bounds(scaler) == (Some(1), Some(10)))
            .await?;
    }
    Ok(())
}

/// A claim holds data, and data is in one place. Without a placed pod it is Pending and must not be reported as bound.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_where_its_pod_is_and_nowhere_before() -> Result<()> {
    let mut fleet = Fleet::alone().await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let claims = format!("{SHOP}/persistentvolumeclaims");
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    fleet.root.make(&claims, claim).await?;
    let mut web = deployment("web", 1);
    web["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    fleet.root.make(DEPLOYMENTS, web).await?;
    let data = format!("{claims}/data");
    fleet.root.until(&data, |claim| claim["status"]["phase"] == "Pending").await?;
    for name in ["a", "b"] {
        fleet.join(Options::new(name), &[]).await?;
    }
    fleet.root.until_available(WEB, 1).await?;
    let bound = fleet.root.until(&data, |claim| claim["status"]["phase"] == "Bound").await?;
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let mut places = 0;
    for (_, member) in fleet.members() {
        places += usize::from(member.below.get(&there(&data)).await?.is_some());
    }
    assert_eq!(places, 1);
    Ok(())
}

/// A mailbox object was replaced as a whole when any field changed. The selector of a Job, which the mailbox had
/// generated, was missing then; the mailbox rejected the update, and the Job was never updated again.
#[tokio::test(flavor = "multi_thread")]
async fn fields_set_by_the_mailbox_do_not_block_updates() -> Result<()> {
    let fleet = Fleet::of(&["a", "b"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "a")).await?;
    let mut waiting = ending_template();
    waiting["metadata"]["annotations"] = json!({ "standin.holon.dev/run": "1h" });
    let labels = json!({ "app": "web" });
    let rows = [
        (
            JOBS,
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "one" },
                "spec": { "completions": 4, "parallelism": 2, "template": waiting },
            }),
        ),
        (
            "/api/v1/namespaces/shop/pods",
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "one", "labels": labels },
                "spec": {
                    "containers": [{ "name": "main", "image": "busybox" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "one" } }],
                },
            }),
        ),
        (
            "/api/v1/namespaces/shop/persistentvolumeclaims",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "one" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            }),
        ),
        (
            "/api/v1/namespaces/shop/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "one" },
                "spec": { "type": "NodePort", "selector": labels, "ports": [{ "port": 80 }] },
            }),
        ),
    ];
    for (collection, object) in &rows {
        fleet.root.make(collection, object.clone()).await?;
    }
    for (collection, _) in &rows {
        let path = format!("{collection}/one");
        let before = fleet.member("a").mailbox.until_there(&there(&path)).await?;
        fleet.member("a").below.until_there(&there(&path)).await?;
        fleet.root.merge(&path, json!({ "metadata": { "labels": { "touched": "yes" } } })).await?;
        fleet
            .member("a")
            .below
            .until(&there(&path), |found| found["metadata"]["labels"]["touched"] == "yes")
            .await?;
        let after = fleet.member("a").mailbox.until_there(&there(&path)).await?;
        assert_eq!(after["spec"]["selector"], before["spec"]["selector"], "{path}");
        assert_eq!(after["spec"]["clusterIP"], before["spec"]["clusterIP"], "{path}");
        assert_eq!(after["spec"]["ports"], before["spec"]["ports"], "{path}");
    }
    fleet.root.merge(&format!("{JOBS}/one"), json!({ "spec": { "parallelism": 3 } })).await?;
    let below = &fleet.member("a").below;
    below.until(&there(&format!("{JOBS}/one")), |job| job["spec"]["parallelism"] == 3).await.map(drop)
}

/// Workloads deleted with propagation policy Orphan take their pods along, and an Event of each says so. The Event was missing
/// if the splitter observed that the garbage collector had taken the owner from the record before it observed the deletion:
/// it added the owner again, and the record was deleted as with policy Background.
#[tokio::test(flavor = "multi_thread")]
async fn every_workload_that_is_not_orphaned_has_an_event() -> Result<()> {
    let fleet = Fleet::of(&["a"]).await?;
    fleet.root.make(NAMESPACES, placed_namespace("shop", "*")).await?;
    let names: Vec<String> = (0..40).map(|number| format!("web-{number}")).collect();
    for name in &names {
        fleet.root.make(DEPLOYMENTS, deployment(name, 1)).await?;
    }
    for name in &names {
        fleet.root.until_available(&format!("{DEPLOYMENTS}/{name}"), 1).await?;
    }
    let delete = async |name: &String| {
        let body = json!({ "propagationPolicy": "Orphan" }).to_string().into();
        let path = format!("{DEPLOYMENTS}/{name}");
        // A change makes the splitter work on the object just then.
        fleet.root.merge(&path, json!({ "spec": { "replicas": 2 } })).await?;
        fleet.root.0.text(http::Method::DELETE, &path, "application/json", body, PATIENCE).await?;
        anyhow::Ok(())
    };
    futures::future::try_join_all(names.iter().map(delete)).await?;
    until("the records are gone", async || {
        Ok(fleet.root.list("/apis/holon.dev/v1alpha1/namespaces/shop/distributions").await?.is_empty())
    })
    .await?;
    let mut said = BTreeSet::new();
    until("each has an Event", async || {
        let events = fleet.root.list(&format!("{SHOP}/events")).await?;
        let is_it = |event: &&Value| event["reason"] == "NotOrphaned";
        let name = |event: &Value| event["involvedObject"]["name"].as_str().unwrap_or_default().to_owned();
        said = events.iter().filter(is_it).map(name).collect();
        Ok(names.iter().all(|name| said.contains(name)))
    })
    .await?;
    Ok(())
}
