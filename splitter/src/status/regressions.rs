//! Bugs of similar projects and of this one. Each test opens with the observed behaviour.

use super::tests::{condition, condition_rows, report, user_object};
use super::*;

fn object(version: &str, kind: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "metadata": { "generation": 3 }, "spec": { "replicas": 4 } })
}

fn merged(object: &Value, statuses: [&Value; 2]) -> Value {
    let reports = [report("a", statuses[0]), report("b", statuses[1])];
    aggregate(&user_object(object), &reports, None).status
}

/// Karmada 2218, 2252 and 2457: a Deployment, later a StatefulSet and a DaemonSet, on two clusters was Progressing for ever
/// in Argo CD. Its summary had no observedGeneration.
#[test]
fn a_generation_is_observed_once_every_target_has_observed_it() {
    let (behind, up_to_date) = (json!({ "observedGeneration": 6 }), json!({ "observedGeneration": 7 }));
    for kind in ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"] {
        let object = object("apps/v1", kind);
        let status = merged(&object, [&up_to_date, &up_to_date]);
        assert_eq!(status["observedGeneration"], object["metadata"]["generation"], "{kind}");
        let status = merged(&object, [&up_to_date, &behind]);
        assert_ne!(status["observedGeneration"], object["metadata"]["generation"], "{kind}");
    }
}

/// Karmada 2928: two clusters could not pull an image, none of their pods was ever available, and both were called healthy
/// because everything was updated.
#[test]
fn updated_is_not_available() {
    let status =
        json!({ "observedGeneration": 7, "replicas": 2, "updatedReplicas": 2, "unavailableReplicas": 2 });
    for kind in ["Deployment", "StatefulSet"] {
        let (health, why) =
            health::of(&Report { share: Some(2), ..report("a", &status) }, &object("apps/v1", kind));
        assert_ne!(health, api::fleet::Health::Available, "{kind}: {why}");
    }
}

/// Karmada 7844 and 6414: Kubernetes refuses a Job that is Failed without FailureTarget, or Complete without
/// SuccessCriteriaMet. A summary that left those out was refused for ever, and the Job never ended.
#[test]
fn a_finished_job_also_has_the_condition_that_precedes_its_end() {
    for (target, end) in [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")] {
        let ended =
            json!({ "conditions": [condition(target, "True", "t1", ""), condition(end, "True", "t2", "")] });
        let status = merged(&object("batch/v1", "Job"), [&ended, &ended]);
        let names: Vec<String> = condition_rows(&status).into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(names, [target, end]);
    }
}

/// KubeStellar 2809: on several clusters a Deployment showed 0/4 ready, because a status came back from one cluster or not
/// at all.
#[test]
fn ready_replicas_of_several_targets_are_added_up() {
    let of = |ready: i64| json!({ "observedGeneration": 7, "replicas": ready, "readyReplicas": ready, "availableReplicas": ready });
    let status = merged(&object("apps/v1", "Deployment"), [&of(3), &of(1)]);
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(4), &json!(4)));
}

/// KubeStellar 3518: sums over several clusters stayed in the status after the aggregation was removed.
#[test]
fn the_status_of_a_single_target_has_no_earlier_sums() {
    let (mut object, of) =
        (object("example.com/v1", "Widget"), |ready: i64| json!({ "readyReplicas": ready }));
    let extra = json!({ "readyReplicas": 1, "address": "10.0.0.1", "conditions": [condition("Ready", "True", "t1", "")] });
    object["status"] = merged(&object, [&of(3), &extra]);
    assert_eq!(object["status"]["readyReplicas"], 4);
    assert_eq!(aggregate(&user_object(&object), &[report("a", &of(3))], None).status, of(3));
}

/// OCM work 83: a condition had no generation, so clients could not tell whether it was about their latest change.
#[test]
fn a_condition_has_the_generation_of_the_users_object() {
    let ready = |generation: i64| json!({ "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": generation }] });
    let mut object = object("example.com/v1", "Widget");
    object["status"] = json!({ "observedGeneration": 2 });
    for (downstream, expected) in [(7, 3), (6, 2)] {
        let status = aggregate(&user_object(&object), &[report("a", &ready(downstream))], None).status;
        assert_eq!(status["conditions"][0]["observedGeneration"], expected);
    }
}

/// An update got stuck on two targets and was undone. One of them had its turn; the other still had the bad template, and
/// its deadline was exceeded, so `kubectl rollout status` reported that the good one had failed.
#[test]
fn a_target_that_waits_for_its_turn_reports_no_rollout_failure() {
    let of = |observed: i64, status: &str, reason: &str| {
        json!({ "observedGeneration": observed, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "conditions": [
            { "type": "Progressing", "status": status, "reason": reason, "message": "m", "lastTransitionTime": "t" },
        ] })
    };
    let (good, stuck) = (of(7, "True", "ReplicaSetUpdated"), of(7, "False", "ProgressDeadlineExceeded"));
    let behind = of(6, "False", "ProgressDeadlineExceeded");
    let check = |second: Report, expected: &str| {
        let deployment = object("apps/v1", "Deployment");
        let status = aggregate(&user_object(&deployment), &[report("a", &good), second], None).status;
        let progress = condition_rows(&status).into_iter().find(|row| row[0] == "Progressing").unwrap();
        assert_eq!(progress[1], expected, "{status:#}");
    };
    check(report("b", &stuck), "False");
    check(Report { current: false, ..report("b", &stuck) }, "True");
    check(report("b", &behind), "True");
}

/// Every move between real clusters broke before it made: kube-controller-manager's first status of a Deployment has
/// conditions and neither counters nor an observedGeneration. It counted as observed and available, and the source was deleted
/// before the target had a single pod.
#[test]
fn a_partial_first_status_is_progress_and_a_missing_counter_is_zero() {
    use api::fleet::Health::{Available, Progressing};
    let check = |kind: &str, share: Option<u32>, status: Value, expected: api::fleet::Health| {
        let object = match kind {
            "ReplicationController" => object("v1", kind),
            _ => object("apps/v1", kind),
        };
        let (health, why) = health::of(&Report { share, ..report("a", &status) }, &object);
        assert_eq!(health, expected, "{kind} of {share:?}: {status} {why}");
    };
    let first = json!({ "conditions": [condition("Progressing", "True", "t1", "created new replica set")] });
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet"] {
        check(kind, Some(4), first.clone(), Progressing);
        check(kind, Some(4), json!({ "replicas": 4, "availableReplicas": 4 }), Progressing);
    }
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"] {
        check(kind, Some(4), json!({ "observedGeneration": 7 }), Progressing);
        check(
            kind,
            Some(4),
            json!({ "observedGeneration": 7, "replicas": 4, "readyReplicas": 4 }),
            Progressing,
        );
        check(
            kind,
            Some(4),
            json!({ "observedGeneration": 7, "replicas": 4, "availableReplicas": 3 }),
            Progressing,
        );
        check(
            kind,
            Some(4),
            json!({ "observedGeneration": 7, "replicas": 4, "availableReplicas": 4 }),
            Available,
        );
        // Not divided: the replicas of its own spec.
        check(kind, None, json!({ "observedGeneration": 7, "availableReplicas": 3 }), Progressing);
        check(kind, None, json!({ "observedGeneration": 7, "availableReplicas": 4 }), Available);
        // Zero replicas are requested, and Kubernetes omits zeros.
        check(kind, Some(0), json!({ "observedGeneration": 7 }), Available);
    }
    // A DaemonSet that selects no node.
    check("DaemonSet", None, json!({ "observedGeneration": 7, "desiredNumberScheduled": 0 }), Available);
    check("DaemonSet", None, json!({ "observedGeneration": 7, "desiredNumberScheduled": 2 }), Progressing);
}
