//! The effective placement of an object, from annotations and Placements.
//!
//! ```text
//!   annotation on the object  ─┐
//!   … on its namespace         ├─ nearest ──► EffectivePlacement ──► targets
//!   … on its logical cluster  ─┘     │
//!   Placements that select it ───────┘ if there is no annotation
//! ```
//!
//! An invalid annotation is still the nearest one: it changes nothing until it is fixed. Falling through to the next
//! level would move a workload because of a typo.

pub mod annotation;
pub mod select;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use api::fleet::{Chosen, ClusterSelector, Placement, PlacementSpec, Source};
use api::names::PLACEMENT;

use annotation::AnnotationError;
use select::Selected;

pub type Labels = BTreeMap<String, String>;

/// The attributes of an object that selectors match.
#[derive(Clone, Copy, Debug)]
pub struct ObjectAttributes<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub labels: &'a Labels,
    pub namespace_labels: &'a Labels,
}

/// The level an annotation was set on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnnotationLevel {
    Object,
    Namespace,
    LogicalCluster,
}

/// The placement in effect for an object: from its annotation, a Placement or the default.
#[derive(Clone, PartialEq, Debug)]
pub struct EffectivePlacement {
    pub by: Chosen,
    pub spec: PlacementSpec,
}

impl EffectivePlacement {
    /// The default: one cluster, the one with the most free capacity.
    pub fn default_choice() -> EffectivePlacement {
        let spec = PlacementSpec { number_of_clusters: Some(1), ..PlacementSpec::default() };
        EffectivePlacement { by: Chosen::default(), spec }
    }

    /// Identifies the placement that a decision was made for. If it changed, objects may move.
    pub fn fingerprint(&self) -> String {
        let PlacementSpec { cluster_selector, number_of_clusters, spread, fallback_groups, .. } = &self.spec;
        let identity = (self.by.source, cluster_selector, number_of_clusters, spread, fallback_groups);
        let text = serde_json::to_string(&identity).expect("our own kinds can be written as JSON");
        api::meta::hash::word(&[&text], 12)
    }
}

/// An annotation that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidAnnotation {
    pub level: AnnotationLevel,
    pub text: String,
    pub error: AnnotationError,
}

impl fmt::Display for InvalidAnnotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = match self.level {
            AnnotationLevel::Object => "the object",
            AnnotationLevel::Namespace => "its namespace",
            AnnotationLevel::LogicalCluster => "its logical cluster",
        };
        write!(
            f,
            "annotation {PLACEMENT}={:?} on {location} is invalid, {}; nothing is moved until it is fixed or removed",
            self.text, self.error
        )
    }
}

impl std::error::Error for InvalidAnnotation {}

/// The annotation in effect, of those on the object, its namespace and its logical cluster.
pub fn nearest<'a>(
    object: &'a Labels,
    namespace: &'a Labels,
    logical_cluster: &'a Labels,
) -> Option<(AnnotationLevel, &'a str)> {
    let levels = [
        (AnnotationLevel::Object, object),
        (AnnotationLevel::Namespace, namespace),
        (AnnotationLevel::LogicalCluster, logical_cluster),
    ];
    levels.into_iter().find_map(|(level, annotations)| Some((level, annotations.get(PLACEMENT)?.as_str())))
}

/// The placement in effect, given the nearest annotation and the Placements of the logical cluster.
pub fn effective_placement(
    subject: &ObjectAttributes,
    annotation: Option<(AnnotationLevel, &str)>,
    placements: &[Placement],
) -> Result<EffectivePlacement, InvalidAnnotation> {
    let chosen = best(subject, placements);
    let Some((level, text)) = annotation else {
        let by_placement = |placement: &Placement| EffectivePlacement {
            by: Chosen { source: Source::Placement, name: placement.metadata.name.clone() },
            spec: placement.spec.clone(),
        };
        return Ok(chosen.map_or_else(EffectivePlacement::default_choice, by_placement));
    };
    let selector =
        annotation::parse(text).map_err(|error| InvalidAnnotation { level, text: text.to_owned(), error })?;
    let by = Chosen { source: Source::Annotation, name: text.to_owned() };
    Ok(EffectivePlacement { by, spec: with_selector(selector, chosen) })
}

/// The annotation selects clusters. Division and tolerations still come from the Placement.
fn with_selector(cluster_selector: ClusterSelector, placement: Option<&Placement>) -> PlacementSpec {
    let spec = placement.map(|placement| placement.spec.clone()).unwrap_or_default();
    PlacementSpec {
        cluster_selector,
        number_of_clusters: None,
        spread: Vec::new(),
        fallback_groups: Vec::new(),
        ..spec
    }
}

/// The Placement in effect of those that select an object: by priority, then the most specific, then by name.
pub fn best<'a>(subject: &ObjectAttributes, placements: &'a [Placement]) -> Option<&'a Placement> {
    let selecting = placements.iter().filter(|placement| selects(&placement.spec, subject));
    selecting.min_by_key(|placement| {
        let spec = &placement.spec;
        (Reverse(spec.priority), Reverse(specificity(spec)), placement.metadata.name.as_str())
    })
}

fn selects(spec: &PlacementSpec, subject: &ObjectAttributes) -> bool {
    select::labels(&spec.namespace_selector, subject.namespace_labels) == Selected::Yes
        && select::object(&spec.object_selector, subject)
}

/// How specific a Placement is: names count more than labels of the object, those more than kinds, those more than
/// labels of the namespace.
fn specificity(spec: &PlacementSpec) -> (bool, usize, bool, usize) {
    let object = &spec.object_selector;
    (
        !object.names.is_empty(),
        select::terms(&object.labels),
        !object.kinds.is_empty(),
        select::terms(&spec.namespace_selector),
    )
}

/// The weight and bounds a policy gives a cluster: the greatest weight, the greatest `min` and the smallest `max` of the
/// rules that select it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShareBounds {
    /// None if no rule sets one.
    pub weight: Option<u64>,
    pub min: u32,
    pub max: Option<u32>,
}

/// The bounds that `shares` of a Placement set for one cluster; `selects` tells whether a rule matches it.
pub fn share_bounds(spec: &PlacementSpec, selects: impl Fn(&ClusterSelector) -> bool) -> ShareBounds {
    let number = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
    let mut bounds = ShareBounds::default();
    for rule in &spec.shares {
        if !selects(&rule.cluster_selector) {
            continue;
        }
        let weight = rule.weight.map(|weight| u64::try_from(weight).unwrap_or_default());
        bounds.weight = bounds.weight.max(weight);
        bounds.min = bounds.min.max(rule.min.map(number).unwrap_or_default());
        bounds.max = match (bounds.max, rule.max.map(number)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    bounds
}

#[cfg(test)]
mod tests;
