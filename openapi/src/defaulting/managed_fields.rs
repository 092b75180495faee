//! Converts an object to the state in which Kubernetes computes managed fields.
//!
//! Managed fields are computed after decoding and before the object is prepared for its write. For two kinds,
//! Kubernetes sets fields before that point which this server sets only when it prepares the object.

use std::borrow::Cow;

use serde_json::Value;

use super::access::{Fields, made};
use super::create::TEMPLATE_GENERATION;
use super::other_kinds;
use crate::catalog::resource_info::ResourceInfo;

type ManagedFieldsFn = fn(&mut Fields);

const STEPS: &[(&str, ManagedFieldsFn)] =
    &[("daemonsets.apps", template_generation), ("jobs.batch", other_kinds::template_labels)];

pub(super) fn for_managed_fields<'o>(resource: &ResourceInfo, object: &'o Value) -> Cow<'o, Value> {
    let mut seen = Cow::Borrowed(object);
    let step = STEPS.iter().find(|(name, _)| *name == resource.qualified());
    if let (Some((_, step)), true) = (step, object.is_object()) {
        seen.to_mut().as_object_mut().into_iter().for_each(step);
    }
    seen
}

/// Adds the template generation. In Kubernetes it is an internal field, which is zero until a DaemonSet is prepared.
fn template_generation(set: &mut Fields) {
    if let Some(annotations) = made(set, "metadata").and_then(|metadata| made(metadata, "annotations")) {
        annotations.entry(TEMPLATE_GENERATION).or_insert_with(|| "0".into());
    }
}
