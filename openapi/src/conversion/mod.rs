//! Converts objects between the versions of a resource.
//!
//! Events are stored as core Events and autoscalers as `autoscaling/v2`; both are also served in another version
//! ([`ResourceInfo::stored_as`]). So are the versions of a custom kind, which differ only in their schemas: see
//! [`crate::conversion::custom`]. A conversion there and back loses nothing.
//!
//! ```text
//!   events.k8s.io/v1 Event ◄─► v1 Event                          the same fields under other names
//!   autoscaling/v1 HPA     ◄─► autoscaling/v2 HPA (`autoscaler`)  what v1 has no field for is an annotation
//! ```

mod autoscaler;
pub mod custom;

use serde_json::Value;

use crate::catalog::resource_info::{ResourceInfo, api_version};
use crate::schema::Origin;

/// Fields of core Events, and their names in `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an object of this resource to its storage version.
pub fn to_stored(resource: &ResourceInfo, mut object: Value) -> Value {
    let Some((group, version)) = &resource.stored_as else { return object };
    if resource.origin == Origin::Custom {
        custom::to_stored(resource, &mut object);
        return object;
    }
    match &*resource.plural {
        "events" => EVENT_FIELDS.iter().for_each(|(core, other)| rename(&mut object, other, core)),
        _ => autoscaler::to_v2(&mut object),
    }
    object["apiVersion"] = api_version(group, version).into();
    object
}

/// Converts a stored object to this resource.
pub fn from_stored(resource: &ResourceInfo, mut object: Value) -> Value {
    if resource.origin == Origin::Custom {
        custom::from_stored(resource, &mut object);
        return object;
    }
    if resource.stored_as.is_none() {
        return object;
    }
    match &*resource.plural {
        "events" => EVENT_FIELDS.iter().for_each(|(core, other)| rename(&mut object, core, other)),
        _ => autoscaler::to_v1(&mut object),
    }
    object["apiVersion"] = resource.api_version().into();
    object
}

fn rename(object: &mut Value, from: &str, to: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(value) = fields.remove(from) {
        fields.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use serde_json::json;

    #[test]
    fn an_event_is_the_same_under_other_names() {
        let resource = catalog::find("events.k8s.io", "v1", "events").unwrap();
        let core = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": { "name": "e1" },
            "involvedObject": { "kind": "Pod", "name": "p" }, "reason": "R", "message": "M",
            "source": { "component": "c" }, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z", "count": 3, "type": "Normal", "eventTime": null,
            "reportingComponent": "k", "reportingInstance": "i",
        });
        let other = json!({
            "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": { "name": "e1" },
            "eventTime": null, "reason": "R", "regarding": { "kind": "Pod", "name": "p" }, "note": "M",
            "type": "Normal", "deprecatedSource": { "component": "c" },
            "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedCount": 3, "reportingController": "k", "reportingInstance": "i",
        });
        assert_eq!(from_stored(resource, core.clone()), other);
        assert_eq!(to_stored(resource, other), core);
    }

    #[test]
    fn objects_of_the_storage_version_are_not_converted() {
        let resource = catalog::find("", "v1", "events").unwrap();
        let object = json!({ "apiVersion": "v1", "message": "M" });
        assert_eq!(to_stored(resource, object.clone()), object);
        assert_eq!(from_stored(resource, object.clone()), object);
    }
}
