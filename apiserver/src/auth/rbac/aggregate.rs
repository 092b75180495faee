//! A ClusterRole made of others: those whose labels its `aggregationRule` selects.

use openapi::select::LabelSelector;
use serde_json::Value;

/// The rules a role gathers from all roles there are; none if it gathers nothing but has its own. Those of one role
/// stay together, roles are in the order of their names for each selector, and the same rule comes once.
pub fn gathered(role: &Value, all: &[Value]) -> Option<Vec<Value>> {
    let selectors = role["aggregationRule"].as_object()?.get("clusterRoleSelectors");
    let selectors = selectors.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut all: Vec<&Value> = all.iter().filter(|other| name(other) != name(role)).collect();
    all.sort_by_key(|other| name(other));
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors.iter().filter_map(LabelSelector::from_value) {
        let labels = |other: &Value| other["metadata"]["labels"].clone();
        let chosen = all.iter().filter(|other| {
            let labels = labels(other);
            selector.matches(|label| labels.get(label).and_then(Value::as_str))
        });
        for rule in chosen.flat_map(|other| other["rules"].as_array().into_iter().flatten()) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

fn name(role: &Value) -> &str {
    role["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_role_gathers_the_rules_of_those_it_selects() {
        let role = |name: &str, label: &str, verbs: &[&str]| {
            let rules: Vec<_> = verbs.iter().map(|verb| json!({ "verbs": [verb] })).collect();
            json!({ "metadata": { "name": name, "labels": { label: "true" } }, "rules": rules })
        };
        let mut view = role("view", "to-view", &["own"]);
        let all = [
            role("z", "to-view", &["get"]),
            role("a", "to-view", &["list", "get"]),
            role("other", "to-edit", &["update"]),
            view.clone(),
        ];
        assert_eq!(gathered(&view, &all), None, "it has rules of its own");
        view["aggregationRule"] =
            json!({ "clusterRoleSelectors": [{ "matchLabels": { "to-view": "true" } }] });
        let verb = |verb: &str| json!({ "verbs": [verb] });
        assert_eq!(gathered(&view, &all), Some(vec![verb("list"), verb("get")]));
        view["aggregationRule"] = json!({ "clusterRoleSelectors": [
            { "matchLabels": { "to-edit": "true" } },
            { "matchExpressions": [{ "key": "to-view", "operator": "Exists" }] },
        ] });
        assert_eq!(gathered(&view, &all), Some(vec![verb("update"), verb("list"), verb("get")]));
        view["aggregationRule"] = json!({});
        assert_eq!(gathered(&view, &all), Some(Vec::new()));
    }
}
