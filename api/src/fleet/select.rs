//! Saying which: objects, namespaces, physical clusters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Those whose labels fulfil all of it. One that says nothing selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Requirement>,
}

/// What must be true of one label.
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

/// Physical clusters that fulfil all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSelector {
    /// One of these, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(flatten)]
    pub labels: LabelSelector,
    /// In CEL, about the variable `cluster`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<String>,
}

/// Objects that fulfil all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectSelector {
    /// One of these, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<GroupKind>,
    /// One of these, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(flatten)]
    pub labels: LabelSelector,
}

/// A kind, in whatever version.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupKind {
    /// Empty for the core group.
    #[serde(default)]
    pub group: String,
    pub kind: String,
}
