//! Aggregated ClusterRoles: their rules are those of all roles that their `aggregationRule` selects.
//!
//! Aggregated roles may select one another, also in a cycle. The result depends only on the roles with rules of their
//! own, not on previously aggregated rules: so there is one result, and writing it changes nothing. (Two roles that
//! copied each other's rules used to swap them forever.)

use std::collections::HashSet;

use api::meta::selector::LabelSelector;
use serde_json::Value;

/// Returns the aggregated rules of each role; None for a role without `aggregationRule`. Rules of one role stay
/// together, selected roles are ordered by name for each selector, and duplicates are removed.
pub fn aggregated_rules(all: &[Value]) -> Vec<Option<Vec<Value>>> {
    let mut by_name: Vec<usize> = (0..all.len()).collect();
    by_name.sort_by_key(|at| name(&all[*at]));
    let sources: Vec<_> = all.iter().map(|role| sources(role, all, &by_name)).collect();
    let one = |at: usize| sources[at].as_ref().map(|_| rules(at, all, &sources));
    (0..all.len()).map(one).collect()
}

/// Returns the roles that a role selects. None if it has no `aggregationRule`.
fn sources(role: &Value, all: &[Value], by_name: &[usize]) -> Option<Vec<usize>> {
    let selectors = role["aggregationRule"].as_object()?.get("clusterRoleSelectors");
    let selectors = selectors.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for selector in selectors.iter().filter_map(LabelSelector::from_value) {
        let chosen = by_name.iter().copied().filter(|at| {
            let labels = &all[*at]["metadata"]["labels"];
            selector.matches(|label| labels.get(label).and_then(Value::as_str))
        });
        found.extend(chosen.filter(|at| name(&all[*at]) != name(role)));
    }
    Some(found)
}

/// Returns the aggregated rules of a role: those of all roles with own rules that are reachable from it.
fn rules(from: usize, all: &[Value], sources: &[Option<Vec<usize>>]) -> Vec<Value> {
    let (mut visited, mut added, mut rules) = (HashSet::from([from]), HashSet::new(), Vec::new());
    let next = |at: usize| sources[at].iter().flatten().rev().copied();
    let mut waiting: Vec<usize> = next(from).collect();
    while let Some(at) = waiting.pop() {
        if !visited.insert(at) {
            continue;
        }
        if sources[at].is_some() {
            waiting.extend(next(at));
            continue;
        }
        for rule in all[at]["rules"].as_array().into_iter().flatten() {
            if added.insert(rule.to_string()) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

/// Reports whether two lists have the same rules in any order.
pub fn are_same(one: &[Value], other: &[Value]) -> bool {
    let texts = |rules: &[Value]| rules.iter().map(Value::to_string).collect::<HashSet<_>>();
    one == other || texts(one) == texts(other)
}

fn name(role: &Value) -> &str {
    role["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_role_aggregates_the_rules_of_the_roles_it_selects() {
        let role = |name: &str, label: &str, verbs: &[&str]| {
            let rules: Vec<_> = verbs.iter().map(|verb| json!({ "verbs": [verb] })).collect();
            json!({ "metadata": { "name": name, "labels": { label: "true" } }, "rules": rules })
        };
        let mut view = role("view", "to-view", &["own"]);
        let others = [
            role("z", "to-view", &["get"]),
            role("a", "to-view", &["list", "get"]),
            role("other", "to-edit", &["update"]),
        ];
        let aggregated_rules =
            |role: &Value| aggregated_rules(&[&others[..], std::slice::from_ref(role)].concat()).remove(3);
        assert_eq!(aggregated_rules(&view), None, "a role without an aggregation rule");
        view["aggregationRule"] =
            json!({ "clusterRoleSelectors": [{ "matchLabels": { "to-view": "true" } }] });
        let verb = |verb: &str| json!({ "verbs": [verb] });
        assert_eq!(aggregated_rules(&view), Some(vec![verb("list"), verb("get")]));
        view["aggregationRule"] = json!({ "clusterRoleSelectors": [
            { "matchLabels": { "to-edit": "true" } },
            { "matchExpressions": [{ "key": "to-view", "operator": "Exists" }] },
        ] });
        assert_eq!(aggregated_rules(&view), Some(vec![verb("update"), verb("list"), verb("get")]));
        view["aggregationRule"] = json!({});
        assert_eq!(aggregated_rules(&view), Some(Vec::new()));
    }

    /// Regression: two cluster roles that selected each other swapped their rules forever, with a write each time.
    #[test]
    fn roles_that_select_each_other_converge() {
        let ring = |name: &str, selects: &str, verb: &str| {
            json!({
                "metadata": { "name": name, "labels": { "is": name } },
                "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "is": selects } }] },
                "rules": [{ "verbs": [verb] }],
            })
        };
        let source =
            json!({ "metadata": { "name": "s", "labels": { "is": "a" } }, "rules": [{ "verbs": ["own"] }] });
        let mut roles = vec![ring("a", "b", "one"), ring("b", "c", "two"), ring("c", "a", "three"), source];
        for _ in 0..2 {
            let found = aggregated_rules(&roles);
            for (role, rules) in roles.iter_mut().zip(found).take(3) {
                assert_eq!(rules, Some(vec![json!({ "verbs": ["own"] })]), "{role}");
                role["rules"] = rules.into();
            }
        }
        assert!(are_same(&[json!(1), json!(2)], &[json!(2), json!(1)]));
        assert!(!are_same(&[json!(1)], &[json!(2), json!(1)]));
    }
}
