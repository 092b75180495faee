//! Other kinds, by their rules and by the general rule.

use super::*;

fn merged(version: &str, kind: &str, a: Value, b: Value) -> AggregatedStatus {
    let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" } });
    aggregate(&user_object(&object), &[report("a", &a), report("b", &b)], None)
}

#[test]
fn sets_are_added_up_and_revisions_kept_when_equal() {
    let set = |current: &str, update: &str, updated: i64| json!({ "observedGeneration": 7, "replicas": 2, "readyReplicas": 2, "updatedReplicas": updated, "currentRevision": current, "updateRevision": update });
    let same = merged("apps/v1", "StatefulSet", set("r1", "r1", 2), set("r1", "r1", 2)).status;
    assert_eq!(
        same,
        json!({ "observedGeneration": 3, "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4, "currentRevision": "r1", "updateRevision": "r1" })
    );
    // As long as one target is behind, the revisions differ, and a client waits.
    let behind = merged("apps/v1", "StatefulSet", set("r2", "r2", 2), set("r1", "r2", 1));
    assert_eq!(
        (&behind.status["currentRevision"], &behind.status["updateRevision"]),
        (&json!("r1"), &json!("r2"))
    );
    assert_eq!(behind.differences, []);
    // A template that was transformed for one cluster has another revision on it. Each target is compared with itself.
    let rewritten = merged("apps/v1", "StatefulSet", set("ra", "ra", 2), set("rb", "rb", 2));
    assert_eq!(
        (&rewritten.status["currentRevision"], &rewritten.status["updateRevision"]),
        (&json!("ra"), &json!("ra"))
    );
    assert_eq!(rewritten.differences, []);
    let rolling = merged("apps/v1", "StatefulSet", set("ra2", "ra2", 2), set("rb1", "rb2", 1));
    assert_eq!(
        (&rolling.status["currentRevision"], &rolling.status["updateRevision"]),
        (&json!("rb1"), &json!("ra2"))
    );
    let daemon = merged(
        "apps/v1",
        "DaemonSet",
        json!({ "numberReady": 3, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3 }),
        json!({ "numberReady": 1, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2 }),
    )
    .status;
    assert_eq!(daemon, json!({ "numberReady": 4, "desiredNumberScheduled": 5, "updatedNumberScheduled": 5 }));
}

#[test]
fn a_job_is_complete_when_all_are_and_failed_when_none_can_succeed() {
    let job = |active: i64, succeeded: i64, conditions: &[&str]| {
        let conditions: Vec<Value> =
            conditions.iter().map(|name| condition(name, "True", "t1", "")).collect();
        json!({ "active": active, "succeeded": succeeded, "startTime": format!("s{succeeded}"), "completionTime": format!("c{succeeded}"), "conditions": conditions })
    };
    let check = |a: Value, b: Value, expected: &[&str]| {
        let status = merged("batch/v1", "Job", a.clone(), b.clone()).status;
        let names: Vec<String> = condition_rows(&status).into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(names, expected, "{a} {b}");
        status
    };
    let done = || job(0, 60, &["SuccessCriteriaMet", "Complete"]);
    let status =
        check(done(), job(0, 40, &["SuccessCriteriaMet", "Complete"]), &["SuccessCriteriaMet", "Complete"]);
    assert_eq!(
        (&status["succeeded"], &status["startTime"], &status["completionTime"]),
        (&json!(100), &json!("s40"), &json!("c60"))
    );
    let status = check(done(), job(5, 30, &[]), &[]);
    assert_eq!((&status["active"], &status["completionTime"]), (&json!(5), &Value::Null));
    check(job(0, 2, &["FailureTarget", "Failed"]), job(5, 30, &[]), &[]);
    check(job(0, 2, &["FailureTarget", "Failed"]), done(), &["FailureTarget", "Failed"]);
    check(job(0, 2, &["FailureTarget"]), job(0, 2, &["Failed"]), &["FailureTarget"]);
    check(job(0, 0, &["Suspended"]), job(0, 0, &["Suspended"]), &["Suspended"]);
    check(job(0, 0, &["Suspended"]), job(1, 0, &[]), &[]);
    let nothing_yet = json!(null);
    check(done(), nothing_yet, &[]);
}

#[test]
fn indexes_of_all_targets_are_one_list() {
    let object = json!({ "apiVersion": "batch/v1", "kind": "Job" });
    let (a, b) =
        (json!({ "completedIndexes": "0-2,4" }), json!({ "completedIndexes": "0,2", "failedIndexes": "1" }));
    let reports = [report("a", &a), Report { index_start: 5, ..report("b", &b) }];
    let status = aggregate(&user_object(&object), &reports, None).status;
    assert_eq!((&status["completedIndexes"], &status["failedIndexes"]), (&json!("0-2,4,5,7"), &json!("6")));
}

#[test]
fn other_kinds_are_aggregated_by_their_rules() {
    let check = |version: &str, kind: &str, a: Value, b: Value, expected: Value| {
        assert_eq!(merged(version, kind, a, b).status, expected, "{kind}");
    };
    let runs = |job: &str, last: &str| json!({ "active": [{ "name": job }], "lastScheduleTime": last, "lastSuccessfulTime": last });
    check(
        "batch/v1",
        "CronJob",
        runs("j1", "t1"),
        runs("j2", "t2"),
        json!({ "active": [{ "name": "j1" }, { "name": "j2" }], "lastScheduleTime": "t2", "lastSuccessfulTime": "t2" }),
    );
    let at = |ips: &[&str]| {
        let ingress: Vec<Value> = ips.iter().map(|ip| json!({ "ip": ip })).collect();
        json!({ "loadBalancer": { "ingress": ingress } })
    };
    check("v1", "Service", at(&["2.2.2.2", "1.1.1.1"]), at(&["1.1.1.1"]), at(&["1.1.1.1", "2.2.2.2"]));
    check(
        "networking.k8s.io/v1",
        "Ingress",
        at(&[]),
        json!({ "loadBalancer": {} }),
        json!({ "loadBalancer": {} }),
    );
    check(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        json!({ "currentReplicas": 3, "desiredReplicas": 4, "lastScaleTime": "t1" }),
        json!({ "currentReplicas": 1, "desiredReplicas": 1, "lastScaleTime": "t2" }),
        json!({ "currentReplicas": 4, "desiredReplicas": 5, "lastScaleTime": "t2" }),
    );
    let budget = |healthy: i64, desired: i64, allowed: i64| json!({ "observedGeneration": 7, "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": 3, "disruptionsAllowed": allowed });
    // One target could spare two pods, the other lacks two: together they can spare none.
    let status = merged("policy/v1", "PodDisruptionBudget", budget(3, 1, 2), budget(0, 2, 0)).status;
    assert_eq!(
        (&status["disruptionsAllowed"], &status["expectedPods"], &status["observedGeneration"]),
        (&json!(0), &json!(6), &json!(3))
    );
    assert_eq!(condition_rows(&status)[0][..3], ["DisruptionAllowed", "False", "InsufficientPods"]);
    let status = merged("policy/v1", "PodDisruptionBudget", budget(3, 2, 1), budget(3, 3, 0)).status;
    assert_eq!(status["disruptionsAllowed"], 1);
}

/// KubeStellar and OCM show one cluster's status of a custom kind as the whole, or none. Here fields are merged if
/// possible, and differences are reported.
#[test]
fn the_status_of_an_unknown_kind_is_merged_and_disagreements_are_listed() {
    let summary = merged(
        "example.com/v1",
        "Widget",
        json!({ "observedGeneration": 7, "replicas": 2, "readyReplicas": 1, "phase": "Running", "version": "v1", "size": 3,
                "nested": { "url": "a", "same": true }, "endpoints": ["x", "y"],
                "conditions": [condition("Ready", "True", "t1", "fine"), condition("Synced", "Unknown", "t1", "asking")] }),
        json!({ "observedGeneration": 6, "replicas": 3, "readyReplicas": 3, "phase": "Pending", "version": "v1", "size": 4,
                "nested": { "url": "b", "same": true }, "endpoints": ["y", "z"],
                "conditions": [condition("Ready", "False", "t2", "no disk"), condition("Synced", "True", "t3", "")] }),
    );
    let mut status = summary.status.clone();
    assert_eq!(
        condition_rows(&status),
        [row("Ready", "False", "Rt2", "b: no disk"), row("Synced", "Unknown", "Rt1", "a: asking")]
    );
    status.as_object_mut().unwrap().remove("conditions");
    assert_eq!(
        status,
        json!({ "replicas": 5, "readyReplicas": 4, "version": "v1", "nested": { "same": true }, "endpoints": ["x", "y", "z"] })
    );
    let paths: Vec<&str> = summary.differences.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/status/nested/url", "/status/phase", "/status/size"]);
    assert_eq!(summary.differences[1].values[0].cluster, "a");
}

#[test]
fn the_worst_condition_of_the_targets_wins() {
    let check = |a: &str, b: &str, expected: &str| {
        let of = |status: &str| json!({ "conditions": [condition("Ready", status, "t", "m")] });
        let status =
            merged("example.com/v1", "Widget", of(a), if b.is_empty() { Value::Null } else { of(b) }).status;
        assert_eq!(condition_rows(&status)[0][1], expected, "{a} {b}");
    };
    check("True", "True", "True");
    check("True", "False", "False");
    check("Unknown", "False", "False");
    check("True", "Unknown", "Unknown");
    // A target without a report is Unknown, so clients keep waiting.
    check("True", "", "Unknown");
    check("False", "", "False");
}
