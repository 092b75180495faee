//! Plans of the controllers of pods, one reconcile at a time.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{jobs, replicasets, statefulsets};
use crate::cache::Cache;
use crate::clock::later;
use crate::node::delays::Delays;
use crate::node::{kubelet, scheduler};
use crate::objects::fields::owner_reference;
use crate::objects::kind::ObjectKind;
use crate::plan::Plan;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn owner(name: &str, spec: Value) -> Value {
    let mut owner = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "generation": 1 }, "spec": spec });
    owner["spec"]["selector"] = json!({ "matchLabels": { "app": name } });
    owner["spec"]["template"]["metadata"]["labels"] = json!({ "app": name });
    owner
}

/// Returns a pod in one of the states that the tables name.
fn pod(kind: ObjectKind, owner: &Value, name: &str, state: &str) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "ownerReferences": [owner_reference(kind, owner)],
            "labels": owner["spec"]["template"]["metadata"]["labels"], "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": { "nodeName": "n1", "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
        "status": { "phase": "Running" },
    });
    let ready = json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    match state {
        "ready" => pod["status"]["conditions"] = json!([ready]),
        "running" => {}
        "unbound" => {
            pod["spec"]["nodeName"] = Value::Null;
            pod["status"]["phase"] = "Pending".into();
        }
        "terminating" => pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into(),
        "cheap" => {
            pod["status"]["conditions"] = json!([ready]);
            pod["metadata"]["annotations"] = json!({ "controller.kubernetes.io/pod-deletion-cost": "-5" });
        }
        "Succeeded" | "Failed" => pod["status"]["phase"] = state.into(),
        other => panic!("{other} is no state"),
    }
    pod
}

fn planned(reconcile: impl Fn(&Cache, &mut Plan), cache: &Cache) -> Vec<String> {
    let mut plan = Plan::default();
    reconcile(cache, &mut plan);
    plan.summary().into_iter().filter(|line| !line.starts_with("status")).collect()
}

#[test]
fn a_replica_set_deletes_surplus_pods_in_order() {
    let check = |desired: i64, pods: &[(&str, &str)], expected: &[&str]| {
        let set = owner("web", json!({ "replicas": desired }));
        let pods = pods
            .iter()
            .map(|(name, state)| (ObjectKind::Pods, pod(ObjectKind::ReplicaSets, &set, name, state)));
        let cache =
            Cache::with(pods.chain([(ObjectKind::ReplicaSets, set.clone())]).collect::<Vec<_>>(), NOW);
        let planned_writes = planned(|cache, plan| replicasets::reconcile(cache, "shop", NOW, plan), &cache);
        assert_eq!(
            planned_writes,
            expected,
            "{desired} of {pods:?}",
            pods = cache.list(ObjectKind::Pods, "shop").count()
        );
    };
    check(2, &[], &["create Pod web-*", "create Pod web-*"]);
    check(2, &[("a", "ready"), ("b", "running")], &[]);
    check(1, &[("a", "ready"), ("b", "running")], &["delete Pod b"]);
    check(1, &[("a", "ready"), ("b", "unbound"), ("c", "running")], &["delete Pod b", "delete Pod c"]);
    check(1, &[("a", "ready"), ("b", "cheap")], &["delete Pod b"]);
    // Finished and terminating pods do not count.
    check(2, &[("a", "ready"), ("b", "terminating")], &["create Pod web-*"]);
    check(2, &[("a", "ready"), ("b", "Failed")], &["create Pod web-*"]);
}

/// A chart from 2016 has a ReplicationController. Stand-ins had no controller for it, so it stayed at 0 of 2 replicas.
#[test]
fn a_replication_controller_creates_and_adopts_its_pods() {
    let mut set = owner("web", json!({ "replicas": 2 }));
    // Bare labels, as this kind has them.
    set["spec"]["selector"] = json!({ "app": "web" });
    let kind = ObjectKind::ReplicationControllers;
    let plan_for = |pods: Vec<Value>| {
        let pods = pods.into_iter().map(|pod| (ObjectKind::Pods, pod));
        let cache = Cache::with(pods.chain([(kind, set.clone())]).collect::<Vec<_>>(), NOW);
        let mut plan = Plan::default();
        replicasets::reconcile(&cache, "shop", NOW, &mut plan);
        plan
    };
    let new = plan_for(vec![]).summary();
    assert_eq!(new, ["create Pod web-*", "create Pod web-*", "status ReplicationController web"]);
    let mut orphan = pod(kind, &set, "b", "ready");
    orphan["metadata"]["ownerReferences"] = json!([]);
    let plan = plan_for(vec![pod(kind, &set, "a", "ready"), orphan]);
    assert!(plan.updated("b").is_some_and(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == "web"));
    let ready = plan_for(["a", "b"].map(|name| pod(kind, &set, name, "ready")).to_vec());
    let status = ready.status_of("web").unwrap();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &json!(2)));
    // A ReplicationController has no such field; the server would warn about it.
    assert!(status.get("terminatingReplicas").is_none(), "{status}");
}

#[test]
fn a_stateful_set_changes_one_pod_at_a_time() {
    let check = |spec: Value, pods: &[(&str, &str)], expected: &[&str]| {
        let set = owner("db", spec.clone());
        let owned = |name: &str, state: &str| {
            let mut pod = pod(ObjectKind::StatefulSets, &set, name, state);
            pod["metadata"]["labels"]["controller-revision-hash"] = "db-old".into();
            pod
        };
        let pods = pods.iter().map(|(name, state)| (ObjectKind::Pods, owned(name, state)));
        let cache =
            Cache::with(pods.chain([(ObjectKind::StatefulSets, set.clone())]).collect::<Vec<_>>(), NOW);
        let planned_writes = planned(|cache, plan| statefulsets::reconcile(cache, "shop", NOW, plan), &cache);
        let planned_writes: Vec<&str> =
            planned_writes.iter().map(String::as_str).filter(|line| !line.contains("Revision")).collect();
        assert_eq!(planned_writes, expected, "{spec}");
    };
    let on_delete = |replicas: i64| json!({ "replicas": replicas, "updateStrategy": { "type": "OnDelete" } });
    check(on_delete(3), &[], &["create Pod db-0"]);
    check(on_delete(3), &[("db-0", "running")], &[]);
    check(on_delete(3), &[("db-0", "ready")], &["create Pod db-1"]);
    check(on_delete(1), &[("db-0", "ready"), ("db-1", "ready"), ("db-2", "ready")], &["delete Pod db-2"]);
    check(on_delete(1), &[("db-0", "ready"), ("db-1", "ready"), ("db-2", "terminating")], &[]);
    let mut parallel = on_delete(2);
    parallel["podManagementPolicy"] = "Parallel".into();
    check(parallel, &[], &["create Pod db-0", "create Pod db-1"]);
    let mut shifted = on_delete(2);
    shifted["ordinals"] = json!({ "start": 5 });
    check(shifted.clone(), &[("db-5", "ready")], &["create Pod db-6"]);
    check(shifted, &[("db-4", "ready"), ("db-5", "ready"), ("db-6", "ready")], &["delete Pod db-4"]);
    // Replaced from the highest ordinal down to the partition.
    let rolling = |partition: i64| json!({ "replicas": 2, "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } });
    check(rolling(0), &[("db-0", "ready"), ("db-1", "ready")], &["delete Pod db-1"]);
    check(rolling(2), &[("db-0", "ready"), ("db-1", "ready")], &[]);
}

#[test]
fn a_job_counts_a_finished_pod_before_it_releases_it() {
    let mut job = owner("once", json!({ "completions": 1, "parallelism": 1, "backoffLimit": 0 }));
    let mut finished = pod(ObjectKind::Jobs, &job, "once-1", "Succeeded");
    finished["metadata"]["finalizers"] = json!([jobs::FINALIZER]);
    let plan_for = |job: &Value, pod: Option<&Value>| {
        let pods = pod.map(|pod| (ObjectKind::Pods, pod.clone()));
        let cache = Cache::with([(ObjectKind::Jobs, job.clone())].into_iter().chain(pods), NOW);
        let mut plan = Plan::default();
        jobs::reconcile(&cache, "shop", NOW, &mut plan);
        plan
    };
    // First the uid in the status, then the finalizer, then the count, then the condition.
    let recorded = plan_for(&job, Some(&finished));
    assert_eq!(recorded.summary(), ["status Job once"]);
    job["status"] = recorded.status_of("once").unwrap().clone();
    assert_eq!(job["status"]["uncountedTerminatedPods"]["succeeded"], json!(["once-1"]));
    assert_eq!(job["status"]["succeeded"], 0);
    let released = plan_for(&job, Some(&finished));
    assert_eq!(released.summary(), ["update Pod once-1"]);
    let untracked = released.updated("once-1").unwrap().clone();
    // The pod may still exist or not.
    for pod in [Some(&untracked), None] {
        let counted = plan_for(&job, pod);
        let status = counted.status_of("once").unwrap();
        assert_eq!(status["succeeded"], 1);
        assert_eq!(status["conditions"][1]["type"], "Complete", "{status}");
    }
}

/// A Job was deleted before the end of a pod was counted. No controller removed the pod's finalizer, so the pod stayed
/// forever.
#[test]
fn a_pod_of_a_deleted_job_is_released() {
    let job = owner("once", json!({ "completions": 1 }));
    let mut finished = pod(ObjectKind::Jobs, &job, "once-1", "Succeeded");
    finished["metadata"]["finalizers"] = json!([jobs::FINALIZER]);
    let cache = Cache::with([(ObjectKind::Pods, finished)], NOW);
    let mut plan = Plan::default();
    jobs::reconcile(&cache, "shop", NOW, &mut plan);
    assert_eq!(plan.summary(), ["update Pod once-1"]);
    assert_eq!(plan.updated("once-1").unwrap()["metadata"]["finalizers"], json!([]));
}

#[test]
fn a_pod_changes_its_stage_after_each_delay() {
    let delays = Delays {
        start: Duration::from_secs(1),
        ready: Duration::from_secs(2),
        run: Duration::from_secs(3),
        ..Delays::NONE
    };
    let node =
        json!({ "metadata": { "name": "n1" }, "status": { "allocatable": { "cpu": "1", "pods": "1" } } });
    let mut pod = pod(ObjectKind::Jobs, &owner("x", json!({})), "x", "unbound");
    pod["metadata"]["ownerReferences"] = Value::Null;
    pod["status"] = Value::Null;
    let mut cache = Cache::with([(ObjectKind::Nodes, node), (ObjectKind::Pods, pod.clone())], NOW);
    let mut plan = Plan::default();
    scheduler::reconcile(&cache, delays, NOW, &mut plan);
    assert_eq!(plan.summary(), ["bind x n1"]);
    pod["spec"]["nodeName"] = "n1".into();
    cache.put(ObjectKind::Pods, pod.clone(), NOW);
    let mut at = NOW;
    let mut phases = Vec::new();
    for _ in 0..10 {
        let mut plan = Plan::default();
        kubelet::reconcile(&cache, "shop", delays, at, &mut plan);
        match (plan.status_of("x"), plan.due) {
            (Some(status), _) => {
                phases.push((at.as_second(), status["phase"].as_str().unwrap().to_owned()));
                pod["status"] = status.clone();
                cache.put(ObjectKind::Pods, pod.clone(), at);
            }
            (None, Some(due)) => at = due,
            (None, None) => break,
        }
    }
    let expected = [(0, "Pending"), (1, "Running"), (3, "Running"), (6, "Succeeded")];
    assert_eq!(phases, expected.map(|(second, phase)| (second, phase.to_owned())));
}

#[test]
fn a_deleted_pod_stops_within_its_grace_period() {
    let check = |stop_s: u64, grace_s: i64, after_s: u64| {
        let delays = Delays { stop: Duration::from_secs(stop_s), ..Delays::NONE };
        let mut pod = pod(ObjectKind::Jobs, &owner("x", json!({})), "x", "terminating");
        pod["metadata"]["deletionGracePeriodSeconds"] = grace_s.into();
        pod["status"]["containerStatuses"] = json!([{ "name": "main" }]);
        let node = json!({ "metadata": { "name": "n1" } });
        let cache = Cache::with([(ObjectKind::Nodes, node), (ObjectKind::Pods, pod)], NOW);
        let mut plan = Plan::default();
        kubelet::reconcile(&cache, "shop", delays, NOW, &mut plan);
        let due = later(NOW, Duration::from_secs(after_s));
        match after_s {
            0 => assert_eq!(plan.summary(), ["delete Pod x"]),
            _ => assert_eq!((plan.summary(), plan.due), (Vec::new(), Some(due)), "{stop_s} s of {grace_s}"),
        }
    };
    check(0, 30, 0);
    check(10, 30, 10);
    check(100, 30, 30);
}
