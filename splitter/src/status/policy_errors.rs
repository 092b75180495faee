//! Errors in the expressions of policies, with line and column.

use api::fleet::{
    ClusterSelector, Override, OverrideSpec, Placement, PlacementSpec, PolicyError, StatusRule,
    StatusRuleSpec,
};
use expression::Program;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::status_rule::CompiledStatusRule;

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

pub(crate) fn rule_errors(spec: &StatusRuleSpec) -> Vec<PolicyError> {
    CompiledStatusRule::read(spec).err().unwrap_or_default()
}

pub(crate) fn placement_errors(spec: &PlacementSpec) -> Vec<PolicyError> {
    let groups = spec.fallback_groups.iter().enumerate();
    let groups = groups.map(|(at, group)| (format!("spec.fallbackGroups[{at}]"), &group.cluster_selector));
    let shares = spec.shares.iter().enumerate();
    let shares = shares.map(|(at, share)| (format!("spec.shares[{at}]"), &share.cluster_selector));
    let all = [("spec".to_owned(), &spec.cluster_selector)].into_iter().chain(groups).chain(shares);
    all.flat_map(|(at, selector)| selector_errors(&at, selector)).collect()
}

pub(crate) fn override_errors(spec: &OverrideSpec) -> Vec<PolicyError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
