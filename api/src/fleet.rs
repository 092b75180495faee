//! Holon's own kinds: physical clusters, and policies and records of running objects on them.
//!
//! ```text
//!   PhysicalCluster   a cluster that runs pods: its use, its connection, its reported state
//!   Placement         where objects run, and with how many replicas
//!   Override          changes to objects for some physical clusters
//!   Distribution      the decision about one object, its reasons and its result
//!   StatusRule        how the statuses of a custom kind on several physical clusters become one
//! ```
//!
//! Each kind exists twice: as a Rust type, and as a custom resource definition that servers use ([`DEFINITIONS`]).
//! Defaults, bounds and patterns are only in the definition, and hold for everything that a server has accepted.
//! `openapi/tests/fleet` checks that both agree.

mod distribution;
mod object;
mod overrides;
mod physical_cluster;
mod placement;
mod select;
mod status_rule;
mod value;

pub use distribution::{
    Capacity, Chosen, Counts, Distribution, DistributionSpec, DistributionStatus, FieldDifference, Health,
    ObjectReference, Role, Source, Target, TargetReport, TargetValue, Verdict, VerdictKind,
};
pub use object::{Condition, FleetObject, Locator, Metadata, Resource};
pub use overrides::{
    Arguments, Computed, Environment, Image, Operation, Override, OverrideRule, OverrideSpec, OverrideStatus,
    PatchStep, Table, Variable,
};
pub use physical_cluster::{
    ClassKind, ClassMapping, Connection, Nodes, PhysicalCluster, PhysicalClusterSpec, PhysicalClusterStatus,
    PodSecurity, Pull, Push, Quota, SecretReference, ServedClasses, ServedKind, Taint,
};
pub use placement::{
    Division, Effect, FallbackGroup, Operator, Placement, PlacementSpec, PlacementStatus, Rollout, ShareRule,
    Spread, Toleration, Weights,
};
pub use select::{ClusterSelector, Compare, GroupKind, LabelSelector, ObjectSelector, Requirement};
pub use status_rule::{
    FieldRule, NamedExpression, PolicyError, RowsRule, StatusRule, StatusRuleSpec, StatusRuleStatus,
};
pub use value::{Portion, Span};

/// The custom resource definitions of Holon's kinds, in YAML.
pub const DEFINITIONS: &[&str] = &[
    include_str!("fleet/physical_cluster.yaml"),
    include_str!("fleet/placement.yaml"),
    include_str!("fleet/override.yaml"),
    include_str!("fleet/distribution.yaml"),
    include_str!("fleet/status_rule.yaml"),
];
