//! Deployments on several targets.

use super::*;

fn web(replicas: u32) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
            "spec": { "replicas": replicas, "strategy": { "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } } } })
}

fn status(observed: i64, replicas: i64, updated: i64, available: i64) -> Value {
    json!({ "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": available,
            "availableReplicas": available, "collisionCount": observed, "conditions": [condition("Progressing", "True", "t", "")] })
}

#[test]
fn counters_are_added_up() {
    let (web, east, west) = (web(10), status(7, 6, 6, 6), status(7, 4, 4, 4));
    let summary = aggregate(&user_object(&web), &[report("west", &west), report("east", &east)], None);
    let conditions = json!([
        { "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "lastTransitionTime": NOW,
          "lastUpdateTime": NOW, "message": "Deployment has minimum availability." },
        { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastTransitionTime": NOW,
          "lastUpdateTime": NOW, "message": "Deployment \"web\" has successfully progressed." },
    ]);
    assert_eq!(
        summary.status,
        json!({
            "observedGeneration": 3, "replicas": 10, "updatedReplicas": 10, "readyReplicas": 10, "availableReplicas": 10,
            "collisionCount": 7, "conditions": conditions,
        })
    );
    assert_eq!(summary.differences, []);

    // Later, with the same reports, the status is unchanged, times included.
    let mut later = web.clone();
    later["status"] = summary.status.clone();
    let later_input = UserObject { now: "2026-03-02T00:00:00Z", ..user_object(&later) };
    assert_eq!(
        aggregate(&later_input, &[report("west", &west), report("east", &east)], None).status,
        summary.status
    );
}

#[test]
fn the_generation_is_observed_once_every_steady_target_has_observed_it() {
    let mut web = web(10);
    web["status"] = json!({ "observedGeneration": 2 });
    let (seen, behind, none) = (status(7, 5, 5, 5), status(6, 5, 5, 5), Value::Null);
    let observed = |reports: &[Report]| {
        aggregate(&user_object(&web), reports, None).status["observedGeneration"].clone()
    };
    assert_eq!(observed(&[report("a", &seen), report("b", &seen)]), 3);
    assert_eq!(observed(&[report("a", &seen), report("b", &behind)]), 2);
    assert_eq!(observed(&[report("a", &seen), report("b", &none)]), 2);
    // One mailbox object was written from an even older generation.
    assert_eq!(observed(&[report("a", &seen), Report { source_generation: 1, ..report("b", &seen) }]), 1);
    // Arriving and leaving targets do not count.
    let arriving = Report { role: Role::Arriving, ..report("b", &none) };
    assert_eq!(observed(&[report("a", &seen), arriving.clone()]), 3);
    assert_eq!(observed(&[Report { role: Role::Leaving, ..report("a", &seen) }, arriving]), 2);
}

/// Kubectl takes an update for finished when all replicas are updated. A target that waits its turn reports all of its
/// replicas as updated, because its mailbox object still has the old template.
#[test]
fn a_target_that_waits_its_turn_has_no_updated_replicas() {
    let (web, one) = (web(2), status(7, 1, 1, 1));
    let waiting = Report { current: false, ..report("b", &one) };
    let summary = aggregate(&user_object(&web), &[report("a", &one), waiting], None).status;
    assert_eq!(
        (&summary["observedGeneration"], &summary["replicas"], &summary["updatedReplicas"]),
        (&json!(3), &json!(2), &json!(1))
    );
    assert_eq!(
        condition_rows(&summary)[1],
        row("Progressing", "True", "ReplicaSetUpdated", "Deployment \"web\" is progressing.")
    );
    // During a migration the leaving target still reports, and does not count.
    let moved = Report { role: Role::Leaving, ..report("b", &one) };
    let summary = aggregate(&user_object(&web), &[report("a", &one), moved], None).status;
    assert_eq!((&summary["replicas"], &summary["updatedReplicas"]), (&json!(2), &json!(1)));
}

/// The conditions under which `kubectl rollout status` reports success.
fn is_rolled_out(generation: i64, replicas: i64, status: &Value) -> bool {
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let updated = number("updatedReplicas");
    number("observedGeneration") >= generation
        && updated >= replicas
        && number("replicas") <= updated
        && number("availableReplicas") >= updated
}

/// `kubectl rollout status` finishes exactly when the last target is updated.
#[test]
fn rollout_status_finishes_when_the_last_target_is_updated() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    for targets in [1, 2, 5] {
        let mut web = web(2 * targets as u32);
        web["status"] = json!({ "observedGeneration": 2 });
        let (old, new) = (status(6, 2, 2, 2), status(7, 2, 2, 2));
        let rolling = status(7, 2, 1, 1);
        for finished in 0..=targets {
            for busy in [false, true] {
                let report = |at: usize| match at.cmp(&finished) {
                    std::cmp::Ordering::Less => report(NAMES[at], &new),
                    std::cmp::Ordering::Equal if busy => report(NAMES[at], &rolling),
                    std::cmp::Ordering::Equal => report(NAMES[at], &old),
                    std::cmp::Ordering::Greater => Report { current: false, ..report(NAMES[at], &new) },
                };
                let reports: Vec<Report> = (0..targets).map(report).collect();
                let status = aggregate(&user_object(&web), &reports, None).status;
                let is_finished = is_rolled_out(3, 2 * targets as i64, &status);
                assert_eq!(
                    is_finished,
                    finished == targets,
                    "{finished} of {targets}, busy: {busy}: {status}"
                );
            }
        }
    }
}

#[test]
fn available_means_enough_replicas_of_all_targets() {
    let web = web(10);
    let available = |a: i64, b: i64, pending: u32| {
        let (east, west) = (status(7, 5, 5, a), status(7, 5, 5, b));
        let summary = aggregate(
            &UserObject { pending, ..user_object(&web) },
            &[report("a", &east), report("b", &west)],
            None,
        );
        (condition_rows(&summary.status)[0][1].clone(), summary.status["unavailableReplicas"].clone())
    };
    assert_eq!(available(5, 5, 0).0, "True");
    assert_eq!(available(5, 4, 0).0, "True");
    assert_eq!(available(4, 4, 0).0, "False");
    assert_eq!(available(4, 4, 2), ("False".into(), json!(2)));
}

#[test]
fn a_target_past_its_progress_deadline_is_named() {
    let (web, good) = (web(4), status(7, 2, 2, 2));
    let mut late = status(7, 2, 1, 1);
    let reason = json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out", "lastTransitionTime": "t" });
    let failure = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota", "lastTransitionTime": "t" });
    late["conditions"] = json!([reason, failure]);
    let rows = condition_rows(
        &aggregate(&user_object(&web), &[report("a", &good), report("b", &late)], None).status,
    );
    assert_eq!(
        rows[1..],
        [
            row("Progressing", "False", "ProgressDeadlineExceeded", "b: timed out"),
            row("ReplicaFailure", "True", "FailedCreate", "b: quota")
        ]
    );
}

/// Numbers that dip because a report is missing make autoscalers and operators act. A silent target counts with its last
/// report, and is named.
#[test]
fn a_silent_target_counts_and_is_named() {
    let (web, half) = (web(10), status(7, 5, 5, 5));
    let silent = Report { stale: true, ..report("b", &half) };
    let summary = aggregate(&user_object(&web), &[report("a", &half), silent.clone()], None).status;
    assert_eq!(summary["availableReplicas"], 10);
    assert_eq!(
        condition_rows(&summary)[2],
        row(
            "StatusStale",
            "True",
            "HeartbeatExpired",
            "no report from b; the last reported numbers are shown"
        )
    );
    let alone = aggregate(&user_object(&web), &[silent], None).status;
    assert_eq!(
        (&alone["availableReplicas"], condition_rows(&alone)[1][0].as_str()),
        (&json!(5), "StatusStale")
    );
}
