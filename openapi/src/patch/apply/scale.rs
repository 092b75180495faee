//! Owners of how many there are of something, seen through its scale and back.
//!
//! A scale has one field that can be owned. Who owns the field of the object it stands for owns that one, and the other
//! way round. Which field of the object that is says its path.

use serde_json::Value;

use super::field_set::FieldSet;
use super::managed_fields::ManagedFields;

const SCALE_VERSION: &str = "autoscaling/v1";
const REPLICAS: &[&str] = &["spec", "replicas"];

/// The managedFields of the scale of an object that has these.
pub fn to_scale(entries: Option<&Value>, replicas: &[&str], knows: &dyn Fn(&str) -> bool) -> Option<Value> {
    let mut managers = ManagedFields::decode(entries).ok()?;
    managers.0.retain(|manager| knows(&manager.api_version) && manager.set.has_fields(replicas));
    for manager in &mut managers.0 {
        manager.api_version = SCALE_VERSION.into();
        manager.set = FieldSet::of_fields(&[REPLICAS]);
    }
    managers.encode()
}

/// The managedFields of an object that has `entries`, when its scale has come to have `scaled`.
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
        // In a scale, every entry has the API version of scales.
        let still = scaled.0.iter().position(|owner| {
            owner.name == manager.name
                && owner.operation == manager.operation
                && owner.subresource == manager.subresource
        });
        match still {
            Some(place) => drop(scaled.0.remove(place)),
            None => {
                manager.set = std::mem::take(&mut manager.set).difference(&FieldSet::of_fields(&[replicas]))
            }
        }
    }
    managers.drop_empty();
    for mut owner in scaled.0.into_iter().filter(|owner| owner.set.has_fields(REPLICAS)) {
        // Kubernetes does not say since when.
        (owner.api_version, owner.time) = (api_version.into(), "".into());
        owner.set = FieldSet::of_fields(&[replicas]);
        managers.0.push(owner);
    }
    managers.encode()
}
