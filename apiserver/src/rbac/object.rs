//! Roles and bindings, parsed from their objects.

use serde::Deserialize;

use crate::rbac::rule::Rule;

/// The rules of a Role or ClusterRole.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Role {
    #[serde(default, deserialize_with = "listed")]
    pub rules: Vec<Rule>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    #[serde(default, deserialize_with = "listed")]
    pub subjects: Vec<Subject>,
    pub role_ref: RoleRef,
}

/// The role of a binding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

/// The subject of a binding.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Subject {
    pub kind: String,
    pub name: String,
    /// Only for service accounts.
    pub namespace: String,
}

/// Parses a list that may be missing or null.
fn listed<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The name that a subject matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SubjectName {
    User(String),
    Group(String),
}

impl Subject {
    /// Returns the user or group that this subject matches, in a binding of `namespace` (empty for a
    /// ClusterRoleBinding). A service account is a user whose name contains its namespace. None if it matches no user.
    pub(crate) fn subject_name(&self, namespace: &str) -> Option<SubjectName> {
        match self.kind.as_str() {
            "User" => Some(SubjectName::User(self.name.clone())),
            "Group" => Some(SubjectName::Group(self.name.clone())),
            "ServiceAccount" => {
                let home = if self.namespace.is_empty() { namespace } else { &self.namespace };
                (!home.is_empty()).then(|| SubjectName::User(account(home, &self.name)))
            }
            _ => None,
        }
    }

    /// Formats the subject for the reason of a decision. Like Kubernetes, it puts the name of a service account before
    /// its namespace.
    pub(crate) fn described(&self, namespace: &str) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => {
                let home = if self.namespace.is_empty() { namespace } else { &self.namespace };
                format!("{} \"{}/{home}\"", self.kind, self.name)
            }
            _ => format!("{} {:?}", self.kind, self.name),
        }
    }
}

/// Returns the user name of a service account.
pub(crate) fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
