//! One rule of a role: verbs on resources or on paths.

use serde::{Deserialize, Deserializer, Serialize};

use crate::request::attributes::{Attributes, ResourceAttributes};

/// Matches every verb, group, resource or path.
pub(crate) const ANY: &str = "*";

/// A rule as in objects.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "texts")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Parses a list that may be missing or null.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Rule {
    pub fn allows(&self, attributes: &Attributes) -> bool {
        match attributes {
            Attributes::Resource(attributes) => self.allows_resource(attributes),
            Attributes::Path { path, verb } => {
                names(&self.verbs, verb) && self.paths.iter().any(|rule| leads_to(rule, path))
            }
        }
    }

    fn allows_resource(&self, attributes: &ResourceAttributes) -> bool {
        names(&self.verbs, &attributes.verb)
            && names(&self.api_groups, &attributes.group)
            && self
                .resources
                .iter()
                .any(|rule| is_resource(rule, &attributes.resource, &attributes.subresource))
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }
}

/// Reports whether a list contains a value or `*`.
fn names(list: &[String], value: &str) -> bool {
    list.iter().any(|listed| listed == ANY || listed == value)
}

/// Reports whether a rule names a resource. `*` is every resource and subresource, `*/scale` that subresource of every
/// resource. `pods/*` matches only itself.
fn is_resource(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == ANY || subresource.is_empty() {
        return rule == ANY || rule == resource;
    }
    let of = rule.strip_suffix(subresource).and_then(|prefix| prefix.strip_suffix('/'));
    of.is_some_and(|of| of == ANY || of == resource)
}

/// Reports whether a rule's path matches, exactly or, with a star at its end, as a prefix.
pub(super) fn leads_to(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with(ANY) && path.starts_with(rule.trim_end_matches(ANY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Parses `get apps deployments/scale web` or `get /path`.
    fn attributes(text: &str) -> Attributes {
        let fields: Vec<&str> = text.split(' ').collect();
        if fields[1].starts_with('/') {
            return Attributes::Path { verb: fields[0].to_owned(), path: fields[1].to_owned() };
        }
        let (resource, subresource) = fields[2].split_once('/').unwrap_or((fields[2], ""));
        Attributes::Resource(ResourceAttributes {
            verb: fields[0].to_owned(),
            group: fields[1].trim_matches('-').to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: fields.get(3).unwrap_or(&"").to_string(),
            ..ResourceAttributes::default()
        })
    }

    #[test]
    fn a_rule_allows_only_the_requests_it_names() {
        let check = |rule: serde_json::Value, allowed: &[&str], denied: &[&str]| {
            let rule: Rule = serde_json::from_value(rule).unwrap();
            for (texts, expected) in [(allowed, true), (denied, false)] {
                for text in texts {
                    assert_eq!(rule.allows(&attributes(text)), expected, "{rule:?} and {text}");
                }
            }
        };
        check(
            json!({ "verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"] }),
            &["get - pods", "list - pods x", "get - pods/log a"],
            &["watch - pods", "get apps pods", "get - pods/exec", "get - podss", "get /pods"],
        );
        check(
            json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }),
            &["get - pods", "fly apps birds/wings x"],
            &["get /", "get /metrics"],
        );
        check(
            json!({ "verbs": ["update"], "apiGroups": ["apps"], "resources": ["*/scale"] }),
            &["update apps deployments/scale", "update apps x/scale y"],
            &["update apps deployments", "update apps scale", "update apps deployments/status"],
        );
        check(
            json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["pods/*"] }),
            &["get - pods/*"],
            &["get - pods/log", "get - pods"],
        );
        check(
            json!({ "verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"] }),
            &["get - secrets a", "get - secrets b"],
            &["get - secrets", "get - secrets c"],
        );
        check(
            json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*", "/api*"], "resources": null }),
            &["get /healthz", "get /logs/", "get /logs/a/b", "get /api", "get /apis/apps"],
            &["get /healthz/", "get /logs", "post /healthz", "get - healthz"],
        );
        check(json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }), &["get /", "post /x"], &["get - pods"]);
        check(json!({}), &[], &["get - pods", "get /"]);
    }
}
