use api::fleet::{Chosen, Metadata, Source, VerdictKind};
use api::meta::quantity::amounts_of;
use serde_json::{Value, json};

use super::*;
use crate::division::pick::shares;
use crate::policy::{self, AnnotationLevel, ObjectAttributes};

mod verdicts;

fn cluster(name: &str, labels: Value, spec: Value, status: Value) -> PhysicalCluster {
    let mut whole = json!({ "conditions": [condition("True", "")] });
    api::meta::merge_patch::merge(&mut whole, status.clone());
    PhysicalCluster {
        metadata: Metadata {
            name: name.to_owned(),
            labels: serde_json::from_value(labels).unwrap(),
            ..Metadata::default()
        },
        spec: serde_json::from_value(spec).unwrap(),
        status: Some(serde_json::from_value(whole).unwrap()),
    }
}

fn condition(status: &str, message: &str) -> Value {
    json!({ "type": "Ready", "status": status, "reason": "X", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

/// A cluster without labels and taints that has this many processors free.
fn plain(name: &str, free_cpu: u32) -> PhysicalCluster {
    let allocatable = json!({ "cpu": free_cpu + 4, "memory": "64Gi" });
    cluster(
        name,
        json!({}),
        json!({}),
        json!({ "allocatable": allocatable, "requested": { "cpu": 4, "memory": "32Gi" } }),
    )
}

fn request(replicas: u32) -> PlacementRequest<'static> {
    let each = amounts_of(&json!({ "cpu": "500m", "memory": "1Gi" }));
    PlacementRequest {
        key: "shop/web",
        logical_cluster: "root:team-a",
        kinds: &[],
        violations: &[],
        each,
        replicas,
        extent: Extent::Divided,
        beside: None,
    }
}

fn annotated(value: &str) -> EffectivePlacement {
    let labels = policy::Labels::new();
    let subject = ObjectAttributes {
        group: "apps",
        kind: "Deployment",
        name: "web",
        labels: &labels,
        namespace_labels: &labels,
    };
    policy::effective_placement(&subject, Some((AnnotationLevel::Namespace, value)), &[]).unwrap()
}

fn placed(spec: Value) -> EffectivePlacement {
    let by = Chosen { source: Source::Placement, name: "policy".to_owned() };
    EffectivePlacement { by, spec: serde_json::from_value(spec).unwrap() }
}

fn steady(targets: &[(&str, i64)]) -> Vec<Target> {
    let target = |(cluster, share): &(&str, i64)| Target {
        cluster: (*cluster).to_owned(),
        role: Role::Steady,
        share: Some(*share),
    };
    targets.iter().map(target).collect()
}

fn names(decision: &TargetChoice) -> Vec<&str> {
    decision.picks.iter().map(|pick| pick.cluster.as_str()).collect()
}

/// Chooses among clusters without reservations.
fn decide(
    effective: &EffectivePlacement,
    clusters: &[PhysicalCluster],
    current: &[(&str, i64)],
) -> TargetChoice {
    let fleet: Vec<Candidate> = clusters.iter().map(Candidate::new).collect();
    let (targets, fingerprint) = (steady(current), effective.fingerprint());
    choose(
        effective,
        &request(6),
        &fleet,
        &CurrentPlacement { targets: &targets, fingerprint: Some(&fingerprint) },
    )
}

#[test]
fn without_a_policy_the_cluster_with_most_free_capacity_is_chosen_and_kept() {
    let effective = EffectivePlacement::default_choice();
    let fleet = [plain("east", 4), plain("west", 9), plain("north", 2)];
    assert_eq!(names(&decide(&effective, &fleet, &[])), ["west"]);
    assert_eq!(names(&decide(&effective, &fleet, &[("north", 6)])), ["north"], "the current target is kept");
    // Unknown capacity counts as average: less than the emptiest cluster, more than the fullest.
    let unknown = cluster("misty", json!({}), json!({}), json!({}));
    assert_eq!(
        names(&decide(&effective, &[unknown.clone(), plain("west", 9), plain("north", 1)], &[])),
        ["west"]
    );
    let decision = decide(&effective, &[unknown, plain("north", 1), plain("south", 1)], &[]);
    assert_eq!(decision.outcome, ChoiceOutcome::Placed);
    assert_eq!(
        decide(&effective, &[], &[]).outcome,
        ChoiceOutcome::Pending {
            why: "no physical cluster is visible from this logical cluster; join one".into()
        }
    );
}

#[test]
fn ties_are_broken_by_name_and_deterministically() {
    let fleet = [plain("east", 4), plain("west", 4)];
    let fleet: Vec<Candidate> = fleet.iter().map(Candidate::new).collect();
    let effective = EffectivePlacement::default_choice();
    let winner = |key: &str| {
        let decision =
            choose(&effective, &PlacementRequest { key, ..request(1) }, &fleet, &CurrentPlacement::default());
        decision.picks[0].cluster.clone()
    };
    let winners: Vec<String> = (0..20).map(|app| winner(&format!("shop/{app}"))).collect();
    assert!(winners.iter().any(|name| name == "east") && winners.iter().any(|name| name == "west"));
    let repeated: Vec<String> = (0..20).map(|app| winner(&format!("shop/{app}"))).collect();
    assert_eq!(winners, repeated);
}

/// kcp evicted everything from a cluster that was cordoned. Here nothing that runs there moves, gains or loses.
#[test]
fn a_cordoned_cluster_keeps_its_replicas_and_gets_no_new_ones() {
    let east = cluster("east", json!({}), json!({ "schedulable": false }), json!({}));
    let fleet = [east, plain("west", 4)];
    let decision = decide(&annotated("*"), &fleet, &[("east", 2), ("west", 4)]);
    assert_eq!(names(&decision), ["east", "west"]);
    for total in [6, 9, 30] {
        let (shares, pending) = shares(total, "shop/web", &decision.picks);
        assert_eq!((shares["east"], shares["west"], pending), (2, total - 2, 0));
    }
    assert_eq!(names(&decide(&EffectivePlacement::default_choice(), &fleet, &[("east", 6)])), ["east"]);
    assert_eq!(
        names(&decide(&EffectivePlacement::default_choice(), &fleet, &[])),
        ["west"],
        "a cordoned cluster gets no new workload"
    );
}

#[test]
fn a_filter_never_evicts() {
    let unsuitable = |spec: Value, status: Value| cluster("east", json!({}), spec, status);
    let silent = json!({ "conditions": [condition("Unknown", "no report for 50 s")] });
    for east in [
        unsuitable(json!({ "schedulable": false }), json!({})),
        unsuitable(json!({ "taints": [{ "key": "k", "effect": "NoSchedule" }] }), json!({})),
        unsuitable(json!({ "dedicatedTo": "root:team-b" }), json!({})),
        unsuitable(json!({}), silent),
        unsuitable(
            json!({}),
            json!({ "kinds": [{ "kind": "Pod", "resource": "pods", "namespaced": true, "versions": ["v1"] }] }),
        ),
    ] {
        let kinds = [GroupKind { group: "apps".into(), kind: "Deployment".into() }];
        let west = plain("west", 4);
        let fleet = [Candidate::new(&east), Candidate::new(&west)];
        let (effective, targets) = (EffectivePlacement::default_choice(), steady(&[("east", 6)]));
        let fingerprint = effective.fingerprint();
        let request = PlacementRequest { kinds: &kinds, ..request(6) };
        let decision = choose(
            &effective,
            &request,
            &fleet,
            &CurrentPlacement { targets: &targets, fingerprint: Some(&fingerprint) },
        );
        assert_eq!(names(&decision), ["east"], "{east:?}");
        let decision = choose(&effective, &request, &fleet, &CurrentPlacement::default());
        assert_eq!(names(&decision), ["west"], "{east:?}");
    }
}

/// Pods of an app waited for a node. Their share was added to the free capacity, so the cluster seemed to have
/// capacity for all of them, and `explain` reported that.
#[test]
fn unschedulable_pods_are_not_free_capacity() {
    let east = plain("east", 4);
    let fits = |waiting: u32| {
        let fleet = [Candidate { waiting, ..Candidate::new(&east) }];
        let targets = steady(&[("east", 6)]);
        let decision = choose(
            &annotated("*"),
            &request(6),
            &fleet,
            &CurrentPlacement { targets: &targets, fingerprint: None },
        );
        decision.verdicts[0].capacity.as_ref().and_then(|capacity| capacity.fits).unwrap()
    };
    let all = fits(0);
    assert_eq!((fits(2), fits(6), fits(9)), (all - 2, all - 6, all - 6));
}

#[test]
fn a_drain_a_no_execute_taint_and_a_failure_evict() {
    let drained = cluster("east", json!({}), json!({ "drain": true }), json!({}));
    let tainted =
        cluster("east", json!({}), json!({ "taints": [{ "key": "k", "effect": "NoExecute" }] }), json!({}));
    for east in [drained, tainted] {
        assert_eq!(
            names(&decide(
                &EffectivePlacement::default_choice(),
                &[east.clone(), plain("west", 4)],
                &[("east", 6)]
            )),
            ["west"]
        );
        // No other cluster: the target is kept, and the outcome has the reason. Karmada deleted the only copy (7455).
        let decision = decide(&EffectivePlacement::default_choice(), &[east], &[("east", 6)]);
        assert_eq!(names(&decision), ["east"]);
        assert!(matches!(decision.outcome, ChoiceOutcome::Held { .. }), "{decision:?}");
    }
    let (east, west) = (plain("east", 4), plain("west", 1));
    let failed = Candidate { failed: Some("silent for 6 min".into()), ..Candidate::new(&east) };
    let targets = steady(&[("east", 6)]);
    let current = CurrentPlacement { targets: &targets, fingerprint: None };
    let decision = choose(
        &EffectivePlacement::default_choice(),
        &request(6),
        &[failed, Candidate::new(&west)],
        &current,
    );
    assert_eq!(names(&decision), ["west"]);
}

#[test]
fn a_changed_placement_moves_a_workload_and_an_unsatisfiable_one_does_not() {
    let fleet = [plain("east", 4), plain("west", 4)];
    let candidates: Vec<Candidate> = fleet.iter().map(Candidate::new).collect();
    let (targets, fingerprint) = (steady(&[("east", 6)]), EffectivePlacement::default_choice().fingerprint());
    let current = CurrentPlacement { targets: &targets, fingerprint: Some(&fingerprint) };
    let to = |value: &str| choose(&annotated(value), &request(6), &candidates, &current);
    assert_eq!(names(&to("west")), ["west"]);
    assert_eq!(names(&to("east,west")), ["east", "west"]);
    let nowhere = to("nowhere");
    assert_eq!(names(&nowhere), ["east"]);
    let why = "the annotation holon.dev/placement=nowhere: physical cluster nowhere is not visible from this logical cluster";
    assert_eq!(nowhere.outcome, ChoiceOutcome::Held { why: why.into() });
    assert_eq!(
        to("region=eu").outcome,
        ChoiceOutcome::Held {
            why: "the annotation holon.dev/placement=region=eu selects none of 2 physical clusters".into()
        }
    );
    // A changed placement moves a workload, a changed label does not: a cluster that loses the label keeps its
    // workloads.
    let effective = annotated("region=eu");
    assert_eq!(
        names(&decide(
            &effective,
            &[plain("east", 4), cluster("west", json!({ "region": "eu" }), json!({}), json!({}))],
            &[("east", 6)]
        )),
        ["east", "west"]
    );
}

#[test]
fn number_of_clusters_prefers_current_targets() {
    let fleet: Vec<PhysicalCluster> =
        [("a", 1), ("b", 9), ("c", 5), ("d", 7)].map(|(name, cpu)| plain(name, cpu)).into();
    let effective = placed(json!({ "numberOfClusters": 2 }));
    let chosen = |current: &[(&str, i64)]| {
        let mut names: Vec<String> =
            decide(&effective, &fleet, current).picks.into_iter().map(|pick| pick.cluster).collect();
        names.sort();
        names
    };
    assert_eq!(chosen(&[]), ["b", "d"]);
    assert_eq!(chosen(&[("a", 3)]), ["a", "b"]);
    assert_eq!(chosen(&[("a", 3), ("c", 3)]), ["a", "c"]);
}

#[test]
fn clusters_are_spread_over_groups() {
    let zones = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")];
    let mut fleet: Vec<PhysicalCluster> = zones
        .iter()
        .map(|(name, zone)| cluster(name, json!({ "zone": zone }), json!({}), json!({})))
        .collect();
    fleet.push(plain("bare", 99));
    let check = |spec: Value, current: &[(&str, i64)], expected: &[(&str, usize)]| {
        let decision = decide(&placed(spec.clone()), &fleet, current);
        let count = |zone: &str| {
            let inside = |pick: &&Pick| zones.iter().any(|(name, of)| *name == pick.cluster && *of == zone);
            decision.picks.iter().filter(inside).count()
        };
        let found: Vec<(&str, usize)> = ["a", "b", "c"].into_iter().map(|zone| (zone, count(zone))).collect();
        assert_eq!(found, expected, "{spec}");
        assert!(!names(&decision).contains(&"bare"), "a cluster without the label is in no group");
    };
    let spread = |more: Value| {
        let mut spread = json!({ "label": "zone" });
        api::meta::merge_patch::merge(&mut spread, more.clone());
        json!([spread])
    };
    check(json!({ "spread": spread(json!({})) }), &[], &[("a", 3), ("b", 1), ("c", 1)]);
    check(json!({ "spread": spread(json!({ "maxSkew": 1 })) }), &[], &[("a", 2), ("b", 1), ("c", 1)]);
    check(
        json!({ "spread": spread(json!({})), "numberOfClusters": 3 }),
        &[],
        &[("a", 1), ("b", 1), ("c", 1)],
    );
    // Current targets come first, as far as the groups allow.
    let effective = placed(json!({ "spread": spread(json!({ "minGroups": 2 })), "numberOfClusters": 3 }));
    let decision = decide(&effective, &fleet, &[("a1", 1), ("a2", 1), ("a3", 1)]);
    assert_eq!(names(&decision).iter().filter(|name| name.starts_with('a')).count(), 2, "{decision:?}");
    assert_eq!(decision.picks.len(), 3);
    let one_zone = placed(json!({ "spread": spread(json!({ "maxGroups": 1 })) }));
    assert_eq!(names(&decide(&one_zone, &fleet, &[("b1", 1)])), ["b1"]);
    let four = placed(json!({ "spread": spread(json!({ "minGroups": 4 })) }));
    let why = "Placement policy: not enough groups to spread over zone".to_owned();
    assert_eq!(decide(&four, &fleet, &[]).outcome, ChoiceOutcome::Pending { why: why.clone() });
    assert_eq!(decide(&four, &fleet, &[("a1", 6)]).outcome, ChoiceOutcome::Held { why });
}

#[test]
fn a_fallback_is_used_only_while_it_is_needed() {
    let on_premises = |free: u32| {
        let allocatable = json!({ "cpu": free, "memory": "64Gi" });
        let status = json!({ "allocatable": allocatable, "requested": { "cpu": 0, "memory": 0 } });
        cluster("basement", json!({ "tier": "own" }), json!({}), status)
    };
    let cloud = cluster("cloud", json!({ "tier": "rented" }), json!({}), json!({}));
    let effective = placed(json!({
        "clusterSelector": { "matchLabels": { "tier": "own" } },
        "fallbackGroups": [{ "name": "cloud", "clusterSelector": { "matchLabels": { "tier": "rented" } } }],
    }));
    let check = |free: u32, current: &[(&str, i64)], expected: &[(&str, u32)]| {
        let decision = decide(&effective, &[on_premises(free), cloud.clone()], current);
        let (shares, pending) = shares(6, "shop/web", &decision.picks);
        let shares: Vec<(&str, u32)> = shares.iter().map(|(name, share)| (name.as_str(), *share)).collect();
        assert_eq!((shares.as_slice(), pending), (expected, 0), "{free} free, {current:?}");
    };
    check(3, &[], &[("basement", 6)]);
    check(2, &[], &[("basement", 4), ("cloud", 2)]);
    check(0, &[], &[("basement", 0), ("cloud", 6)]);
    // Its own replicas count as fitting. When all fit, the cloud is released.
    check(0, &[("basement", 4), ("cloud", 2)], &[("basement", 4), ("cloud", 2)]);
    check(1, &[("basement", 4), ("cloud", 2)], &[("basement", 6)]);
}

#[test]
fn shares_follow_the_placement_policy() {
    let fleet = [plain("a", 6), plain("b", 12), plain("c", 18)];
    let check = |spec: Value, total: u32, expected: &[u32]| {
        let (shares, _) = shares(total, "shop/web", &decide(&placed(spec.clone()), &fleet, &[]).picks);
        assert_eq!(shares.values().copied().collect::<Vec<_>>(), expected, "{spec}");
    };
    check(json!({}), 12, &[4, 4, 4]);
    check(json!({ "weights": "Capacity" }), 12, &[2, 4, 6]);
    let named = |name: &str| json!({ "names": [name] });
    let rules = json!([
        { "clusterSelector": named("a"), "weight": 170 },
        { "clusterSelector": named("b"), "weight": 110 },
        { "clusterSelector": named("c"), "weight": 60 },
    ]);
    check(json!({ "weights": "Static", "shares": rules }), 13, &[7, 4, 2]);
    let rules =
        json!([{ "clusterSelector": named("a"), "max": 2 }, { "clusterSelector": named("c"), "min": 1 }]);
    check(json!({ "shares": rules }), 10, &[2, 4, 4]);
}
