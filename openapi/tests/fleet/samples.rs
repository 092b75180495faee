//! Objects of each kind with every field set.

use std::collections::BTreeMap;

use api::fleet::*;
use api::meta::quantity::{Quantities, QuantityText};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The samples of a kind.
pub(crate) struct Sample {
    pub(crate) resource: Resource,
    /// Together these have every field.
    pub(crate) objects: Vec<Value>,
    /// This has only the required fields.
    pub(crate) least: Value,
    /// Decodes an object into its type and encodes it again.
    pub(crate) read: fn(Value) -> serde_json::Result<Value>,
}

pub(crate) fn all() -> Vec<Sample> {
    vec![physical_cluster(), placement(), overriding(), distribution(), status_rule()]
}

fn sample<T: Serialize + DeserializeOwned>(resource: Resource, objects: Vec<T>, spec: Value) -> Sample {
    let complete_object = |mut object: Value| {
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        object["metadata"]["name"] = "sample".into();
        if resource.namespaced {
            object["metadata"]["namespace"] = "default".into();
        }
        object
    };
    let objects =
        objects.into_iter().map(|object| complete_object(serde_json::to_value(object).unwrap())).collect();
    let read = |value| serde_json::to_value(serde_json::from_value::<T>(value)?);
    Sample { resource, objects, least: complete_object(json!({ "spec": spec })), read }
}

fn object<Spec, Status>(spec: Spec, status: Status) -> FleetObject<Spec, Status> {
    FleetObject { metadata: Metadata::default(), spec, status: Some(status) }
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn texts(text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(text.to_owned(), text.to_owned())])
}

fn amounts() -> Quantities {
    Quantities::from([(text("cpu"), QuantityText::new("500m")), (text("memory"), QuantityText::new("16Gi"))])
}

fn conditions() -> Vec<Condition> {
    vec![Condition {
        r#type: text("Ready"),
        status: text("True"),
        reason: text("Beats"),
        message: text("heard from 2 s ago"),
        last_transition_time: text("2026-11-16T06:00:00Z"),
        observed_generation: Some(1),
    }]
}

fn labels() -> LabelSelector {
    let requirement = Requirement { key: text("env"), operator: Compare::NotIn, values: vec![text("dev")] };
    LabelSelector { match_labels: texts("region"), match_expressions: vec![requirement] }
}

fn clusters() -> ClusterSelector {
    let expressions = vec![text("cluster.status.nodes.ready > 3")];
    ClusterSelector { names: vec![text("east")], labels: labels(), expressions }
}

fn objects() -> ObjectSelector {
    let kinds = vec![GroupKind { group: text("apps"), kind: text("Deployment") }];
    ObjectSelector { kinds, names: vec![text("web")], labels: labels() }
}

fn counts() -> Counts {
    Counts { total: 6, applied: 5, available: 4, progressing: 1, degraded: 1, updated: 3 }
}

fn physical_cluster() -> Sample {
    let secret_ref =
        SecretReference { namespace: text("fleet"), name: text("east"), key: text("kubeconfig") };
    let with = |connection| {
        let spec = PhysicalClusterSpec {
            schedulable: false,
            drain: true,
            taints: vec![Taint { key: text("gpu"), value: text("only"), effect: Effect::NoExecute }],
            bounds: amounts(),
            dedicated_to: Some(text("root:team-a")),
            pod_security: Some(PodSecurity::Baseline),
            class_mappings: vec![ClassMapping {
                kind: ClassKind::PriorityClass,
                from: text("high"),
                to: text("tenant-high"),
            }],
            connection,
        };
        let quota = Quota { namespace: text("shop"), name: text("cpu"), hard: amounts(), used: amounts() };
        let kind = ServedKind {
            group: text("apps"),
            kind: text("Deployment"),
            resource: text("deployments"),
            namespaced: true,
            versions: vec![text("v1")],
        };
        let status = PhysicalClusterStatus {
            observed_generation: Some(1),
            conditions: conditions(),
            mailbox: Some(text("~bbbbbbbbbbbbbbbc")),
            uid: Some(text("a2f1")),
            version: Some(text("v1.36.4")),
            last_heartbeat_time: Some(text("2026-11-16T06:00:00Z")),
            nodes: Some(Nodes { total: 3, ready: 2 }),
            capacity: amounts(),
            allocatable: amounts(),
            requested: amounts(),
            quotas: vec![quota],
            kinds: vec![kind],
            classes: vec![ServedClasses {
                kind: ClassKind::StorageClass,
                names: vec![text("fast")],
                truncated: true,
            }],
        };
        object(spec, status)
    };
    let objects = vec![with(Connection::Push(Push { secret_ref })), with(Connection::Pull(Pull {}))];
    sample(PhysicalCluster::RESOURCE, objects, json!({}))
}

fn placement() -> Sample {
    let toleration = Toleration {
        key: text("gpu"),
        operator: Operator::Exists,
        value: text("only"),
        effect: Some(Effect::NoExecute),
        toleration_seconds: Some(300),
    };
    let spread =
        Spread { label: text("region"), min_groups: Some(2), max_groups: Some(3), max_skew: Some(1) };
    let rollout = Rollout {
        max_concurrency: Some(Portion::Number(1)),
        min_success_time: Some("90s".parse().unwrap()),
        progress_deadline: Some("1h30m".parse().unwrap()),
        max_failures: Some(Portion::Percent(text("25%"))),
    };
    let spec = PlacementSpec {
        priority: 7,
        namespace_selector: labels(),
        object_selector: objects(),
        cluster_selector: clusters(),
        number_of_clusters: Some(2),
        spread: vec![spread],
        tolerations: vec![toleration],
        division: Division::Duplicate,
        weights: Weights::Static,
        shares: vec![ShareRule { cluster_selector: clusters(), weight: Some(2), min: Some(1), max: Some(5) }],
        fallback_groups: vec![FallbackGroup { name: text("cloud"), cluster_selector: clusters() }],
        rollout: Some(rollout),
    };
    let status =
        PlacementStatus { observed_generation: Some(1), conditions: conditions(), counts: Some(counts()) };
    sample(Placement::RESOURCE, vec![object(spec, status)], json!({}))
}

fn overriding() -> Sample {
    let container = Some(text("web"));
    let variable = Variable { name: text("REGION"), value: text("eu") };
    let table = || Some(Table { set: texts("region"), remove: vec![text("old")] });
    let step = PatchStep {
        op: Operation::Add,
        path: text("/spec/paused"),
        from: Some(text("/spec/other")),
        value: Some(json!({ "any": [1, "two"] })),
    };
    let computed = Computed { path: text("/spec/replicas"), expression: text("object.spec.replicas * 2") };
    let rule = OverrideRule {
        cluster_selector: clusters(),
        images: vec![Image {
            container: container.clone(),
            registry: Some(text("registry.example")),
            tag: Some(text("1.2")),
        }],
        env: vec![Environment {
            container: container.clone(),
            set: vec![variable],
            remove: vec![text("DEBUG")],
        }],
        args: vec![Arguments { container, remove: vec![text("-v")], append: vec![text("-q")] }],
        labels: table(),
        annotations: table(),
        merge_patch: json!({ "spec": { "paused": true } }).as_object().cloned(),
        json_patch: vec![step],
        computed: vec![computed],
    };
    let spec = OverrideSpec {
        priority: 7,
        namespace_selector: labels(),
        object_selector: objects(),
        rules: vec![rule],
    };
    let status = OverrideStatus { observed_generation: Some(1), conditions: conditions() };
    sample(Override::RESOURCE, vec![object(spec, status)], json!({ "rules": [{}] }))
}

fn distribution() -> Sample {
    let spec = DistributionSpec {
        object: ObjectReference {
            api_version: text("apps/v1"),
            kind: text("Deployment"),
            name: text("web"),
            uid: text("a2f1"),
        },
        chosen_by: Chosen { source: Source::Annotation, name: text("region=eu") },
        total: Some(10),
        pending: 1,
        targets: vec![Target { cluster: text("east"), role: Role::Arriving, share: Some(9) }],
    };
    let verdict = Verdict {
        cluster: text("west"),
        verdict: VerdictKind::Rejected,
        rule: text("capacity"),
        message: text("no room"),
        score: Some(3),
        capacity: Some(Capacity { free: amounts(), each: amounts(), fits: Some(0) }),
        remedy: text("free 500m of cpu"),
    };
    let report = TargetReport {
        cluster: text("east"),
        applied: true,
        updated: false,
        health: Health::Progressing,
        stale: true,
        message: text("3 of 9 are ready"),
        last_report_time: Some(text("2026-11-16T06:00:00Z")),
    };
    let value = TargetValue { cluster: text("east"), value: json!({ "phase": "Green" }) };
    let status = DistributionStatus {
        observed_generation: Some(1),
        conditions: conditions(),
        counts: Some(counts()),
        verdicts: vec![verdict],
        targets: vec![report],
        differences: vec![FieldDifference { path: text("/status/phase"), values: vec![value] }],
    };
    let least = json!({
        "object": { "apiVersion": "v1", "kind": "Secret", "name": "key", "uid": "1" },
        "chosenBy": { "source": "Default" },
    });
    sample(Distribution::RESOURCE, vec![object(spec, status)], least)
}

fn status_rule() -> Sample {
    let named = || vec![NamedExpression { name: text("phase"), expression: text("target.status.phase") }];
    let rows = RowsRule {
        path: text("/status/phases"),
        filter: Some(text("has(target.status.phase)")),
        group_by: named(),
        columns: named(),
    };
    let field =
        FieldRule { path: text("/status/ready"), expression: text("sum(targets.map(t, t.status.ready))") };
    let spec = StatusRuleSpec {
        target: GroupKind { group: text("shop.example"), kind: text("Cart") },
        fields: vec![field],
        rows: vec![rows],
    };
    let policy_error = PolicyError {
        field: text("spec.fields[0].expression"),
        line: 1,
        column: 5,
        message: text("no such field"),
    };
    let status = StatusRuleStatus {
        observed_generation: Some(1),
        conditions: conditions(),
        errors: vec![policy_error],
    };
    sample(StatusRule::RESOURCE, vec![object(spec, status)], json!({ "target": { "kind": "Cart" } }))
}
