//! The kinds table, row by row.

use serde_json::json;

use super::*;

pub(super) fn pick(cluster: &str, weight: u64) -> Pick {
    Pick {
        cluster: cluster.to_owned(),
        tier: 0,
        weight,
        min: 0,
        max: None,
        capacity: None,
        limit: None,
        held: None,
    }
}

pub(crate) fn picks(weights: &[(&str, u64)]) -> Vec<Pick> {
    weights.iter().map(|(cluster, weight)| pick(cluster, *weight)).collect()
}

pub(crate) fn recorded(shares: &[(&str, i64)]) -> Vec<Target> {
    let target = |(cluster, share): &(&str, i64)| Target {
        cluster: (*cluster).to_owned(),
        role: Role::Steady,
        share: Some(*share),
    };
    shares.iter().map(target).collect()
}

/// The spec of the mailbox object of every target.
pub(crate) fn target_specs(object: &Value, picks: &[Pick], recorded: &[Target]) -> Vec<(String, Value)> {
    let (group, _) = object["apiVersion"].as_str().unwrap().rsplit_once('/').unwrap_or_default();
    let rule = rule(group, object["kind"].as_str().unwrap(), false);
    let dividend = Dividend {
        object,
        rule,
        replicas_at: REPLICAS,
        division: Division::Divide,
        key: "shop/web",
        scaled: None,
    };
    let spec = |(cluster, patch): &(String, TargetPatch)| {
        let mut object = object.clone();
        patch.apply(&mut object);
        (cluster.clone(), object["spec"].take())
    };
    plan(&dividend, picks, recorded).patches.iter().map(spec).collect()
}

fn check(object: Value, over: &[(&str, u64)], expected: &[(&str, Value)]) {
    let found = target_specs(&object, &picks(over), &[]);
    let expected: Vec<(String, Value)> =
        expected.iter().map(|(cluster, spec)| ((*cluster).to_owned(), spec.clone())).collect();
    assert_eq!(found, expected, "{object}");
}

#[test]
fn a_deployment_is_divided_with_its_rolling_update() {
    let deployment = |spec: Value| json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec });
    let rolling = |surge: u32, unavailable: u32| json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
    check(
        deployment(json!({ "replicas": 10 })),
        &[("east", 3), ("west", 2)],
        // 25% of 10: three too many, two missing.
        &[
            ("east", json!({ "replicas": 6, "strategy": rolling(2, 1) })),
            ("west", json!({ "replicas": 4, "strategy": rolling(1, 1) })),
        ],
    );
    // On one target the object is unchanged.
    check(deployment(json!({ "replicas": 10 })), &[("east", 1)], &[("east", json!({ "replicas": 10 }))]);
    check(deployment(json!({})), &[("east", 1)], &[("east", json!({ "replicas": 1 }))]);
    let recreate = json!({ "type": "Recreate" });
    check(
        deployment(json!({ "replicas": 2, "strategy": recreate })),
        &[("east", 1), ("west", 1)],
        &[
            ("east", json!({ "replicas": 1, "strategy": recreate })),
            ("west", json!({ "replicas": 1, "strategy": recreate })),
        ],
    );
    // An object that is scaled to zero keeps its targets.
    let none = target_specs(&deployment(json!({ "replicas": 0 })), &picks(&[("east", 1), ("west", 1)]), &[]);
    assert_eq!(none.iter().map(|(_, spec)| &spec["replicas"]).collect::<Vec<_>>(), [&json!(0), &json!(0)]);
}

#[test]
fn each_target_of_an_autoscaled_workload_gets_a_replica_if_possible() {
    let object = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": { "replicas": 1 } });
    let shares = |scaled: Option<u32>| -> Vec<u32> {
        let dividend = Dividend {
            object: &object,
            rule: DivisionRule::Replicas,
            replicas_at: REPLICAS,
            division: Division::Divide,
            key: "shop/web",
            scaled,
        };
        plan(&dividend, &picks(&[("east", 9), ("west", 1)]), &[]).shares.into_values().collect()
    };
    assert_eq!(shares(None), [1, 0]);
    assert_eq!(shares(Some(2)), [1, 1]);
    assert_eq!(shares(Some(10)), [9, 1]);
    // Not enough for all of them.
    assert_eq!(shares(Some(1)), [1, 0]);
}

#[test]
fn autoscaler_bounds_are_not_lowered_during_a_migration() {
    let bounds = |min: u32, max: u32| {
        TargetPatch::default().set("/spec/minReplicas", min).set("/spec/maxReplicas", max)
    };
    let planned =
        DivisionPlan { patches: vec![("west".to_owned(), bounds(2, 5))], ..DivisionPlan::default() };
    let autoscaler = |min: u32, max: u32| json!({ "spec": { "minReplicas": min, "maxReplicas": max } });
    let (west, east) = (autoscaler(1, 8), autoscaler(1, 10));
    let kept = limits::keep_limits(planned, &[("west", &west), ("east", &east)]);
    let expected = [("west".to_owned(), bounds(2, 8)), ("east".to_owned(), bounds(1, 10))];
    assert_eq!(kept.patches, expected);
}

#[test]
fn indivisible_objects_are_copied_or_run_on_one_target() {
    for (version, kind) in
        [("v1", "ConfigMap"), ("v1", "Service"), ("apps/v1", "DaemonSet"), ("example.com/v1", "Widget")]
    {
        let object = json!({ "apiVersion": version, "kind": kind, "spec": { "replicas": 4 } });
        let same = json!({ "replicas": 4 });
        check(object, &[("east", 1), ("west", 1)], &[("east", same.clone()), ("west", same)]);
    }
    for (version, kind) in [("batch/v1", "CronJob"), ("v1", "Pod"), ("v1", "PersistentVolumeClaim")] {
        let object = json!({ "apiVersion": version, "kind": kind, "spec": {} });
        check(object.clone(), &[("east", 1), ("west", 9)], &[("west", json!({}))]);
        // The current target is kept as long as it is chosen.
        let clusters =
            |recorded: &[Target]| target_specs(&object, &picks(&[("east", 1), ("west", 9)]), recorded);
        assert_eq!(clusters(&recorded(&[("east", 0)]))[0].0, "east");
        assert_eq!(clusters(&recorded(&[("north", 0)]))[0].0, "west");
    }
}

#[test]
fn a_custom_kind_with_a_scale_subresource_is_divided_on_request() {
    assert_eq!(rule("example.com", "Widget", false), DivisionRule::Copy);
    assert_eq!(rule("example.com", "Widget", true), DivisionRule::Replicas);
    let object =
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "pool": { "size": 5 } } });
    let dividend = Dividend {
        object: &object,
        rule: DivisionRule::Replicas,
        replicas_at: "/spec/pool/size",
        division: Division::Divide,
        key: "shop/web",
        scaled: None,
    };
    let plan = plan(&dividend, &picks(&[("east", 4), ("west", 1)]), &[]);
    let mut east = object.clone();
    plan.patch("east").unwrap().apply(&mut east);
    assert_eq!(east["spec"], json!({ "pool": { "size": 4 } }));
    assert_eq!((plan.total, plan.pending), (Some(5), 0));
    assert_eq!(pointer_of(".spec.pool.size").as_deref(), Some("/spec/pool/size"));
    assert_eq!(
        [pointer_of("spec"), pointer_of(".spec.list[0].n"), pointer_of(".spec..n")],
        [None, None, None]
    );
}

#[test]
fn duplicates_have_the_full_number() {
    let object = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "replicas": 10 } });
    let dividend = Dividend {
        object: &object,
        rule: DivisionRule::Replicas,
        replicas_at: REPLICAS,
        division: Division::Duplicate,
        key: "shop/web",
        scaled: None,
    };
    let plan = plan(&dividend, &picks(&[("east", 1), ("west", 1)]), &[]);
    assert_eq!(
        plan.patches,
        [("east".to_owned(), TargetPatch::default()), ("west".to_owned(), TargetPatch::default())]
    );
    assert_eq!((plan.total, plan.shares.len()), (None, 0));
}

#[test]
fn every_completion_of_a_job_runs_once() {
    let job = |spec: Value| json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": spec });
    check(
        job(json!({ "completions": 100, "parallelism": 10 })),
        &[("a", 3), ("b", 1), ("c", 1)],
        &[
            ("a", json!({ "completions": 60, "parallelism": 6, "backoffLimit": 4 })),
            ("b", json!({ "completions": 20, "parallelism": 2, "backoffLimit": 1 })),
            ("c", json!({ "completions": 20, "parallelism": 2, "backoffLimit": 1 })),
        ],
    );
    // One worker runs on one target only.
    assert_eq!(target_specs(&job(json!({ "completions": 7 })), &picks(&[("a", 1), ("b", 1)]), &[]).len(), 1);
    // A queue of work has no completions to divide.
    check(
        job(json!({ "parallelism": 4, "backoffLimit": 2 })),
        &[("a", 1), ("b", 1)],
        &[
            ("a", json!({ "parallelism": 2, "backoffLimit": 1 })),
            ("b", json!({ "parallelism": 2, "backoffLimit": 1 })),
        ],
    );
    // A running Job is not divided again: its targets have all the workers, whichever clusters are chosen now.
    for chosen in [&[("a", 1), ("b", 1), ("c", 1)][..], &[("c", 1)]] {
        let running = target_specs(
            &job(json!({ "completions": 10, "parallelism": 10 })),
            &picks(chosen),
            &recorded(&[("a", 9), ("b", 1)]),
        );
        let row = |(cluster, spec): &(String, Value)| {
            (cluster.clone(), spec["completions"].as_i64().unwrap(), spec["parallelism"].as_i64().unwrap())
        };
        let rows: Vec<_> = running.iter().map(row).collect();
        assert_eq!(rows, [("a".to_owned(), 9, 9), ("b".to_owned(), 1, 1)], "{chosen:?}");
    }
    // Paused, it is divided for later.
    let paused =
        target_specs(&job(json!({ "completions": 4, "parallelism": 0 })), &picks(&[("a", 1), ("b", 1)]), &[]);
    assert_eq!(
        paused.iter().map(|(_, spec)| (&spec["completions"], &spec["parallelism"])).collect::<Vec<_>>(),
        [(&json!(2), &json!(0)); 2]
    );
    assert_eq!((job::unfinished(30, 12), job::unfinished(3, 4)), (18, 0));
}

#[test]
fn indexes_are_disjoint_or_on_one_target() {
    let job = |env: Value| {
        let template = json!({ "spec": { "containers": [{ "name": "c", "env": env }] } });
        json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": {
            "completions": 10, "parallelism": 10, "completionMode": "Indexed", "template": template } })
    };
    let over = picks(&[("a", 3), ("b", 2)]);
    let whole = target_specs(&job(json!([])), &over, &[]);
    assert_eq!(whole.len(), 1, "its pods cannot compute distinct indexes: {whole:?}");
    let declaring = target_specs(
        &job(json!([{ "name": "X" }, { "name": "HOLON_INDEX_START", "value": "0" }])),
        &over,
        &[],
    );
    let starts: Vec<_> = declaring
        .iter()
        .map(|(_, spec)| {
            (spec["completions"].clone(), spec.pointer("/template/spec/containers/0/env/1/value").cloned())
        })
        .collect();
    assert_eq!(starts, [(json!(6), Some(json!("0"))), (json!(4), Some(json!("6")))]);
}

#[test]
fn autoscaler_bounds_are_divided_over_the_targets() {
    let hpa = |min: u32, max: u32| json!({ "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": { "minReplicas": min, "maxReplicas": max } });
    let bounds = |min: u32, max: u32| json!({ "minReplicas": min, "maxReplicas": max });
    check(hpa(2, 10), &[("a", 3), ("b", 2)], &[("a", bounds(1, 6)), ("b", bounds(1, 4))]);
    check(hpa(5, 10), &[("a", 3), ("b", 2)], &[("a", bounds(3, 6)), ("b", bounds(2, 4))]);
    // Every minimum is at least 1, even if the sum exceeds the requested minimum.
    check(hpa(1, 10), &[("a", 1), ("b", 1)], &[("a", bounds(1, 5)), ("b", bounds(1, 5))]);
    assert_eq!(target_specs(&hpa(1, 2), &picks(&[("a", 1), ("b", 1), ("c", 1)]), &[]).len(), 2);
}

#[test]
fn a_budget_is_divided_by_its_pods() {
    let pods: BTreeMap<String, u32> =
        [("a", 6), ("b", 3), ("c", 1)].map(|(cluster, pods)| (cluster.to_owned(), pods)).into();
    let check = |spec: Value, field: &str, expected: [u32; 3]| {
        let plan = limits::budget(&json!({ "spec": spec }), "shop/web", &pods);
        let found: Vec<Value> = plan
            .patches
            .iter()
            .map(|(_, patch)| {
                let mut object = json!({ "spec": spec });
                patch.apply(&mut object);
                object["spec"][field].clone()
            })
            .collect();
        assert_eq!(found, expected.map(Value::from), "{spec}");
    };
    check(json!({ "minAvailable": 7 }), "minAvailable", [4, 2, 1]);
    check(json!({ "minAvailable": "100%" }), "minAvailable", [6, 3, 1]);
    check(json!({ "minAvailable": 99 }), "minAvailable", [6, 3, 1]);
    check(json!({ "maxUnavailable": 1 }), "maxUnavailable", [1, 0, 0]);
    check(json!({ "maxUnavailable": "25%" }), "maxUnavailable", [2, 1, 0]);
}
