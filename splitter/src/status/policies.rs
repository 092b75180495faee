//! The status of Placements, Overrides and StatusRules: whether they are valid, and counts of their objects.
//!
//! Policies are read for every object they select, and an invalid expression fails there, for every object. The author
//! of a policy looks at the policy. So each is compiled once more when it changes, and its status has the errors with
//! line and column.

use std::collections::HashMap;

use api::cluster::Id;
use api::fleet::{
    ClusterSelector, Condition, Counts, Distribution, FleetObject, Override, OverrideSpec, OverrideStatus,
    Placement, PlacementSpec, PlacementStatus, PolicyError, Source, StatusRule, StatusRuleSpec,
    StatusRuleStatus,
};
use api::meta::time;
use controller::informer::{Key, View};
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch};
use expression::Program;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controller::{Splitter, lock};
use crate::snapshot::ConfigCaches;
use crate::status::status_rule::CompiledStatusRule;

/// The kind of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PolicyKind {
    Placement,
    Override,
    StatusRule,
}

impl PolicyKind {
    /// The kind of policy in a cache, if it is one.
    pub(crate) fn of(own: &ConfigCaches, view: &View) -> Option<PolicyKind> {
        let rows = [
            (&own.placements, PolicyKind::Placement),
            (&own.overrides, PolicyKind::Override),
            (&own.status_rules, PolicyKind::StatusRule),
        ];
        rows.into_iter().find(|(of, _)| of.kind == view.kind).map(|(_, policy)| policy)
    }
}

/// Writes the status of a policy.
pub(crate) async fn reconcile(
    splitter: &Splitter,
    policy: PolicyKind,
    cluster: Id,
    name: &str,
) -> Result<Outcome, CallError> {
    let own = &splitter.caches.config;
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: name.to_owned() };
    match policy {
        PolicyKind::Placement => {
            let counts = lock(&splitter.placement_counts).of(cluster, name);
            write_status(splitter, &own.placements, &key, |policy: &Placement, before: &PlacementStatus| {
                PlacementStatus {
                    observed_generation: policy.metadata.generation,
                    conditions: vec![accepted(&before.conditions, &placement_errors(&policy.spec))],
                    counts: Some(counts),
                }
            })
            .await
        }
        PolicyKind::Override => {
            write_status(splitter, &own.overrides, &key, |policy: &Override, before: &OverrideStatus| {
                OverrideStatus {
                    observed_generation: policy.metadata.generation,
                    conditions: vec![accepted(&before.conditions, &override_errors(&policy.spec))],
                }
            })
            .await
        }
        PolicyKind::StatusRule => {
            write_status(
                splitter,
                &own.status_rules,
                &key,
                |policy: &StatusRule, before: &StatusRuleStatus| {
                    let errors = rule_errors(&policy.spec);
                    StatusRuleStatus {
                        observed_generation: policy.metadata.generation,
                        conditions: vec![accepted(&before.conditions, &errors)],
                        errors,
                    }
                },
            )
            .await
        }
    }
}

/// Writes a status if it changed.
async fn write_status<
    Spec: DeserializeOwned + Default,
    Status: Serialize + DeserializeOwned + Default + PartialEq,
>(
    splitter: &Splitter,
    view: &View,
    key: &Key,
    status: impl Fn(&FleetObject<Spec, Status>, &Status) -> Status,
) -> Result<Outcome, CallError> {
    let Some(policy) = splitter.caches.get_own::<FleetObject<Spec, Status>>(view, key) else {
        return Ok(Outcome::Done);
    };
    let nothing = Status::default();
    let now = status(&policy, policy.status.as_ref().unwrap_or(&nothing));
    if policy.status.as_ref() == Some(&now) {
        return Ok(Outcome::Done);
    }
    let place = ObjectPath::new(&view.kind, "", &key.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": policy.metadata.uid },
        { "op": "add", "path": "/status", "value": now },
    ]);
    let here = splitter.caches.server.within(key.cluster.unwrap_or(Id::ROOT));
    here.patch(place, Patch::Json, &change).await?;
    Ok(Outcome::Done)
}

fn accepted(before: &[Condition], errors: &[PolicyError]) -> Condition {
    let fields = match errors.first() {
        None => ("Accepted", "True", "Accepted", String::new()),
        Some(first) => ("Accepted", "False", "InvalidExpression", error_message(first)),
    };
    Condition::since(before, (fields.0, fields.1, fields.2, &fields.3), &time::now())
}

/// The limit for all expressions of a policy. They are compiled during the request that writes it.
const EXPRESSIONS_MAX_BYTES: usize = 64 * 1024;
/// The limit for their number. Compiling one takes some 100 µs, whatever its length.
const EXPRESSIONS_MAX: usize = 256;

/// The errors in the expressions of a policy that is about to be written. `plural` is the resource; other resources have
/// none.
pub fn errors(plural: &str, policy: &Value) -> Vec<PolicyError> {
    fn spec<T: DeserializeOwned + Default>(policy: &Value) -> T {
        serde_json::from_value(policy["spec"].clone()).unwrap_or_default()
    }
    let is_policy = [Placement::RESOURCE, Override::RESOURCE, StatusRule::RESOURCE];
    if !is_policy.iter().any(|row| row.plural == plural) {
        return Vec::new();
    }
    let texts = expressions(&policy["spec"]);
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes > EXPRESSIONS_MAX_BYTES || texts.len() > EXPRESSIONS_MAX {
        let message = format!(
            "the policy has {} expressions of {bytes} bytes in total; at most {EXPRESSIONS_MAX} expressions of {EXPRESSIONS_MAX_BYTES} bytes are allowed",
            texts.len()
        );
        return vec![PolicyError { field: "spec".to_owned(), line: 1, column: 1, message }];
    }
    match plural {
        _ if plural == Placement::RESOURCE.plural => placement_errors(&spec(policy)),
        _ if plural == Override::RESOURCE.plural => override_errors(&spec(policy)),
        _ => rule_errors(&spec(policy)),
    }
}

/// All expressions of a policy.
fn expressions(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let mut found = Vec::new();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("expression", Value::String(text)) => found.push(text.as_str()),
                    ("expressions", Value::Array(list)) => {
                        found.extend(list.iter().filter_map(Value::as_str))
                    }
                    (_, value) => found.extend(expressions(value)),
                }
            }
            found
        }
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

/// The message of an error.
pub(crate) fn error_message(error: &PolicyError) -> String {
    let PolicyError { field, line, column, message } = error;
    format!("{field}: {line}:{column}: {message}")
}

fn rule_errors(spec: &StatusRuleSpec) -> Vec<PolicyError> {
    CompiledStatusRule::read(spec).err().unwrap_or_default()
}

fn placement_errors(spec: &PlacementSpec) -> Vec<PolicyError> {
    let groups = spec.fallback_groups.iter().enumerate();
    let groups = groups.map(|(at, group)| (format!("spec.fallbackGroups[{at}]"), &group.cluster_selector));
    let shares = spec.shares.iter().enumerate();
    let shares = shares.map(|(at, share)| (format!("spec.shares[{at}]"), &share.cluster_selector));
    let all = [("spec".to_owned(), &spec.cluster_selector)].into_iter().chain(groups).chain(shares);
    all.flat_map(|(at, selector)| selector_errors(&at, selector)).collect()
}

fn override_errors(spec: &OverrideSpec) -> Vec<PolicyError> {
    let mut errors = Vec::new();
    for (at, rule) in spec.rules.iter().enumerate() {
        let at = format!("spec.rules[{at}]");
        errors.extend(selector_errors(&at, &rule.cluster_selector));
        for (number, computed) in rule.computed.iter().enumerate() {
            let field = format!("{at}.computed[{number}].expression");
            errors.extend(error(field, &computed.expression, &["object", "cluster"]));
        }
    }
    errors
}

fn selector_errors(at: &str, selector: &ClusterSelector) -> Vec<PolicyError> {
    let expressions = selector.expressions.iter().enumerate();
    let read = |(number, text): (usize, &String)| {
        error(format!("{at}.clusterSelector.expressions[{number}]"), text, &["cluster"])
    };
    expressions.filter_map(read).collect()
}

fn error(field: String, text: &str, variables: &[&str]) -> Option<PolicyError> {
    let found = Program::compile(text, variables).err()?;
    let number = |number: usize| i64::try_from(number).unwrap_or(1);
    Some(PolicyError {
        field,
        line: number(found.line),
        column: number(found.column),
        message: found.message,
    })
}

/// The counts of all objects of each Placement, updated as their records change.
#[derive(Debug, Default)]
pub(crate) struct PlacementCounts {
    /// By record: its Placement and its counts.
    records: HashMap<Key, (String, Counts)>,
    totals: HashMap<(Id, String), Counts>,
}

impl PlacementCounts {
    /// Updates the counts with a record. None: it was deleted. Returns the Placements whose counts changed.
    pub(crate) fn put(&mut self, key: &Key, record: Option<&Distribution>) -> Vec<String> {
        let by = record.filter(|record| record.spec.chosen_by.source == Source::Placement);
        let now = by.map(|record| {
            let counts = record.status.as_ref().and_then(|status| status.counts).unwrap_or_default();
            (record.spec.chosen_by.name.clone(), counts)
        });
        let before = match now.clone() {
            Some(now) => self.records.insert(key.clone(), now),
            None => self.records.remove(key),
        };
        if before == now {
            return Vec::new();
        }
        let cluster = key.cluster.unwrap_or(Id::ROOT);
        let mut changed = Vec::new();
        for ((name, counts), sign) in before.into_iter().map(|one| (one, -1)).chain(now.map(|one| (one, 1))) {
            add(self.totals.entry((cluster, name.clone())).or_default(), counts, sign);
            changed.push(name);
        }
        changed
    }

    fn of(&self, cluster: Id, name: &str) -> Counts {
        self.totals.get(&(cluster, name.to_owned())).copied().unwrap_or_default()
    }
}

fn add(total: &mut Counts, counts: Counts, sign: i64) {
    total.total += sign * counts.total;
    total.applied += sign * counts.applied;
    total.available += sign * counts.available;
    total.progressing += sign * counts.progressing;
    total.degraded += sign * counts.degraded;
    total.updated += sign * counts.updated;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(placement: &str, total: i64) -> Distribution {
        serde_json::from_value(json!({
            "metadata": { "name": "deployment-web" },
            "spec": {
                "object": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1" },
                "chosenBy": { "source": "Placement", "name": placement },
            },
            "status": { "counts": { "total": total, "available": 1 } },
        }))
        .unwrap()
    }

    #[test]
    fn placement_counts_follow_changed_records() {
        let (mut placement_counts, at) = (
            PlacementCounts::default(),
            Key { cluster: Some(Id::ROOT), ..Key::new("shop", "deployment-web") },
        );
        let totals = |placement_counts: &PlacementCounts, name: &str| {
            (placement_counts.of(Id::ROOT, name).total, placement_counts.of(Id::ROOT, name).available)
        };
        assert_eq!(placement_counts.put(&at, Some(&record("all", 3))), ["all"]);
        assert_eq!(
            placement_counts.put(&at, Some(&record("all", 3))),
            Vec::<String>::new(),
            "nothing is counted twice"
        );
        assert_eq!(placement_counts.put(&Key::new("shop", "other"), Some(&record("all", 2))), ["all"]);
        assert_eq!(totals(&placement_counts, "all"), (5, 2));
        assert_eq!(placement_counts.put(&at, Some(&record("eu", 3))), ["all", "eu"]);
        assert_eq!((totals(&placement_counts, "all"), totals(&placement_counts, "eu")), ((2, 1), (3, 1)));
        assert_eq!(placement_counts.put(&at, None), ["eu"]);
        assert_eq!(totals(&placement_counts, "eu"), (0, 0));
    }

    #[test]
    fn expression_errors_have_field_line_and_column() {
        let spec: PlacementSpec = serde_json::from_value(json!({
            "clusterSelector": { "expressions": ["cluster.metadata.name == 'a'"] },
            "fallbackGroups": [{ "clusterSelector": { "expressions": ["true", "true &&\n  klaster.x"] } }],
        }))
        .unwrap();
        let errors = placement_errors(&spec);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].field, "spec.fallbackGroups[0].clusterSelector.expressions[1]");
        assert_eq!((errors[0].line, errors[0].column), (2, 3), "{errors:?}");
    }
}
