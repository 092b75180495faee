//! Converts managed fields between an object and its scale.
//!
//! A scale has one field that can be owned: its replicas. The owner of the corresponding field of the object owns it,
//! and vice versa. The path of the object's field depends on the kind.

use serde_json::Value;

use super::field_set::FieldSet;
use super::managed_fields::ManagedFields;

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS: &[&str] = &["spec", "replicas"];

/// Returns the managedFields of an object's scale, from those of the object.
pub fn to_scale(entries: Option<&Value>, replicas: &[&str], knows: &dyn Fn(&str) -> bool) -> Option<Value> {
    let mut managers = ManagedFields::decode(entries).ok()?;
    managers.0.retain(|manager| knows(&manager.api_version) && manager.set.has_fields(replicas));
    for manager in &mut managers.0 {
        manager.api_version = SCALE_VERSION.into();
        manager.set = FieldSet::of_fields(&[REPLICAS]);
    }
    managers.encode()
}

/// Returns the managedFields of an object after a write of its scale: `entries` are those of the object before,
/// `scaled` those of the scale after.
pub fn from_scale(
    entries: Option<&Value>,
    scaled: Option<&Value>,
    replicas: &[&str],
    api_version: &str,
    knows: &dyn Fn(&str) -> bool,
) -> Option<Value> {
    let mut managers = ManagedFields::decode(entries).ok()?;
    let mut scaled = ManagedFields::decode(scaled).ok()?;
    managers.forget(knows);
    for manager in managers.0.iter_mut().filter(|manager| manager.set.has_fields(replicas)) {
        // Entries of a scale have the API version of scales.
        let still = scaled.0.iter().position(|owner| {
            owner.name == manager.name
                && owner.operation == manager.operation
                && owner.subresource == manager.subresource
        });
        match still {
            Some(index) => drop(scaled.0.remove(index)),
            None => {
                manager.set = std::mem::take(&mut manager.set).difference(&FieldSet::of_fields(&[replicas]))
            }
        }
    }
    managers.drop_empty();
    for mut owner in scaled.0.into_iter().filter(|owner| owner.set.has_fields(REPLICAS)) {
        // As in Kubernetes, the entry has no time.
        (owner.api_version, owner.time) = (api_version.into(), "".into());
        owner.set = FieldSet::of_fields(&[replicas]);
        managers.0.push(owner);
    }
    managers.encode()
}
