//! What was decided about one object, why, and what came of it.
//!
//! The decision is the spec: whoever decides writes it whole, in one commit, and whoever carries it out reads it there.
//! Evidence and results are the status.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Condition, Object, Quantities, Resource};

pub type Distribution = Object<DistributionSpec, DistributionStatus>;

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
    /// The number that is divided; none if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
    /// What no target can hold of it.
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

/// What said where it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    pub source: Source,
    /// Of the Placement; the value of the annotation; of the object it follows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Source {
    /// Nobody said anything.
    #[default]
    Default,
    Annotation,
    Placement,
    /// What needs it.
    Dependency,
}

/// A physical cluster that was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub cluster: String,
    pub role: Role,
    /// None if nothing is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Role {
    Steady,
    /// Not ready there yet.
    Arriving,
    /// Goes once it is ready elsewhere.
    Leaving,
}

/// Why it was decided so, and what came of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DistributionStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// About every physical cluster that can be seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetReport>,
    /// Fields of the status that targets do not agree on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disagreements: Vec<Disagreement>,
}

/// Of targets, or of objects on targets.
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

/// What was found out about one physical cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub cluster: String,
    pub verdict: VerdictKind,
    /// The rule that decided: of several that reject it, the first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rule: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<i64>,
    /// None if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The smallest change that would admit it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum VerdictKind {
    Chosen,
    /// It would do, and others do better.
    Admitted,
    Rejected,
}

/// What there is room for.
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

/// How one target is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetReport {
    pub cluster: String,
    pub applied: bool,
    /// Whether it runs what is wanted now and not what was wanted before.
    pub updated: bool,
    pub health: Health,
    /// Whether it has been silent for so long that this may not be true any more.
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
pub struct Disagreement {
    /// A JSON pointer.
    pub path: String,
    pub opinions: Vec<Opinion>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opinion {
    pub cluster: String,
    #[serde(default)]
    pub value: Value,
}
