//! Changes to objects for some physical clusters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ClusterSelector, Condition, FleetObject, LabelSelector, ObjectSelector, Resource};

pub type Override = FleetObject<OverrideSpec, OverrideStatus>;

impl Override {
    pub const RESOURCE: Resource = Resource { kind: "Override", plural: "overrides", namespaced: false };
}

/// Changes to objects for some physical clusters, made when they are propagated.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideSpec {
    /// Overrides are applied by increasing priority, so the greatest is applied last. Then by name.
    pub priority: i32,
    pub namespace_selector: LabelSelector,
    pub object_selector: ObjectSelector,
    /// The rules, applied in order.
    pub rules: Vec<OverrideRule>,
}

/// Changes for the clusters it selects, applied in the order of the fields.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideRule {
    pub cluster_selector: ClusterSelector,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Environment>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Arguments>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_patch: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub json_patch: Vec<PatchStep>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub computed: Vec<Computed>,
}

/// Parts of image names. Parts that are not set stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Image {
    /// All containers, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Environment {
    /// All containers, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<Variable>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variable {
    pub name: String,
    #[serde(default)]
    pub value: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Arguments {
    /// All containers, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Arguments to remove, before others are appended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub append: Vec<String>,
}

/// Labels or annotations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Table {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
}

/// An operation of a JSON patch (RFC 6902).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchStep {
    pub op: Operation,
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Add,
    Remove,
    Replace,
    Move,
    Copy,
    Test,
}

/// A field that gets the value of an expression.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Computed {
    /// A JSON pointer.
    pub path: String,
    /// In CEL, about the variables `object` and `cluster`.
    pub expression: String,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
