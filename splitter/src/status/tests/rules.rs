//! StatusRules.

use api::fleet::StatusRuleSpec;

use super::*;

fn read(spec: Value) -> Result<CompiledStatusRule, Vec<PolicyError>> {
    let mut rule = json!({ "target": { "group": "example.com", "kind": "Widget" } });
    api::meta::merge_patch::merge(&mut rule, spec.clone());
    CompiledStatusRule::read(&serde_json::from_value::<StatusRuleSpec>(rule).unwrap())
}

fn widget() -> Value {
    json!({ "apiVersion": "example.com/v1", "kind": "Widget", "spec": { "want": 10 }, "status": { "old": true } })
}

fn apply(rule: &CompiledStatusRule) -> AggregatedStatus {
    let zone = |zone: &str| -> Labels { [("zone".to_owned(), zone.to_owned())].into() };
    let (object, eu, us) = (widget(), zone("eu"), zone("us"));
    let of = |ready: i64, ok: bool| json!({ "ready": ready, "ok": ok });
    let (a, b, c) = (of(1, true), of(2, false), of(4, true));
    let reports = [
        Report { labels: &eu, ..report("a", &a) },
        Report { labels: &us, ..report("b", &b) },
        Report { labels: &eu, stale: true, ..report("c", &c) },
    ];
    aggregate(&user_object(&object), &reports, Some(rule))
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
fn an_invalid_rule_is_reported_with_line_and_column_and_changes_nothing() {
    let errors = read(json!({
        "fields": [
            { "path": "/status/a", "expression": "sum(targets.map(t, t.status.ready)" },
            { "path": "/spec/b", "expression": "1" },
            { "path": "/status/c", "expression": "1 +\n  tragets" },
        ],
        "rows": [{ "path": "/status/d", "columns": [{ "name": "x", "expression": "target.cluster" }] }],
    }))
    .unwrap_err();
    let rows: Vec<(&str, i64, i64)> =
        errors.iter().map(|one| (one.field.as_str(), one.line, one.column)).collect();
    assert_eq!(
        rows,
        [
            ("spec.fields[0].expression", 1, 35),
            ("spec.fields[1].path", 1, 1),
            ("spec.fields[2].expression", 2, 3),
            ("spec.rows[0].columns[0].expression", 1, 1),
        ]
    );
    // An error that occurs only with these values.
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
