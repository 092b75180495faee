//! The bootstrap roles and their bindings, from the table `roles.txt`.

use serde_json::{Value, json};

use crate::rbac::{GROUP, aggregate};

const TABLE: &str = include_str!("roles.txt");
const LABELS: &str = "rbac.authorization.k8s.io";

/// Returns all objects of the table, each with its collection.
pub(super) fn objects() -> Vec<(&'static str, Value)> {
    let paragraphs = TABLE.split("\n\n").map(|text| text.lines().filter(|line| !line.starts_with('#')));
    let mut objects: Vec<_> = paragraphs.flat_map(|mut lines| read(lines.next(), lines)).collect();
    aggregate_rules(&mut objects);
    objects
}

/// Parses one paragraph: a role, and its binding if it has one.
fn read<'a>(head: Option<&str>, lines: impl Iterator<Item = &'a str>) -> Vec<(&'static str, Value)> {
    let Some((kind, place)) = head.and_then(|head| head.split_once(' ')) else { return Vec::new() };
    let (namespace, name) = match kind {
        "Role" => place.split_once('/').map_or((None, place), |(namespace, name)| (Some(namespace), name)),
        _ => (None, place),
    };
    let mut role = object(kind, namespace, name);
    let mut binding = object(&format!("{kind}Binding"), namespace, name);
    binding["roleRef"] = json!({ "apiGroup": GROUP, "kind": kind, "name": name });
    let mut is_bound = false;
    for line in lines {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            ["label", label] => role["metadata"]["labels"][format!("{LABELS}/{label}")] = "true".into(),
            ["aggregate", label] => {
                let selector = json!({ "matchLabels": { format!("{LABELS}/{label}"): "true" } });
                role["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
            }
            ["binding-name", name] => binding["metadata"]["name"] = (*name).into(),
            ["no-subjects"] => is_bound = true,
            ["to", kind, name] => {
                is_bound = true;
                push(&mut binding["subjects"], subject(kind, name));
            }
            fields => push(&mut role["rules"], rule(fields)),
        }
    }
    let (roles, bindings) = match namespace {
        Some(_) => ("roles", "rolebindings"),
        None => ("clusterroles", "clusterrolebindings"),
    };
    let binding = is_bound.then_some((bindings, binding));
    [(roles, role)].into_iter().chain(binding).collect()
}

fn object(kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "annotations": { "rbac.authorization.kubernetes.io/autoupdate": "true" },
        "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" },
    });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata })
}

fn subject(kind: &str, name: &str) -> Value {
    match (kind, name.split_once('/')) {
        ("account", Some((namespace, name))) => {
            json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
        }
        ("group", _) => json!({ "apiGroup": GROUP, "kind": "Group", "name": name }),
        _ => json!({ "apiGroup": GROUP, "kind": "User", "name": name }),
    }
}

fn rule(fields: &[&str]) -> Value {
    fn list(values: &str) -> Vec<&str> {
        values.split(',').map(|value| if value == "-" { "" } else { value }).collect()
    }
    match fields {
        [verbs, groups, resources] if !groups.starts_with('/') => {
            json!({ "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources) })
        }
        [verbs, groups, resources, names] if !groups.starts_with('/') => json!({
            "verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources),
            "resourceNames": list(names),
        }),
        [verbs, paths @ ..] => json!({ "verbs": list(verbs), "nonResourceURLs": paths }),
        [] => Value::Null,
    }
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        _ => *list = json!([item]),
    }
}

/// Sets the rules of aggregated roles.
fn aggregate_rules(objects: &mut [(&'static str, Value)]) {
    let mut roles: Vec<&mut Value> =
        objects.iter_mut().filter(|(plural, _)| *plural == "clusterroles").map(|(_, role)| role).collect();
    let all: Vec<Value> = roles.iter().map(|role| (**role).clone()).collect();
    for (role, rules) in roles.iter_mut().zip(aggregate::aggregated_rules(&all)) {
        if let Some(rules) = rules {
            role["rules"] = rules.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_defines_roles_and_their_bindings() {
        let objects = objects();
        let count = |plural: &str| objects.iter().filter(|(of, _)| *of == plural).count();
        let counts = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"].map(count);
        assert_eq!(counts, [70, 50, 7, 7]);
        let find = |plural: &str, name: &str| {
            let found =
                objects.iter().find(|(of, object)| *of == plural && object["metadata"]["name"] == name);
            found.map(|(_, object)| object.clone()).unwrap_or_default()
        };
        let admin = find("clusterroles", "cluster-admin");
        let everything = json!([
            { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
            { "verbs": ["*"], "nonResourceURLs": ["*"] },
        ]);
        assert_eq!(admin["rules"], everything);
        let reads =
            json!({ "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"] });
        for name in ["view", "edit", "admin"] {
            let role = find("clusterroles", name);
            assert!(role["rules"].as_array().unwrap().contains(&reads), "{name}: {role}");
        }
        assert!(objects.iter().all(|(_, object)| object["rules"] != json!([null])));
    }
}
