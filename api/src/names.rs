//! Names with a meaning, spelled once.

/// The API group of our own kinds.
pub const GROUP: &str = "holon.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// On every object of a list or watch over all logical clusters: the id of the one it lives in.
pub const LOGICAL_CLUSTER: &str = "holon.dev/logical-cluster";
