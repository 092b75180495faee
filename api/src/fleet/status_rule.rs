//! How several statuses of a custom kind become one.

use serde::{Deserialize, Serialize};

use super::{Condition, FleetObject, GroupKind, Resource};

pub type StatusRule = FleetObject<StatusRuleSpec, StatusRuleStatus>;

impl StatusRule {
    pub const RESOURCE: Resource = Resource { kind: "StatusRule", plural: "statusrules", namespaced: false };
}

/// How the status of objects of a kind is aggregated if they run on several physical clusters. Other fields of the
/// status are aggregated as without a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusRuleSpec {
    /// The kind of the objects.
    pub target: GroupKind,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowsRule>,
}

/// A field of the status and its value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldRule {
    /// A JSON pointer into the object.
    pub path: String,
    /// In CEL, about the variables `targets` and `object`.
    pub expression: String,
}

/// A list in the status, with one row per group of targets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RowsRule {
    /// A JSON pointer into the object.
    pub path: String,
    /// Targets for which it is false are left out. In CEL, about the variable `target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Targets for which all of these are equal are one group; each is a field of its row. In CEL, about `target`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_by: Vec<NamedExpression>,
    /// Further fields of a row. In CEL, about the variable `targets`: those of the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<NamedExpression>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedExpression {
    pub name: String,
    pub expression: String,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusRuleStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<PolicyError>,
}

/// An error in an expression. While there are any, statuses stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyError {
    /// The path of the expression in the spec: `spec.fields[0].expression`.
    pub field: String,
    pub line: i64,
    pub column: i64,
    pub message: String,
}
