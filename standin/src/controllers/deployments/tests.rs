use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// Returns a Deployment with these numbers, and ReplicaSets of `(image, replicas, available)`, oldest first. The
/// Deployment's own image is `new`.
fn cache(desired: i64, strategy: Value, sets: &[(&str, i64, i64)]) -> Cache {
    let template = |image: &str| json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web", "image": image }] } });
    let deployment = json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "d", "generation": 1 },
        "spec": {
            "replicas": desired, "strategy": strategy, "selector": { "matchLabels": { "app": "web" } },
            "template": template("new"), "progressDeadlineSeconds": 600,
        },
    });
    let set = |(index, (image, replicas, available)): (usize, &(&str, i64, i64))| {
        let mut template = template(image);
        template["metadata"]["labels"][TEMPLATE_HASH] = (*image).into();
        let set = json!({
            "metadata": {
                "name": format!("web-{image}"), "namespace": "shop", "uid": image, "generation": 1,
                "labels": { "app": "web", TEMPLATE_HASH: image },
                "creationTimestamp": format!("2026-01-01T00:00:{index:02}Z"),
                "annotations": { REVISION: (index + 1).to_string(), DESIRED: desired.to_string(), MAX: (desired + 1).to_string() },
                "ownerReferences": [owner_reference(ObjectKind::Deployments, &deployment)],
            },
            "spec": { "replicas": replicas, "template": template },
            "status": { "replicas": replicas, "readyReplicas": available, "availableReplicas": available, "observedGeneration": 1 },
        });
        (ObjectKind::ReplicaSets, set)
    };
    let sets: Vec<_> = sets.iter().enumerate().map(set).collect();
    Cache::with([(ObjectKind::Deployments, deployment)].into_iter().chain(sets), NOW)
}

/// Returns the planned sizes of ReplicaSets, in the order of their names, without unchanged ones.
fn sizes(cache: &Cache) -> Vec<(String, i64)> {
    let mut plan = Plan::default();
    reconcile(cache, "shop", NOW, &mut plan);
    let mut sizes: Vec<(String, i64)> = Vec::new();
    for write in &plan.writes {
        match write {
            Write::Create { object, .. } => sizes.push(("created".to_owned(), size(object))),
            Write::Update { object, .. } => {
                let before = cache.get(ObjectKind::ReplicaSets, "shop", name(object)).map(size);
                if before != Some(size(object)) {
                    sizes.push((name(object).trim_start_matches("web-").to_owned(), size(object)));
                }
            }
            _ => {}
        }
    }
    sizes
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
}

#[test]
fn a_rollout_scales_as_far_as_surge_and_unavailable_allow() {
    let check = |desired, strategy: &Value, sets: &[(&str, i64, i64)], expected: &[(&str, i64)]| {
        let planned = sizes(&cache(desired, strategy.clone(), sets));
        let planned: Vec<(&str, i64)> = planned.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        assert_eq!(planned, expected, "{desired} desired with {strategy}, from {sets:?}");
    };
    let quarter = rolling(json!("25%"), json!("25%"));
    check(4, &quarter, &[], &[("created", 4)]);
    check(4, &quarter, &[("new", 4, 4)], &[]);
    // First one surge pod. After one old pod is removed, there is room for two new ones.
    check(4, &quarter, &[("old", 4, 4)], &[("created", 1)]);
    check(4, &quarter, &[("old", 4, 4), ("new", 1, 0)], &[("old", 3)]);
    check(4, &quarter, &[("old", 3, 3), ("new", 1, 0)], &[("new", 2)]);
    check(4, &quarter, &[("old", 3, 3), ("new", 2, 0)], &[]);
    check(4, &quarter, &[("old", 3, 3), ("new", 2, 2)], &[("old", 1)]);
    // Unhealthy pods are removed first, those of the oldest ReplicaSet before others.
    check(4, &quarter, &[("older", 2, 0), ("old", 2, 2), ("new", 1, 0)], &[("older", 1)]);
    // With maxSurge and maxUnavailable both 0, one pod may be unavailable.
    check(3, &rolling(json!(0), json!(0)), &[("old", 3, 3), ("new", 0, 0)], &[("old", 2)]);
    check(3, &rolling(json!(1), json!(0)), &[("old", 3, 3), ("new", 1, 0)], &[]);
    check(3, &rolling(json!(1), json!(0)), &[("old", 3, 3), ("new", 1, 1)], &[("old", 2)]);
    check(3, &rolling(json!("100%"), json!(0)), &[("old", 3, 3)], &[("created", 3)]);
    // Recreate removes all old pods before it creates new ones.
    let recreate = json!({ "type": "Recreate" });
    check(2, &recreate, &[("old", 2, 2)], &[("old", 0)]);
    check(2, &recreate, &[("old", 0, 0)], &[("created", 2)]);
    check(2, &recreate, &[("old", 0, 0), ("new", 0, 0)], &[("new", 2)]);
}

#[test]
fn scaling_is_proportional_to_the_size_of_each_replica_set() {
    let check = |before: i64, desired: i64, sets: &[(&str, i64, i64)], expected: &[(&str, i64)]| {
        let mut cache = cache(desired, rolling(json!("25%"), json!("25%")), sets);
        // The annotations that were recorded for the previous number of replicas.
        let recorded: Vec<Value> = cache.list(ObjectKind::ReplicaSets, "shop").cloned().collect();
        for mut set in recorded {
            set["metadata"]["annotations"][DESIRED] = before.to_string().into();
            set["metadata"]["annotations"][MAX] = (before + before / 4).to_string().into();
            cache.put(ObjectKind::ReplicaSets, set, NOW);
        }
        let mut planned = sizes(&cache);
        planned.sort();
        let planned: Vec<(&str, i64)> = planned.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        assert_eq!(planned, expected, "{before} to {desired}, from {sets:?}");
    };
    check(4, 8, &[("new", 4, 4)], &[("new", 8)]);
    check(4, 0, &[("new", 4, 4)], &[("new", 0)]);
    check(8, 16, &[("old", 6, 6), ("new", 4, 2)], &[("new", 8), ("old", 12)]);
    check(8, 4, &[("old", 6, 6), ("new", 4, 2)], &[("new", 2), ("old", 3)]);
}

#[test]
fn reconciling_again_plans_nothing() {
    let mut cache = cache(3, rolling(json!(1), json!(1)), &[("new", 3, 3)]);
    let mut plan = Plan::default();
    reconcile(&cache, "shop", NOW, &mut plan);
    assert_eq!(plan.summary(), ["status Deployment web"]);
    let Some(Write::Status { object, .. }) = plan.writes.pop() else { panic!("a status is written last") };
    assert_eq!(annotation(&object, REVISION), Some("1"));
    cache.put(ObjectKind::Deployments, object, NOW);
    let mut second = Plan::default();
    reconcile(&cache, "shop", NOW, &mut second);
    assert_eq!(second, Plan::default());
}

#[test]
fn a_stalled_rollout_exceeds_its_progress_deadline() {
    let mut cache = cache(2, rolling(json!(1), json!(0)), &[("old", 2, 2), ("new", 1, 0)]);
    let plan_at = |cache: &Cache, now: Timestamp| {
        let mut plan = Plan::default();
        reconcile(cache, "shop", now, &mut plan);
        plan
    };
    let plan = plan_at(&cache, NOW);
    let status = plan.status_of("web").unwrap().clone();
    let mut deployment = cache.get(ObjectKind::Deployments, "shop", "web").unwrap().clone();
    deployment["status"] = status;
    cache.put(ObjectKind::Deployments, deployment, NOW);
    let due = crate::clock::later(NOW, std::time::Duration::from_secs(600));
    assert_eq!(plan_at(&cache, NOW).due, Some(due));
    let late = plan_at(&cache, due);
    let status = late.status_of("web").unwrap();
    let progressing = crate::objects::fields::list(status, "/conditions")
        .iter()
        .find(|one| one["type"] == "Progressing")
        .unwrap();
    assert_eq!(progressing["reason"], "ProgressDeadlineExceeded");
    assert_eq!(progressing["message"], "ReplicaSet \"web-new\" has timed out progressing.");
}
