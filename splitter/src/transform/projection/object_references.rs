//! References to other objects in Events and EndpointSlices, rewritten to their projections.
//!
//! Both name objects as they are called on the physical cluster; `find` looks up their projections.

use serde_json::{Value, json};

use super::pods::SourceObject;

/// A projection, by name and uid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProjectedRef {
    pub name: String,
    pub uid: String,
}

/// An Event about a projection. None if its object is not projected.
pub fn event(
    projected: &Value,
    namespace: &str,
    find: impl Fn(&Value) -> Option<ProjectedRef>,
) -> Option<Value> {
    let mut event = projected.clone();
    let about = event.get_mut("involvedObject")?;
    let reference = find(about)?;
    about["name"] = reference.name.into();
    about["uid"] = reference.uid.into();
    about["namespace"] = namespace.into();
    about.as_object_mut()?.remove("resourceVersion");
    Some(event)
}

/// An EndpointSlice with projected pods and Nodes. Pods that are not projected yet keep their name.
pub fn slice(
    projected: &Value,
    source: &SourceObject,
    namespace: &str,
    find: impl Fn(&Value) -> Option<ProjectedRef>,
) -> Value {
    let mut slice = projected.clone();
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        if endpoint["nodeName"].is_string() {
            endpoint["nodeName"] = source.cluster.into();
        }
        let Some(target) = endpoint.get_mut("targetRef").filter(|target| target.is_object()) else {
            continue;
        };
        let named = target["name"].as_str().unwrap_or_default();
        let mut here = json!({ "kind": target["kind"], "namespace": namespace, "name": named });
        if let Some(reference) = find(target) {
            here["name"] = reference.name.into();
            here["uid"] = reference.uid.into();
        }
        *target = here;
    }
    slice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(named: &Value) -> Option<ProjectedRef> {
        (named["name"] == "db-0").then(|| ProjectedRef { name: "db-0-west".to_owned(), uid: "u".to_owned() })
    }

    #[test]
    fn an_event_refers_to_the_object_of_the_user() {
        let event_about = |name: &str| {
            json!({ "reason": "Started", "involvedObject": {
                "kind": "Pod", "name": name, "namespace": "shop-m41cmv47", "uid": "m", "resourceVersion": "7", "fieldPath": "f" } })
        };
        let about =
            json!({ "kind": "Pod", "name": "db-0-west", "namespace": "shop", "uid": "u", "fieldPath": "f" });
        let expected = json!({ "reason": "Started", "involvedObject": about });
        assert_eq!(event(&event_about("db-0"), "shop", find), Some(expected));
        assert_eq!(event(&event_about("db-1"), "shop", find), None);
    }

    #[test]
    fn endpoints_refer_to_projected_pods_and_nodes() {
        let target = |name: &str| json!({ "kind": "Pod", "name": name, "namespace": "there", "uid": "b" });
        let found = json!({ "endpoints": [
            { "addresses": ["10.0.0.1"], "nodeName": "n7", "targetRef": target("db-0") },
            { "addresses": ["10.0.0.2"], "nodeName": "n8", "targetRef": target("db-1") },
            { "addresses": ["10.0.0.3"] },
        ] });
        let source = SourceObject { cluster: "west", name: "db", uid: "s" };
        let expected = json!({ "endpoints": [
            { "addresses": ["10.0.0.1"], "nodeName": "west",
              "targetRef": { "kind": "Pod", "namespace": "shop", "name": "db-0-west", "uid": "u" } },
            { "addresses": ["10.0.0.2"], "nodeName": "west",
              "targetRef": { "kind": "Pod", "namespace": "shop", "name": "db-1" } },
            { "addresses": ["10.0.0.3"] },
        ] });
        assert_eq!(slice(&found, &source, "shop", find), expected);
    }
}
