//! The roles of controllers in this process. Their requests are authorized like those of other clients.
//!
//! ```text
//!   everywhere                                 ◄ in every logical cluster, and in requests to all of them
//!     list,watch apps deployments
//!   root                                       ◄ in the root logical cluster only
//!     get,create coordination.k8s.io leases
//!   labelled holon.dev/mailbox-of              ◄ in logical clusters whose object has this label
//!     * * *
//!     but rbac.authorization.k8s.io            ◄ except this group, where a rule has a star; or `built-in` groups
//! ```
//!
//! A controller in the server's process works in all logical clusters, so no RBAC role of one of them can describe its
//! rights. Nor is it an administrator: a right that it lacks cannot be abused through it. Instead it has a controller
//! role: RBAC rules from a table, attached to its client in code. No client gets one over the network, by impersonation
//! or by its name.

use std::sync::Arc;

use api::cluster::Id;
use openapi::catalog;

use crate::rbac::Rule;
use crate::request::attributes::Attributes;

/// The grants of a controller, each with its scope.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerRole {
    grants: Vec<Grant>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Grant {
    place: GrantScope,
    rules: Vec<Rule>,
    /// Groups that a star does not include.
    but: Vec<String>,
}

/// The logical clusters in which a grant applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GrantScope {
    Everywhere,
    Root,
    /// Logical clusters whose object has this label.
    Labelled(String),
}

/// The error for a table that does not parse.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {text:?} is not a valid grant")]
pub struct ControllerRoleError {
    line: usize,
    text: String,
}

impl ControllerRole {
    /// Parses a table. Lines that begin with `#` are comments.
    pub fn read(table: &str) -> Result<ControllerRole, ControllerRoleError> {
        let mut grants: Vec<Grant> = Vec::new();
        let lines = table.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#'));
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = || ControllerRoleError { line: number + 1, text: line.to_owned() };
            let fields: Vec<&str> = line.split_whitespace().collect();
            let place = match (line.starts_with(' '), fields.as_slice()) {
                (false, ["everywhere"]) => Some(GrantScope::Everywhere),
                (false, ["root"]) => Some(GrantScope::Root),
                (false, ["labelled", label]) => Some(GrantScope::Labelled((*label).to_owned())),
                (false, _) => return Err(wrong()),
                (true, _) => None,
            };
            if let Some(place) = place {
                grants.push(Grant { place, rules: Vec::new(), but: Vec::new() });
                continue;
            }
            let grant = grants.last_mut().ok_or_else(wrong)?;
            match fields.as_slice() {
                ["but", groups] => grant.but.extend(list(groups).into_iter().flat_map(excluded_groups)),
                fields => grant.rules.push(rule(fields).ok_or_else(wrong)?),
            }
        }
        Ok(ControllerRole { grants })
    }

    /// Reports whether the grants with this scope allow a request.
    pub fn allows(&self, place: &GrantScope, attributes: &Attributes) -> bool {
        self.grants.iter().any(|grant| grant.place == *place && grant.allows(attributes))
    }

    /// Reports whether any grant depends on the labels of LogicalCluster objects.
    pub(crate) fn selects_labels(&self) -> bool {
        self.grants.iter().any(|grant| matches!(grant.place, GrantScope::Labelled(_)))
    }

    /// Returns the grants that apply in a logical cluster whose object has these labels.
    pub(crate) fn within(self: &Arc<Self>, id: Id, labels: &[String]) -> Granted {
        let counts = |grant: &Grant| match &grant.place {
            GrantScope::Everywhere => true,
            GrantScope::Root => id == Id::ROOT,
            GrantScope::Labelled(label) => labels.contains(label),
        };
        Granted { counts: self.grants.iter().map(counts).collect(), controller_role: self.clone() }
    }
}

impl Grant {
    fn allows(&self, attributes: &Attributes) -> bool {
        let is_excluded = |rule: &Rule| match attributes {
            Attributes::Resource(attributes) => {
                self.but.contains(&attributes.group) && !rule.api_groups.contains(&attributes.group)
            }
            Attributes::Path { .. } => false,
        };
        self.rules.iter().any(|rule| rule.allows(attributes) && !is_excluded(rule))
    }
}

/// A controller role as it applies in one logical cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    controller_role: Arc<ControllerRole>,
    /// For each grant, whether it applies.
    counts: Arc<[bool]>,
}

impl Granted {
    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        let grants = self.controller_role.grants.iter().zip(&*self.counts);
        grants.filter(|(_, counts)| **counts).any(|(grant, _)| grant.allows(attributes))
    }
}

fn list(fields: &str) -> Vec<String> {
    fields.split(',').map(|field| if field == "-" { String::new() } else { field.to_owned() }).collect()
}

/// Returns a group, or for `built-in` the groups of all built-in kinds.
fn excluded_groups(group: String) -> Vec<String> {
    match group.as_str() {
        "built-in" => catalog::built_in().iter().map(|resource| resource.group.to_string()).collect(),
        _ => vec![group],
    }
}

/// Parses `VERBS GROUPS RESOURCES [NAMES]` or `VERBS /PATH...`. A dash is the core group.
fn rule(fields: &[&str]) -> Option<Rule> {
    match fields {
        [verbs, paths @ ..] if paths.first()?.starts_with('/') => Some(Rule {
            verbs: list(verbs),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            ..Rule::default()
        }),
        [verbs, groups, resources, names @ ..] if names.len() < 2 => Some(Rule {
            verbs: list(verbs),
            api_groups: list(groups),
            resources: list(resources),
            resource_names: names.first().map(|names| list(names)).unwrap_or_default(),
            ..Rule::default()
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::attributes::ResourceAttributes;

    const TABLE: &str = "\
# What it is about.
everywhere
  list,watch - pods
  patch * */status
  but certificates.k8s.io

root
  get coordination.k8s.io leases one
labelled x/y
  * * *
  * /api /api/*
  but rbac.authorization.k8s.io
";

    fn attributes(verb: &str, group: &str, resource: &str, name: &str) -> Attributes {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            ..ResourceAttributes::default()
        })
    }

    #[test]
    fn a_controller_role_allows_the_rules_of_its_table_in_their_scope() {
        let controller_role = ControllerRole::read(TABLE).unwrap();
        let label = GrantScope::Labelled("x/y".to_owned());
        let check = |place: &GrantScope, attributes: Attributes, expected: bool| {
            assert_eq!(controller_role.allows(place, &attributes), expected, "{place:?} {attributes:?}");
        };
        let (everywhere, root) = (&GrantScope::Everywhere, &GrantScope::Root);
        check(everywhere, attributes("list", "", "pods", ""), true);
        check(everywhere, attributes("get", "", "pods", "a"), false);
        check(everywhere, attributes("patch", "apps", "deployments/status", "a"), true);
        check(everywhere, attributes("patch", "apps", "deployments", "a"), false);
        check(everywhere, attributes("patch", "certificates.k8s.io", "requests/status", "a"), false);
        check(root, attributes("get", "coordination.k8s.io", "leases", "one"), true);
        check(root, attributes("get", "coordination.k8s.io", "leases", "two"), false);
        check(everywhere, attributes("get", "coordination.k8s.io", "leases", "one"), false);
        check(&label, attributes("delete", "apps", "deployments", "a"), true);
        check(&label, attributes("create", "rbac.authorization.k8s.io", "roles", ""), false);
        check(&GrantScope::Labelled("x".to_owned()), attributes("get", "", "pods", "a"), false);
        let path = |path: &str| Attributes::Path { path: path.to_owned(), verb: "get".to_owned() };
        check(&label, path("/api/v1"), true);
        check(&label, path("/metrics"), false);
    }

    #[test]
    fn an_invalid_table_is_refused_by_its_line() {
        let check = |table: &str, line: usize| {
            assert_eq!(ControllerRole::read(table).unwrap_err().line, line, "{table}");
        };
        check("  get - pods", 1);
        check("everywhere\n  get", 2);
        check("nowhere", 1);
        check("everywhere\n  get - pods a b", 2);
    }
}
