//! Our own kinds: physical clusters, and what is said about running things on them.
//!
//! ```text
//!   PhysicalCluster   a real cluster: what it may be used for, how it is reached, what it reports
//!   Placement         where objects run, and how many of them where
//!   Override          what is different on some physical clusters
//!   Distribution      what was decided about one object, why, and what came of it
//!   StatusRule        how several statuses of a custom kind become one
//! ```
//!
//! Each kind is here twice: as a type to work with, and as a definition to be served by ([`DEFINITIONS`]). Whatever can
//! be said in a definition (defaults, bounds, what a name looks like) is said there and holds for everything a server
//! has accepted; the types repeat none of it. `openapi/tests/fleet.rs` keeps the two in step.

mod distribution;
mod object;
mod overrides;
mod physical_cluster;
mod placement;
mod select;
mod status_rule;
mod value;

pub use distribution::{
    Capacity, Chosen, Counts, Disagreement, Distribution, DistributionSpec, DistributionStatus, Health,
    ObjectReference, Opinion, Role, Source, Target, TargetReport, Verdict, VerdictKind,
};
pub use object::{Condition, Locator, Metadata, Object, Resource};
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
    FieldRule, Mistake, NamedExpression, RowsRule, StatusRule, StatusRuleSpec, StatusRuleStatus,
};
pub use value::{Portion, Quantities, Quantity, Span};

/// Our kinds as custom resource definitions, in YAML.
pub const DEFINITIONS: &[&str] = &[
    include_str!("fleet/physical_cluster.yaml"),
    include_str!("fleet/placement.yaml"),
    include_str!("fleet/override.yaml"),
    include_str!("fleet/distribution.yaml"),
    include_str!("fleet/status_rule.yaml"),
];
