//! The roles and bindings of a logical cluster, indexed by subject.
//!
//! ```text
//!   own:        roles and bindings that this logical cluster has added, changed or deleted
//!   shared:     the bootstrap roles and bindings
//!   ──────────
//!   effective:  for each key the own entry, which may be a deletion; otherwise the shared one
//! ```
//!
//! A [`Policy`] is one of the two layers, [`Layers`] is both. A decision looks up the user and each group in the
//! bindings of the logical cluster and of one namespace. Its cost does not depend on the number of other bindings.

use std::collections::HashMap;
use std::sync::Arc;

use crate::rbac::object::{Binding, Role, SubjectName};
use crate::rbac::rule::Rule;
use crate::rbac::{Decision, GROUP, UserInfo};
use crate::request::attributes::Attributes;

/// The key of a role or binding. The namespace of cluster-scoped ones is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PolicyKey {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl PolicyKey {
    pub fn new(namespace: &str, name: &str) -> PolicyKey {
        PolicyKey { namespace: namespace.into(), name: name.into() }
    }
}

/// One layer of roles and bindings.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// None: deleted, even if the layer below has the role.
    roles: HashMap<PolicyKey, Option<Arc<Role>>>,
    bindings: HashMap<PolicyKey, Option<Arc<Binding>>>,
    /// By namespace.
    scopes: HashMap<Box<str>, Scope>,
}

/// The bindings of one namespace, or the cluster-scoped ones, by subject; ordered by name.
#[derive(Clone, Debug, Default)]
struct Scope {
    users: HashMap<Box<str>, Vec<Bound>>,
    groups: HashMap<Box<str>, Vec<Bound>>,
}

#[derive(Clone, Debug)]
struct Bound {
    place: PolicyKey,
    binding: Arc<Binding>,
}

impl Policy {
    pub fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.bindings.is_empty()
    }

    /// Sets a role, or marks it as deleted.
    pub fn set_role(&mut self, place: PolicyKey, role: Option<Role>) {
        self.roles.insert(place, role.map(Arc::new));
    }

    /// Removes an entry, so that the layer below applies.
    pub fn unset_role(&mut self, place: &PolicyKey) {
        self.roles.remove(place);
    }

    pub fn set_binding(&mut self, place: PolicyKey, binding: Option<Binding>) {
        self.unset_binding(&place);
        let binding = binding.map(Arc::new);
        for subject in binding.iter().flat_map(|binding| &binding.subjects) {
            let Some(subject_name) = subject.subject_name(&place.namespace) else { continue };
            let scope = self.scopes.entry(place.namespace.clone()).or_default();
            let list = match subject_name {
                SubjectName::User(name) => scope.users.entry(name.into()).or_default(),
                SubjectName::Group(name) => scope.groups.entry(name.into()).or_default(),
            };
            // A binding that names a user twice is listed once.
            if let (Err(at), Some(binding)) =
                (list.binary_search_by(|bound| bound.place.cmp(&place)), &binding)
            {
                list.insert(at, Bound { place: place.clone(), binding: binding.clone() });
            }
        }
        self.bindings.insert(place, binding);
    }

    pub fn unset_binding(&mut self, place: &PolicyKey) {
        let Some(Some(binding)) = self.bindings.remove(place) else { return };
        let Some(scope) = self.scopes.get_mut(&place.namespace) else { return };
        for subject in &binding.subjects {
            let (lists, name) = match subject.subject_name(&place.namespace) {
                Some(SubjectName::User(name)) => (&mut scope.users, name),
                Some(SubjectName::Group(name)) => (&mut scope.groups, name),
                None => continue,
            };
            if let Some(list) = lists.get_mut(&*name) {
                list.retain(|bound| bound.place != *place);
                if list.is_empty() {
                    lists.remove(&*name);
                }
            }
        }
        if scope.users.is_empty() && scope.groups.is_empty() {
            self.scopes.remove(&place.namespace);
        }
    }

    /// Returns the bindings of a namespace that match a user. A binding may occur once for the user and once for each
    /// group.
    fn bound<'a>(&'a self, user: UserInfo<'a>, namespace: &str) -> impl Iterator<Item = &'a Bound> + use<'a> {
        let scope = self.scopes.get(namespace);
        let users = scope.and_then(|scope| scope.users.get(user.name));
        let groups = user.groups.iter().filter_map(move |group| scope?.groups.get(group.as_str()));
        users.into_iter().chain(groups).flatten()
    }
}

/// The effective policy of a logical cluster.
#[derive(Clone, Copy, Debug)]
pub struct Layers<'a> {
    /// None if the logical cluster has changed nothing.
    pub own: Option<&'a Policy>,
    pub shared: &'a Policy,
}

/// A rule that a user holds, and the binding that grants it.
struct GrantedRule<'a> {
    bound: &'a Bound,
    rule: &'a Rule,
}

impl<'a> Layers<'a> {
    /// Decides whether a user may send a request.
    pub fn decide(self, user: UserInfo<'a>, attributes: &Attributes) -> Decision {
        let namespace = match attributes {
            Attributes::Resource(resource) => resource.namespace.as_str(),
            Attributes::Path { .. } => "",
        };
        let mut missing = Vec::new();
        let mut granted = self.granted(user, namespace, &mut missing);
        if let Some(granted) = granted.find(|granted| granted.rule.allows(attributes)) {
            return Decision {
                allowed: true,
                reason: format!("RBAC: allowed by {}", granted.bound.source(user)),
            };
        }
        drop(granted);
        let reason =
            if missing.is_empty() { String::new() } else { format!("RBAC: {}", format_errors(&missing)) };
        Decision { allowed: false, reason }
    }

    /// Returns all rules of a user in a namespace (cluster-wide if empty), and an error for each role that was not
    /// found.
    pub fn rules(self, user: UserInfo<'a>, namespace: &str) -> (Vec<&'a Rule>, Vec<String>) {
        let mut missing = Vec::new();
        let rules = self.granted(user, namespace, &mut missing).map(|granted| granted.rule).collect();
        (rules, missing)
    }

    /// Returns the rules of a role. The error names it as Kubernetes does.
    pub fn role_rules(self, namespace: &str, kind: &str, name: &str) -> Result<&'a [Rule], String> {
        let (place, resource) = match kind {
            "ClusterRole" => (PolicyKey::new("", name), "clusterrole"),
            "Role" => (PolicyKey::new(namespace, name), "role"),
            kind => return Err(format!("unsupported role reference kind: {kind:?}")),
        };
        let own = self.own.and_then(|own| own.roles.get(&place));
        let role = match own.or_else(|| self.shared.roles.get(&place)) {
            Some(Some(role)) => role,
            _ => return Err(format!("{resource}.{GROUP} {name:?} not found")),
        };
        Ok(&role.rules)
    }

    fn granted<'m>(
        self,
        user: UserInfo<'a>,
        namespace: &str,
        missing: &'m mut Vec<String>,
    ) -> impl Iterator<Item = GrantedRule<'a>> + use<'a, 'm> {
        let here = (!namespace.is_empty()).then(|| self.bindings(user, namespace)).into_iter().flatten();
        self.bindings(user, "").chain(here).flat_map(move |bound| {
            let role = &bound.binding.role_ref;
            let rules = self.role_rules(&bound.place.namespace, &role.kind, &role.name);
            let rules = rules.unwrap_or_else(|error| {
                if !missing.contains(&error) {
                    missing.push(error);
                }
                &[]
            });
            rules.iter().map(move |rule| GrantedRule { bound, rule })
        })
    }

    fn bindings(self, user: UserInfo<'a>, namespace: &str) -> impl Iterator<Item = &'a Bound> + use<'a> {
        let own = self.own.map(|own| own.bound(user, namespace)).into_iter().flatten();
        let shared = self.shared.bound(user, namespace);
        let covered = move |bound: &&Bound| {
            !self.own.is_some_and(|own| !own.bindings.is_empty() && own.bindings.contains_key(&bound.place))
        };
        own.chain(shared.filter(covered))
    }
}

impl Bound {
    /// Formats binding, role and the first subject that matches the user.
    fn source(&self, user: UserInfo<'_>) -> String {
        let Bound { place, binding } = self;
        let matches_user = |subject_name: SubjectName| match subject_name {
            SubjectName::User(name) => name == user.name,
            SubjectName::Group(name) => user.groups.contains(&name),
        };
        let subject =
            binding.subjects.iter().find(|one| one.subject_name(&place.namespace).is_some_and(matches_user));
        let subject = subject.map(|subject| subject.described(&place.namespace)).unwrap_or_default();
        let (kind, name) = match &*place.namespace {
            "" => ("ClusterRoleBinding", place.name.to_string()),
            namespace => ("RoleBinding", format!("{}/{namespace}", place.name)),
        };
        format!("{kind} {name:?} of {} {:?} to {subject}", binding.role_ref.kind, binding.role_ref.name)
    }
}

/// Formats several errors as Kubernetes does.
pub(crate) fn format_errors(missing: &[String]) -> String {
    match missing {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests;
