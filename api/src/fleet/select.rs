//! Selectors of objects, namespaces and physical clusters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::meta::selector::Operator;

/// A label selector. All requirements must hold; an empty one selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement on one label.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirement {
    pub key: String,
    pub operator: Compare,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Compare {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Requirement {
    /// Reports whether a label with this value, or an absent label, meets the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        let operator = match self.operator {
            Compare::In => Operator::In,
            Compare::NotIn => Operator::NotIn,
            Compare::Exists => Operator::Exists,
            Compare::DoesNotExist => Operator::Absent,
        };
        operator.matches(&self.values, label)
    }
}

/// Selects physical clusters. All of its fields must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSelector {
    /// The names it selects. All, if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(flatten)]
    pub labels: LabelSelector,
    /// In CEL, about the variable `cluster`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<String>,
}

/// Selects objects. All of its fields must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSelector {
    /// The kinds it selects. All, if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<GroupKind>,
    /// The names it selects. All, if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(flatten)]
    pub labels: LabelSelector,
}

/// A kind, in any version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupKind {
    /// Empty for the core group.
    #[serde(default)]
    pub group: String,
    pub kind: String,
}
