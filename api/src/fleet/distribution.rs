//! The decision about one object, its reasons and its result.
//!
//! The spec is the decision: it is written as a whole, in one commit, and executed from there. The status has its
//! reasons and its result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, FleetObject, Resource};
use crate::meta::quantity::Quantities;

pub type Distribution = FleetObject<DistributionSpec, DistributionStatus>;

impl Distribution {
    pub const RESOURCE: Resource =
        Resource { kind: "Distribution", plural: "distributions", namespaced: true };
}

/// A decision.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DistributionSpec {
    pub object: ObjectReference,
    pub chosen_by: Chosen,
    /// The number that is divided. None if nothing is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// The part of the total that fits on no target.
    #[serde(default)]
    pub pending: i64,
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// An object in the namespace of its Distribution.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// What the placement comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    pub source: Source,
    /// The name of the Placement or of the object it follows, or the value of the annotation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Source {
    /// There is no annotation and no Placement.
    #[default]
    Default,
    Annotation,
    Placement,
    /// The object follows another one that needs it.
    Dependency,
}

/// A physical cluster that was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub cluster: String,
    pub role: Role,
    /// Its part of the total. None if nothing is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    Steady,
    /// The object is not ready there yet.
    Arriving,
    /// The object is removed once it is ready elsewhere.
    Leaving,
}

/// Why these targets were chosen, and the state of the object there.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DistributionStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// The verdict on every visible physical cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetReport>,
    /// Fields of the status that differ between targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<FieldDifference>,
}

/// Counts of targets, or of objects on targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    pub total: i64,
    pub applied: i64,
    pub available: i64,
    pub progressing: i64,
    pub degraded: i64,
    pub updated: i64,
}

/// The verdict on one physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub cluster: String,
    pub verdict: VerdictKind,
    /// The rule that decided. Of several that reject it, the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// The free capacity. None if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The smallest change that would admit it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum VerdictKind {
    Chosen,
    /// It is suitable, but ranked below others.
    Eligible,
    Rejected,
}

/// The free capacity of a physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capacity {
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub free: Quantities,
    /// What one replica requests.
    #[serde(skip_serializing_if = "Quantities::is_empty")]
    pub each: Quantities,
    /// How many replicas fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<i64>,
}

/// The state of the object on one target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetReport {
    pub cluster: String,
    pub applied: bool,
    /// Whether the target has the latest generation.
    pub updated: bool,
    pub health: Health,
    /// Whether the target has not reported for so long that this may be outdated.
    #[serde(default)]
    pub stale: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_report_time: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Health {
    Available,
    Progressing,
    Degraded,
    #[default]
    Unknown,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDifference {
    /// A JSON pointer.
    pub path: String,
    pub values: Vec<TargetValue>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetValue {
    pub cluster: String,
    #[serde(default)]
    pub value: Value,
}
