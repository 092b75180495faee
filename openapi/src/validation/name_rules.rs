//! The rules for names of objects, by kind.

use crate::catalog::resource_info::ResourceInfo;
use crate::schema::Origin;
use api::meta::names::NameRule;

use NameRule::{Address, GeneratedSubdomain, Label, PathSegment};

/// Kinds whose names are not subdomains, by group and plural.
const RULES: &[(&str, &str, NameRule)] = &[
    // These names become parts of host names.
    ("", "namespaces", Label),
    ("", "services", Label),
    ("apps", "statefulsets", Label),
    ("", "events", PathSegment),
    ("", "replicationcontrollers", GeneratedSubdomain),
    ("resource.k8s.io", "deviceclasses", GeneratedSubdomain),
    ("apiregistration.k8s.io", "apiservices", PathSegment),
    ("certificates.k8s.io", "certificatesigningrequests", PathSegment),
    ("coordination.k8s.io", "leasecandidates", PathSegment),
    ("networking.k8s.io", "ipaddresses", Address),
    ("policy", "poddisruptionbudgets", PathSegment),
    ("rbac.authorization.k8s.io", "clusterrolebindings", PathSegment),
    ("rbac.authorization.k8s.io", "clusterroles", PathSegment),
    ("rbac.authorization.k8s.io", "rolebindings", PathSegment),
    ("rbac.authorization.k8s.io", "roles", PathSegment),
];

/// Returns the rule for names of a kind's objects. Those of a custom kind are subdomains.
pub fn name_rule(resource: &ResourceInfo) -> NameRule {
    if resource.origin == Origin::Custom {
        return NameRule::Subdomain;
    }
    let rule =
        RULES.iter().find(|(group, plural, _)| **group == *resource.group && **plural == *resource.plural);
    rule.map_or(NameRule::Subdomain, |(_, _, rule)| *rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    #[test]
    fn every_rule_names_an_existing_kind() {
        let exists = |group: &str, plural: &str| {
            catalog::built_in()
                .iter()
                .any(|resource| *resource.group == *group && *resource.plural == *plural)
        };
        // Served only in versions that this server does not have.
        let unserved = ["leasecandidates"];
        for (group, plural, _) in RULES {
            assert!(exists(group, plural) || unserved.contains(plural), "{plural}.{group}");
        }
    }

    #[test]
    fn most_names_are_subdomains() {
        let rule = |group, plural| name_rule(catalog::find(group, "v1", plural).unwrap());
        assert_eq!(rule("apps", "deployments"), NameRule::Subdomain);
        assert_eq!(rule("apps", "statefulsets"), Label);
        assert_eq!(rule("rbac.authorization.k8s.io", "roles"), PathSegment);
    }
}
