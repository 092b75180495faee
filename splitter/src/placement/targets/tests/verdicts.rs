//! The verdicts, and the table of `holon explain`.

use super::*;
use crate::placement::explain;

fn any() -> EffectivePlacement {
    annotated("*")
}

fn east(labels: Value, spec: Value, status: Value) -> PhysicalCluster {
    cluster("east", labels, spec, status)
}

/// A cluster that any workload may be placed on.
fn good() -> PhysicalCluster {
    east(json!({}), json!({}), json!({}))
}

fn as_is(_: &mut Candidate) {}

/// Checks the verdict on the only candidate, a changed `east`. Without a rule it is chosen.
#[track_caller]
fn check(
    effective: EffectivePlacement,
    east: PhysicalCluster,
    change: &dyn Fn(&mut Candidate),
    rule: &str,
    evidence: &str,
    remedy: &str,
) {
    let kinds = [GroupKind { group: "example.com".into(), kind: "Widget".into() }];
    let request = PlacementRequest { kinds: &kinds, ..request(6) };
    let mut candidate = Candidate::new(&east);
    change(&mut candidate);
    let decision = choose(&effective, &request, &[candidate], &CurrentPlacement::default());
    let row = decision.verdicts.iter().find(|row| row.cluster == "east").unwrap();
    let expected = if rule.is_empty() { VerdictKind::Chosen } else { VerdictKind::Rejected };
    assert_eq!(row.verdict, expected, "{row:?}");
    assert_eq!((row.rule.as_str(), row.message.as_str(), row.remedy.as_str()), (rule, evidence, remedy));
}

#[test]
fn a_chosen_cluster_has_evidence() {
    check(
        any(),
        good(),
        &as_is,
        "",
        "chosen by the annotation holon.dev/placement=*; its free capacity is unknown",
        "",
    );
    check(any(), plain("east", 4), &as_is, "", "chosen by the annotation holon.dev/placement=*", "");
}

#[test]
fn unselected_clusters_have_evidence_and_a_remedy() {
    check(
        annotated("west"),
        good(),
        &as_is,
        "NotNamed",
        "the selector names other physical clusters",
        "set the annotation holon.dev/placement=west,east",
    );
    check(
        placed(json!({ "clusterSelector": { "names": ["west"] } })),
        good(),
        &as_is,
        "NotNamed",
        "the selector names other physical clusters",
        "add east to spec.clusterSelector.names of Placement policy",
    );
    check(
        annotated("region=eu"),
        east(json!({ "region": "us" }), json!({}), json!({})),
        &as_is,
        "LabelMismatch",
        "label region=us does not match region=eu",
        "kubectl label physicalcluster east region=eu --overwrite",
    );
    check(
        annotated("gpu=*"),
        good(),
        &as_is,
        "LabelMismatch",
        "label gpu is missing, gpu=* is required",
        "kubectl label physicalcluster east gpu=true",
    );
    check(
        annotated("env!=dev"),
        east(json!({ "env": "dev" }), json!({}), json!({})),
        &as_is,
        "LabelMismatch",
        "label env=dev does not match env!=dev",
        "kubectl label physicalcluster east env-",
    );
    check(
        annotated("!edge"),
        east(json!({ "edge": "yes" }), json!({}), json!({})),
        &as_is,
        "LabelMismatch",
        "label edge=yes does not match !edge",
        "kubectl label physicalcluster east edge-",
    );
    check(
        placed(json!({ "clusterSelector": { "expressions": ["cluster.status.nodes.ready > 3"] } })),
        east(json!({}), json!({}), json!({ "nodes": { "total": 3, "ready": 3 } })),
        &as_is,
        "ExpressionFalse",
        "expression \"cluster.status.nodes.ready > 3\" is false",
        "change the expression in Placement policy",
    );
    check(
        placed(json!({ "clusterSelector": { "expressions": ["cluster.spec."] } })),
        good(),
        &as_is,
        "InvalidExpression",
        "expression \"cluster.spec.\" failed: 1:14: Syntax error: no viable alternative at input '.'",
        "fix the expression in Placement policy",
    );
    check(
        placed(json!({ "clusterSelector": { "expressions": ["cluster.status.nodes.ready > 3"] } })),
        good(),
        &as_is,
        "InvalidExpression",
        "expression \"cluster.status.nodes.ready > 3\" failed: 1:16: no such field \"nodes\"; \
         test it with has(…) first",
        "fix the expression in Placement policy",
    );
}

#[test]
fn clusters_closed_by_their_spec_have_evidence_and_a_remedy() {
    check(
        any(),
        good(),
        &|candidate| candidate.usable = false,
        "UseNotGranted",
        "this logical cluster may not use the physical cluster",
        "grant the verb use on physicalclusters east to this logical cluster",
    );
    check(
        any(),
        east(json!({}), json!({ "dedicatedTo": "root:team-b" }), json!({})),
        &as_is,
        "Dedicated",
        "the physical cluster is dedicated to logical cluster root:team-b",
        "remove spec.dedicatedTo from PhysicalCluster east",
    );
    check(
        any(),
        east(json!({}), json!({ "schedulable": false }), json!({})),
        &as_is,
        "NotSchedulable",
        "the physical cluster is cordoned: spec.schedulable is false",
        "set spec.schedulable of PhysicalCluster east to true",
    );
    check(
        any(),
        east(json!({}), json!({ "drain": true }), json!({})),
        &as_is,
        "Draining",
        "the physical cluster is being drained",
        "set spec.drain of PhysicalCluster east to false",
    );
    let mut leaving = good();
    leaving.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".into());
    check(
        any(),
        leaving,
        &as_is,
        "Leaving",
        "the physical cluster is being deleted",
        "join the cluster under another name",
    );
}

#[test]
fn untolerated_taints_have_evidence_and_a_remedy() {
    let gpu = json!({ "taints": [{ "key": "gpu", "value": "a100", "effect": "NoSchedule" }] });
    check(
        placed(json!({})),
        east(json!({}), gpu.clone(), json!({})),
        &as_is,
        "UntoleratedTaint",
        "the physical cluster has the untolerated taint gpu=a100:NoSchedule",
        "add a toleration of gpu=a100:NoSchedule to Placement policy",
    );
    check(
        any(),
        east(json!({}), gpu.clone(), json!({})),
        &as_is,
        "UntoleratedTaint",
        "the physical cluster has the untolerated taint gpu=a100:NoSchedule",
        "add a Placement that tolerates gpu=a100:NoSchedule, or remove the taint",
    );
    let tolerant = json!({ "tolerations": [{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }] });
    check(
        placed(tolerant),
        east(json!({}), gpu, json!({})),
        &as_is,
        "",
        "chosen by Placement policy; its free capacity is unknown",
        "",
    );
}

#[test]
fn unhealthy_clusters_have_evidence_and_a_remedy() {
    check(
        any(),
        good(),
        &|candidate| candidate.failed = Some("web crashes there".into()),
        "Failed",
        "web crashes there",
        "wait until the workload recovers there",
    );
    let mut silent = good();
    silent.status = None;
    check(
        any(),
        silent,
        &as_is,
        "NeverReported",
        "the syncer of the physical cluster has not reported yet",
        "check that the syncer of east runs: it has not reported to mailbox-east",
    );
    check(
        any(),
        east(json!({}), json!({}), json!({ "conditions": [condition("Unknown", "no report for 50 s")] })),
        &as_is,
        "NotReady",
        "condition Ready is Unknown: no report for 50 s",
        "check the syncer of east; after two heartbeats the cluster is used again",
    );
}

#[test]
fn missing_kinds_and_claims_have_evidence_and_a_remedy() {
    let served =
        json!({ "kinds": [{ "kind": "Pod", "resource": "pods", "namespaced": true, "versions": ["v1"] }] });
    check(
        any(),
        east(json!({}), json!({}), served),
        &as_is,
        "KindNotServed",
        "the physical cluster does not serve the kind Widget.example.com",
        "install the CustomResourceDefinition of Widget.example.com on east",
    );
    check(
        any(),
        good(),
        &|east| east.claim_elsewhere = Some(ClaimLocation { name: "data".into(), at: "west".into() }),
        "DataElsewhere",
        "the data of PersistentVolumeClaim data is on west",
        "place the object on west, or delete PersistentVolumeClaim data and its data",
    );
}

#[test]
fn missing_capacity_has_evidence_and_a_remedy() {
    check(
        placed(json!({ "weights": "Static", "shares": [{ "weight": 0 }] })),
        good(),
        &as_is,
        "NoWeight",
        "the weight of the physical cluster is 0",
        "set a weight above 0 in spec.shares of Placement policy",
    );
    check(
        any(),
        east(json!({}), json!({ "bounds": { "cpu": "10" } }), json!({})),
        &|candidate| candidate.taken = amounts_of(&json!({ "cpu": "9800m" })),
        "BoundExceeded",
        "spec.bounds.cpu is 10, of which 9800m are used; 500m are requested",
        "raise spec.bounds.cpu of PhysicalCluster east to 10300m",
    );
    let quotas = json!([{ "namespace": "shop-1", "name": "q", "hard": { "requests.memory": "2Gi" }, "used": { "requests.memory": "1536Mi" } }]);
    check(
        any(),
        east(json!({}), json!({}), json!({ "quotas": quotas })),
        &|candidate| candidate.namespace = "shop-1".into(),
        "QuotaExceeded",
        "memory of ResourceQuota shop-1/q is 2Gi, of which 1536Mi are used; 1Gi are requested",
        "raise memory of ResourceQuota shop-1/q to 2560Mi",
    );
}

#[test]
fn clusters_that_are_not_chosen_have_a_rule_and_a_remedy() {
    let fleet = [plain("east", 4), plain("west", 9)];
    let row = |decision: &TargetChoice, name: &str| {
        let row = decision.verdicts.iter().find(|row| row.cluster == name).unwrap().clone();
        (row.verdict, row.rule, row.message, row.remedy)
    };
    let text = |text: &str| text.to_owned();
    assert_eq!(
        row(&decide(&EffectivePlacement::default_choice(), &fleet, &[]), "east"),
        (
            VerdictKind::Eligible,
            text("NumberOfClusters"),
            text("the placement chooses 1, and west ranked higher by free capacity or by the tie-break"),
            text("annotate the namespace with holon.dev/placement=east")
        )
    );
    assert_eq!(
        row(&decide(&placed(json!({ "numberOfClusters": 1 })), &fleet, &[("east", 6)]), "west"),
        (
            VerdictKind::Eligible,
            text("NumberOfClusters"),
            text("the placement chooses 1, and the object is already on east"),
            text("set spec.numberOfClusters of Placement policy to 2")
        )
    );
    let candidates: Vec<Candidate> = fleet.iter().map(Candidate::new).collect();
    let whole = PlacementRequest { extent: Extent::Single, ..request(6) };
    assert_eq!(
        row(&choose(&annotated("*"), &whole, &candidates, &CurrentPlacement::default()), "east"),
        (
            VerdictKind::Eligible,
            text("NumberOfClusters"),
            text(
                "the object can run on one physical cluster only, and west ranked higher by free capacity or by the tie-break"
            ),
            text("annotate the namespace with holon.dev/placement=east")
        )
    );
    assert_eq!(
        row(&decide(&placed(json!({ "spread": [{ "label": "zone" }] })), &fleet, &[]), "west"),
        (
            VerdictKind::Rejected,
            text("NoSpreadLabel"),
            text("the physical cluster has no label zone, which spec.spread requires"),
            text("kubectl label physicalcluster west zone=…")
        )
    );
    let skewed = [("a", "x"), ("b", "x"), ("c", "y")]
        .map(|(name, zone)| cluster(name, json!({ "zone": zone }), json!({}), json!({})));
    let one_group = placed(json!({ "spread": [{ "label": "zone", "maxGroups": 1 }] }));
    assert_eq!(row(&decide(&one_group, &skewed, &[("a", 6)]), "c").1, "Spread");
    assert_eq!(row(&decide(&annotated("north"), &fleet, &[]), "north").1, "NotVisible");
    let cordoned = cluster("east", json!({}), json!({ "schedulable": false }), json!({}));
    assert_eq!(
        row(&decide(&annotated("*"), &[cordoned], &[("east", 6)]), "east"),
        (
            VerdictKind::Chosen,
            text("NotSchedulable"),
            text(
                "kept on its current target, although the physical cluster is cordoned: spec.schedulable is false"
            ),
            text("")
        )
    );
    let unused =
        placed(json!({ "clusterSelector": { "names": ["east"] }, "fallbackGroups": [{ "name": "cloud" }] }));
    assert_eq!(row(&decide(&unused, &fleet, &[]), "west").1, "FallbackUnused");
}

#[test]
fn the_explain_table_has_aligned_columns_and_remedies() {
    let west = cluster("west", json!({ "region": "us" }), json!({}), json!({}));
    let status = json!({ "allocatable": { "cpu": 10, "memory": "64Gi" }, "requested": { "cpu": 4, "memory": "32Gi" } });
    let east = cluster("east", json!({ "region": "eu" }), json!({}), status);
    let table = explain::table(&decide(&annotated("region=eu"), &[west, east], &[]).verdicts);
    let expected = "\
CLUSTER  VERDICT   SCORE  FREE                FITS  WHY
east     Chosen    1000   cpu 6, memory 32Gi  12    chosen by the annotation holon.dev/placement=region=eu
west     Rejected  -      unknown             -     label region=us does not match region=eu
                                                    → kubectl label physicalcluster west region=eu --overwrite
";
    assert_eq!(table, expected, "{table}");
}
