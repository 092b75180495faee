//! Roles and bindings, read from the objects that say them.

use serde::Deserialize;

use crate::rbac::rule::Rule;

/// A Role, or a ClusterRole: what matters of it for decisions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub struct Role {
    #[serde(default, deserialize_with = "listed")]
    pub rules: Vec<Rule>,
}

/// A RoleBinding, or a ClusterRoleBinding.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    #[serde(default, deserialize_with = "listed")]
    pub subjects: Vec<Subject>,
    pub role_ref: RoleRef,
}

/// Which role a binding hands out.
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
    /// Of a service account.
    pub namespace: String,
}

/// A list that may be missing or null.
fn listed<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The name that a subject matches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    User(String),
    Group(String),
}

impl Subject {
    /// Whom this means in a binding of `namespace`; empty for one of the whole logical cluster. A service account is
    /// a user with a name that contains its namespace. None if it matches no user.
    pub(crate) fn named(&self, namespace: &str) -> Option<Named> {
        match self.kind.as_str() {
            "User" => Some(Named::User(self.name.clone())),
            "Group" => Some(Named::Group(self.name.clone())),
            "ServiceAccount" => {
                let home = if self.namespace.is_empty() { namespace } else { &self.namespace };
                (!home.is_empty()).then(|| Named::User(account(home, &self.name)))
            }
            _ => None,
        }
    }

    /// As reasons say it. That a service account's name comes before its namespace is how Kubernetes writes it.
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

/// The user name of a service account.
pub(crate) fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}
