//! Where objects run, and how many of them where.

use serde::{Deserialize, Serialize};

use super::{
    ClusterSelector, Condition, Counts, LabelSelector, Object, ObjectSelector, Portion, Resource, Span,
};

pub type Placement = Object<PlacementSpec, PlacementStatus>;

impl Placement {
    pub const RESOURCE: Resource = Resource { kind: "Placement", plural: "placements", namespaced: false };
}

/// A policy of a logical cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSpec {
    /// Of several that select an object, the greatest counts.
    pub priority: i32,
    pub namespace_selector: LabelSelector,
    pub object_selector: ObjectSelector,
    pub cluster_selector: ClusterSelector,
    /// All that are selected, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_clusters: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    pub division: Division,
    pub weights: Weights,
    /// What is different for some clusters when numbers are divided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareRule>,
    /// In order: each is used only while those before it cannot hold everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback_groups: Vec<FallbackGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// Over groups of clusters: those with the same value of a label are one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_groups: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_groups: Option<i64>,
    /// By how many clusters two groups may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skew: Option<i64>,
}

/// A taint that does not keep it off.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Every key, if it is not said.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    pub operator: Operator,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Every effect, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// How long it stays in spite of `NoExecute`: forever, if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Operator {
    #[default]
    Equal,
    Exists,
}

/// What a taint does to what does not tolerate it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// Nothing new comes.
    NoSchedule,
    /// Nothing new comes if there is another place.
    PreferNoSchedule,
    /// Nothing new comes, and what is there leaves.
    NoExecute,
}

/// What several clusters do with a number of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Division {
    /// Each runs a share of it.
    #[default]
    Divide,
    /// Each runs all of it.
    Duplicate,
}

/// What shares are proportional to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Weights {
    /// All clusters weigh the same.
    #[default]
    Equal,
    /// What `shares` says.
    Static,
    /// What is free there.
    Capacity,
}

/// For the clusters it selects. Of several that select one, the greatest weight, the greatest `min` and the smallest
/// `max` count.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShareRule {
    pub cluster_selector: ClusterSelector,
    /// 0 keeps the cluster out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FallbackGroup {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub cluster_selector: ClusterSelector,
}

/// Target by target, when what runs changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// Of targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<Portion>,
    /// How long one must be well before the next begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_success_time: Option<Span>,
    /// After so long without progress one counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Span>,
    /// Of targets. With more, nothing further is begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<Portion>,
}

/// What came of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Of all objects it places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}
