//! Where objects run, and with how many replicas.

use serde::{Deserialize, Serialize};

use super::{
    ClusterSelector, Condition, Counts, FleetObject, LabelSelector, ObjectSelector, Portion, Resource, Span,
};

pub type Placement = FleetObject<PlacementSpec, PlacementStatus>;

impl Placement {
    pub const RESOURCE: Resource = Resource { kind: "Placement", plural: "placements", namespaced: false };
}

/// A placement policy of a logical cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSpec {
    /// Of several Placements that select an object, the one with the greatest priority counts.
    pub priority: i32,
    pub namespace_selector: LabelSelector,
    pub object_selector: ObjectSelector,
    pub cluster_selector: ClusterSelector,
    /// All selected clusters, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number_of_clusters: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<Spread>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    pub division: Division,
    pub weights: Weights,
    /// Rules for the shares of some clusters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareRule>,
    /// Each group is used only if those before it cannot hold everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback_groups: Vec<FallbackGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
}

/// A spread over groups of clusters. Clusters with the same value of the label are one group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_groups: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_groups: Option<i64>,
    /// The largest difference between two groups, in clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_skew: Option<i64>,
}

/// A taint that is tolerated.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Every key, if it is not set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    pub operator: Operator,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Every effect, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// How long objects stay in spite of `NoExecute`. Forever, if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Operator {
    #[default]
    Equal,
    Exists,
}

/// The effect of a taint on objects that do not tolerate it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// No new objects are placed there.
    NoSchedule,
    /// No new objects are placed there if another cluster is suitable.
    PreferNoSchedule,
    /// No new objects are placed there, and existing ones are moved away.
    NoExecute,
}

/// Whether several clusters share replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Division {
    /// Each cluster runs a share of them.
    #[default]
    Divide,
    /// Each cluster runs all of them.
    Duplicate,
}

/// The weights of clusters for their shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Weights {
    /// All clusters have the same weight.
    #[default]
    Equal,
    /// The weights in `shares`.
    Static,
    /// The free capacity.
    Capacity,
}

/// Bounds and weight for the clusters it selects. Of several rules for one cluster, the greatest weight, the greatest
/// `min` and the smallest `max` count.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShareRule {
    pub cluster_selector: ClusterSelector,
    /// 0 excludes the cluster.
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

/// How a change is rolled out, target by target.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rollout {
    /// How many targets change at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<Portion>,
    /// How long a target must be healthy before the next starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_success_time: Option<Span>,
    /// After this long without progress, a target counts as failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline: Option<Span>,
    /// How many targets may fail. With more, the rollout stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_failures: Option<Portion>,
}

/// The observed state.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The objects it places, counted once per target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}
