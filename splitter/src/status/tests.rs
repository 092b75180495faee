use api::fleet::StatusRuleSpec;

use super::*;

static NO_LABELS: Labels = Labels::new();
const NOW: &str = "2026-03-01T12:00:00Z";

pub(super) fn report<'a>(cluster: &'a str, status: &'a Value) -> Report<'a> {
    Report {
        cluster,
        role: Role::Steady,
        status: (!status.is_null()).then_some(status),
        generation: 7,
        stands_for: 3,
        current: true,
        stale: false,
        share: None,
        index_start: 0,
        labels: &NO_LABELS,
    }
}

pub(super) fn whole(object: &Value) -> UserObject<'_> {
    UserObject {
        object,
        desired: None,
        is_duplicated: false,
        pending: 0,
        unplaced: None,
        unsent: None,
        missing: None,
        now: NOW,
    }
}

pub(super) fn condition(name: &str, status: &str, time: &str, message: &str) -> Value {
    json!({ "type": name, "status": status, "reason": format!("R{time}"), "message": message, "lastTransitionTime": time })
}

/// Type, status, reason and message of each condition.
pub(super) fn told(status: &Value) -> Vec<[String; 4]> {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let row =
        |one: &Value| [text(one, "type"), text(one, "status"), text(one, "reason"), text(one, "message")];
    status["conditions"].as_array().into_iter().flatten().map(row).collect()
}

fn row(name: &str, status: &str, reason: &str, message: &str) -> [String; 4] {
    [name, status, reason, message].map(str::to_owned)
}

mod exact {
    use super::*;

    #[test]
    fn one_target_is_exact_but_for_generations() {
        let check = |observed: i64, before: i64, expected: i64| {
            let status = |observed: i64| {
                json!({ "phase": "Odd", "list": [3, 1], "observedGeneration": observed,
                        "parents": [{ "conditions": [{ "type": "Ready", "observedGeneration": observed }] }] })
            };
            let object = json!({ "apiVersion": "example.com/v1", "kind": "Widget", "status": { "observedGeneration": before } });
            let below = status(observed);
            assert_eq!(aggregate(&whole(&object), &[report("east", &below)], None).status, status(expected));
        };
        check(7, 2, 3);
        check(8, 2, 3);
        // It has not seen the latest: what was observed before still is.
        check(6, 2, 2);
        // Two edits in a row, neither observed: the first is not observed either.
        check(5, 1, 1);
        check(6, 9, 2);
    }

    #[test]
    fn a_claim_that_is_nowhere_is_pending_and_never_bound() {
        let claim =
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": { "phase": "Bound" } });
        assert_eq!(aggregate(&whole(&claim), &[], None).status, json!({ "phase": "Pending" }));
        // On its way, it is what the new place says, once that says anything.
        let (bound, lost, silent) = (json!({ "phase": "Bound" }), json!({ "phase": "Lost" }), Value::Null);
        let old = Report { role: Role::Leaving, ..report("a", &lost) };
        let of = |new: &Value| aggregate(&whole(&claim), &[old.clone(), report("b", new)], None).status;
        assert_eq!(of(&bound), bound);
        assert_eq!(of(&silent), lost);
    }

    #[test]
    fn an_unplaced_object_has_a_condition_with_the_reason() {
        let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": {} });
        let nowhere =
            UserObject { unplaced: Some("there is no physical cluster yet; join one"), ..whole(&web) };
        let told = told(&aggregate(&nowhere, &[], None).status);
        assert_eq!(told, [row("Placed", "False", "NoTarget", "there is no physical cluster yet; join one")]);
    }
}

mod deployments {
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
    fn numbers_are_added_up() {
        let (web, east, west) = (web(10), status(7, 6, 6, 6), status(7, 4, 4, 4));
        let summary = aggregate(&whole(&web), &[report("west", &west), report("east", &east)], None);
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

        // Later, with the same reports: nothing changes, times included.
        let mut later = web.clone();
        later["status"] = summary.status.clone();
        let again = UserObject { now: "2026-03-02T00:00:00Z", ..whole(&later) };
        assert_eq!(
            aggregate(&again, &[report("west", &west), report("east", &east)], None).status,
            summary.status
        );
    }

    #[test]
    fn the_generation_is_observed_once_every_steady_target_has_observed_it() {
        let mut web = web(10);
        web["status"] = json!({ "observedGeneration": 2 });
        let (seen, expectations, none) = (status(7, 5, 5, 5), status(6, 5, 5, 5), Value::Null);
        let observed =
            |reports: &[Report]| aggregate(&whole(&web), reports, None).status["observedGeneration"].clone();
        assert_eq!(observed(&[report("a", &seen), report("b", &seen)]), 3);
        assert_eq!(observed(&[report("a", &seen), report("b", &expectations)]), 2);
        assert_eq!(observed(&[report("a", &seen), report("b", &none)]), 2);
        // One was made from an older generation still.
        assert_eq!(observed(&[report("a", &seen), Report { stands_for: 1, ..report("b", &seen) }]), 1);
        // Those that come and go do not count.
        let arriving = Report { role: Role::Arriving, ..report("b", &none) };
        assert_eq!(observed(&[report("a", &seen), arriving.clone()]), 3);
        assert_eq!(observed(&[Report { role: Role::Leaving, ..report("a", &seen) }, arriving]), 2);
    }

    /// Kubectl takes an update for finished when all replicas are updated. A target that waits its turn reports all of its
    /// replicas as updated, because it has not heard of anything newer.
    #[test]
    fn a_target_that_waits_its_turn_has_updated_nothing() {
        let (web, one) = (web(2), status(7, 1, 1, 1));
        let waiting = Report { current: false, ..report("b", &one) };
        let summary = aggregate(&whole(&web), &[report("a", &one), waiting], None).status;
        assert_eq!(
            (&summary["observedGeneration"], &summary["replicas"], &summary["updatedReplicas"]),
            (&json!(3), &json!(2), &json!(1))
        );
        assert_eq!(
            told(&summary)[1],
            row("Progressing", "True", "ReplicaSetUpdated", "Deployment \"web\" is progressing.")
        );
        // During a migration the leaving target still reports, and does not count.
        let moved = Report { role: Role::Leaving, ..report("b", &one) };
        let summary = aggregate(&whole(&web), &[report("a", &one), moved], None).status;
        assert_eq!((&summary["replicas"], &summary["updatedReplicas"]), (&json!(2), &json!(1)));
    }

    /// What `kubectl rollout status` looks at before it says that everything is rolled out.
    fn is_rolled_out(generation: i64, replicas: i64, status: &Value) -> bool {
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        let updated = number("updatedReplicas");
        number("observedGeneration") >= generation
            && updated >= replicas
            && number("replicas") <= updated
            && number("availableReplicas") >= updated
    }

    /// From the user's edit to the last target, in the order in which they have their turns, a client that waits is told that
    /// it is over exactly when it is.
    #[test]
    fn a_client_that_waits_is_told_when_it_is_over() {
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
                    let status = aggregate(&whole(&web), &reports, None).status;
                    let told = is_rolled_out(3, 2 * targets as i64, &status);
                    assert_eq!(told, finished == targets, "{finished} of {targets}, busy: {busy}: {status}");
                }
            }
        }
    }

    #[test]
    fn available_means_enough_on_the_whole() {
        let web = web(10);
        let available = |a: i64, b: i64, pending: u32| {
            let (east, west) = (status(7, 5, 5, a), status(7, 5, 5, b));
            let summary = aggregate(
                &UserObject { pending, ..whole(&web) },
                &[report("a", &east), report("b", &west)],
                None,
            );
            (told(&summary.status)[0][1].clone(), summary.status["unavailableReplicas"].clone())
        };
        assert_eq!(available(5, 5, 0).0, "True");
        assert_eq!(available(5, 4, 0).0, "True");
        assert_eq!(available(4, 4, 0).0, "False");
        assert_eq!(available(4, 4, 2), ("False".into(), json!(2)));
    }

    #[test]
    fn a_target_out_of_time_is_named() {
        let (web, good) = (web(4), status(7, 2, 2, 2));
        let mut late = status(7, 2, 1, 1);
        let reason = json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out", "lastTransitionTime": "t" });
        let failure = json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota", "lastTransitionTime": "t" });
        late["conditions"] = json!([reason, failure]);
        let told = told(&aggregate(&whole(&web), &[report("a", &good), report("b", &late)], None).status);
        assert_eq!(
            told[1..],
            [
                row("Progressing", "False", "ProgressDeadlineExceeded", "b: timed out"),
                row("ReplicaFailure", "True", "FailedCreate", "b: quota")
            ]
        );
    }

    /// Numbers that dip because a report is missing make autoscalers and people act. A silent target counts with what it said
    /// last, and is named.
    #[test]
    fn a_silent_target_counts_and_is_named() {
        let (web, half) = (web(10), status(7, 5, 5, 5));
        let silent = Report { stale: true, ..report("b", &half) };
        let summary = aggregate(&whole(&web), &[report("a", &half), silent.clone()], None).status;
        assert_eq!(summary["availableReplicas"], 10);
        assert_eq!(
            told(&summary)[2],
            row(
                "StatusStale",
                "True",
                "HeartbeatExpired",
                "no report from b; the last reported numbers are shown"
            )
        );
        let alone = aggregate(&whole(&web), &[silent], None).status;
        assert_eq!((&alone["availableReplicas"], told(&alone)[1][0].as_str()), (&json!(5), "StatusStale"));
    }
}

mod others {
    use super::*;

    fn merged(version: &str, kind: &str, a: Value, b: Value) -> Summary {
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "x" } });
        aggregate(&whole(&object), &[report("a", &a), report("b", &b)], None)
    }

    #[test]
    fn sets_are_added_up_and_revisions_kept_when_equal() {
        let set = |current: &str, update: &str, updated: i64| json!({ "observedGeneration": 7, "replicas": 2, "readyReplicas": 2, "updatedReplicas": updated, "currentRevision": current, "updateRevision": update });
        let same = merged("apps/v1", "StatefulSet", set("r1", "r1", 2), set("r1", "r1", 2)).status;
        assert_eq!(
            same,
            json!({ "observedGeneration": 3, "replicas": 4, "readyReplicas": 4, "updatedReplicas": 4, "currentRevision": "r1", "updateRevision": "r1" })
        );
        // As long as one is behind, the two differ, and a client waits.
        let behind = merged("apps/v1", "StatefulSet", set("r2", "r2", 2), set("r1", "r2", 1));
        assert_eq!(
            (&behind.status["currentRevision"], &behind.status["updateRevision"]),
            (&json!("r1"), &json!("r2"))
        );
        assert_eq!(behind.differences, []);
        // Rewritten for one cluster, a template has another revision there, for ever. Each is compared with its own.
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
        assert_eq!(
            daemon,
            json!({ "numberReady": 4, "desiredNumberScheduled": 5, "updatedNumberScheduled": 5 })
        );
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
            let names: Vec<String> = told(&status).into_iter().map(|row| row[0].clone()).collect();
            assert_eq!(names, expected, "{a} {b}");
            status
        };
        let done = || job(0, 60, &["SuccessCriteriaMet", "Complete"]);
        let status = check(
            done(),
            job(0, 40, &["SuccessCriteriaMet", "Complete"]),
            &["SuccessCriteriaMet", "Complete"],
        );
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
        let (a, b) = (
            json!({ "completedIndexes": "0-2,4" }),
            json!({ "completedIndexes": "0,2", "failedIndexes": "1" }),
        );
        let reports = [report("a", &a), Report { index_start: 5, ..report("b", &b) }];
        let status = aggregate(&whole(&object), &reports, None).status;
        assert_eq!(
            (&status["completedIndexes"], &status["failedIndexes"]),
            (&json!("0-2,4,5,7"), &json!("6"))
        );
    }

    #[test]
    fn other_kinds_of_the_table() {
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
        let budget = |healthy: i64, wanted: i64, allowed: i64| json!({ "observedGeneration": 7, "currentHealthy": healthy, "desiredHealthy": wanted, "expectedPods": 3, "disruptionsAllowed": allowed });
        // One could spare two, the other lacks two: on the whole nothing can be spared.
        let status = merged("policy/v1", "PodDisruptionBudget", budget(3, 1, 2), budget(0, 2, 0)).status;
        assert_eq!(
            (&status["disruptionsAllowed"], &status["expectedPods"], &status["observedGeneration"]),
            (&json!(0), &json!(6), &json!(3))
        );
        assert_eq!(told(&status)[0][..3], ["DisruptionAllowed", "False", "InsufficientPods"]);
        let status = merged("policy/v1", "PodDisruptionBudget", budget(3, 2, 1), budget(3, 3, 0)).status;
        assert_eq!(status["disruptionsAllowed"], 1);
    }

    /// KubeStellar and OCM show one cluster's status of a custom kind as the whole, or none. Here what can be merged is, and
    /// what targets do not agree on is reported and not made up.
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
            told(&status),
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
    fn a_condition_is_as_good_as_its_worst() {
        let check = |a: &str, b: &str, expected: &str| {
            let of = |status: &str| json!({ "conditions": [condition("Ready", status, "t", "m")] });
            let status =
                merged("example.com/v1", "Widget", of(a), if b.is_empty() { Value::Null } else { of(b) })
                    .status;
            assert_eq!(told(&status)[0][1], expected, "{a} {b}");
        };
        check("True", "True", "True");
        check("True", "False", "False");
        check("Unknown", "False", "False");
        check("True", "Unknown", "Unknown");
        // Who has not reported does not know; a client that waits for Ready must go on waiting.
        check("True", "", "Unknown");
        check("False", "", "False");
    }
}

mod rules {
    use super::*;

    fn read(spec: Value) -> Result<CompiledStatusRule, Vec<PolicyError>> {
        let mut whole = json!({ "target": { "group": "example.com", "kind": "Widget" } });
        api::meta::merge_patch::merge(&mut whole, spec.clone());
        CompiledStatusRule::read(&serde_json::from_value::<StatusRuleSpec>(whole).unwrap())
    }

    fn widget() -> Value {
        json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "want": 10 }, "status": { "old": true } })
    }

    fn apply(rule: &CompiledStatusRule) -> Summary {
        let zone = |zone: &str| -> Labels { [("zone".to_owned(), zone.to_owned())].into() };
        let (object, eu, us) = (widget(), zone("eu"), zone("us"));
        let of = |ready: i64, ok: bool| json!({ "ready": ready, "ok": ok });
        let (a, b, c) = (of(1, true), of(2, false), of(4, true));
        let reports = [
            Report { labels: &eu, ..report("a", &a) },
            Report { labels: &us, ..report("b", &b) },
            Report { labels: &eu, stale: true, ..report("c", &c) },
        ];
        aggregate(&whole(&object), &reports, Some(rule))
    }

    #[test]
    fn a_status_rule_computes_the_summary() {
        let rule = read(json!({
            "fields": [
                { "path": "/status/ready", "expression": "sum(targets.map(t, t.status.ready))" },
                { "path": "/status/share", "expression": "sum(targets.map(t, t.status.ready)) * 100 / object.spec.want" },
                { "path": "/status/least", "expression": "min(targets.map(t, t.status.ready))" },
                { "path": "/status/ok", "expression": "all(targets.map(t, t.status.ok))" },
                { "path": "/status/some", "expression": "any(targets.map(t, t.status.ok))" },
            ],
            "rows": [
                { "path": "/status/zones", "groupBy": [{ "name": "zone", "expression": "target.labels.zone" }],
                  "columns": [{ "name": "ready", "expression": "sum(targets.map(t, t.status.ready))" }, { "name": "clusters", "expression": "targets.map(t, t.cluster)" }] },
                { "path": "/status/fresh", "filter": "!target.stale", "groupBy": [{ "name": "cluster", "expression": "target.cluster" }] },
            ],
        })).unwrap();
        let summary = apply(&rule);
        assert_eq!(
            summary.status,
            json!({
                "ready": 7, "share": 70, "least": 1, "ok": false, "some": true,
                "zones": [{ "zone": "eu", "ready": 5, "clusters": ["a", "c"] }, { "zone": "us", "ready": 2, "clusters": ["b"] }],
                "fresh": [{ "cluster": "a" }, { "cluster": "b" }],
            })
        );
    }

    #[test]
    fn a_wrong_rule_is_reported_with_line_and_column_and_changes_nothing() {
        let errors = read(json!({
            "fields": [
                { "path": "/status/a", "expression": "sum(targets.map(t, t.status.ready)" },
                { "path": "/spec/b", "expression": "1" },
                { "path": "/status/c", "expression": "1 +\n  tragets" },
            ],
            "rows": [{ "path": "/status/d", "columns": [{ "name": "x", "expression": "target.cluster" }] }],
        }))
        .unwrap_err();
        let told: Vec<(&str, i64, i64)> =
            errors.iter().map(|one| (one.field.as_str(), one.line, one.column)).collect();
        assert_eq!(
            told,
            [
                ("spec.fields[0].expression", 1, 35),
                ("spec.fields[1].path", 1, 1),
                ("spec.fields[2].expression", 2, 3),
                ("spec.rows[0].columns[0].expression", 1, 1),
            ]
        );
        // What goes wrong only with these values.
        let rule = read(json!({ "fields": [
            { "path": "/status/ready", "expression": "sum(targets.map(t, t.status.ready))" },
            { "path": "/status/x", "expression": "targets[0].status.missing" },
        ] }))
        .unwrap();
        let summary = apply(&rule);
        assert_eq!(summary.status, json!({ "old": true }));
        assert_eq!(
            (summary.errors[0].field.as_str(), summary.errors[0].line, summary.errors[0].column),
            ("spec.fields[1].expression", 1, 19)
        );
    }
}

#[test]
fn targets_are_counted_by_how_they_do() {
    let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment" });
    let good = json!({ "observedGeneration": 7, "replicas": 2, "availableReplicas": 2 });
    let behind = json!({ "observedGeneration": 6, "replicas": 2, "availableReplicas": 2 });
    let few = json!({ "observedGeneration": 7, "replicas": 2, "availableReplicas": 1 });
    let broken = json!({ "observedGeneration": 7, "replicas": 2, "conditions": [condition("Progressing", "False", "t", "late")] });
    let none = Value::Null;
    let of = |status: &Value| health::target(&Report { share: Some(2), ..report("a", status) }, &web, true);
    let reports: Vec<(Role, api::fleet::TargetReport)> =
        [&good, &behind, &few, &broken, &none].into_iter().map(|status| (Role::Steady, of(status))).collect();
    let told: Vec<(&str, bool)> =
        reports.iter().map(|(_, one)| (one.message.as_str(), one.updated)).collect();
    assert_eq!(
        told,
        [
            ("", true),
            ("the latest generation is not observed yet", false),
            ("1 of 2 available", true),
            ("late", true),
            ("no report yet", false)
        ]
    );
    let mut all = reports.clone();
    all.push((Role::Leaving, of(&good)));
    let counts = health::counts(&all);
    assert_eq!(
        counts,
        api::fleet::Counts { total: 5, applied: 5, available: 1, progressing: 3, degraded: 1, updated: 3 }
    );
    let check = |kind: &str, status: Value, expected: api::fleet::Health| {
        let object = json!({ "apiVersion": "v1", "kind": kind });
        assert_eq!(health::of(&report("a", &status), &object).0, expected, "{kind} {status}");
    };
    use api::fleet::Health::{Available, Degraded, Progressing, Unknown};
    check("Job", json!({ "active": 2 }), Progressing);
    check("Job", json!({ "conditions": [condition("Complete", "True", "t", "")] }), Available);
    check("DaemonSet", json!({ "numberAvailable": 2, "desiredNumberScheduled": 3 }), Progressing);
    check("DaemonSet", json!({ "numberAvailable": 3, "desiredNumberScheduled": 3 }), Available);
    check("PersistentVolumeClaim", json!({ "phase": "Pending" }), Progressing);
    check("PersistentVolumeClaim", json!({ "phase": "Bound" }), Available);
    check("Widget", json!({ "phase": "Failed" }), Degraded);
    check("Widget", json!({ "conditions": [condition("Ready", "False", "t", "")] }), Progressing);
    check("Pod", Value::Null, Unknown);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
    let there = health::target(&report("a", &none), &map, true);
    assert_eq!((there.health, there.updated), (api::fleet::Health::Available, true));
}

/// A move between real clusters took the replicas of the source away as soon as those of the target were ready: Kubernetes
/// omits availableReplicas while it is zero, and the ready ones counted instead, whatever minReadySeconds says.
#[test]
fn ready_replicas_of_a_deployment_are_not_available_ones() {
    let object = |api_version: &str, kind: &str, status: Value| json!({ "apiVersion": api_version, "kind": kind, "status": status });
    let check = |object: Value, expected: u32| assert_eq!(kinds::available(&object), expected, "{object}");
    check(object("apps/v1", "Deployment", json!({ "replicas": 6, "readyReplicas": 6 })), 0);
    check(object("apps/v1", "Deployment", json!({ "readyReplicas": 6, "availableReplicas": 5 })), 5);
    check(object("apps/v1", "StatefulSet", json!({ "readyReplicas": 2 })), 0);
    check(object("example.com/v1", "Shop", json!({ "readyReplicas": 2 })), 2);
    check(object("example.com/v1", "Shop", json!({})), 0);
}
