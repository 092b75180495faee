//! The scale subresource: replicas as an object of its own, `autoscaling/v1` Scale.
//!
//! A Scale is a view of three fields of another object. A read builds it from the object; a write sets the replicas of
//! the object.

use std::sync::{Arc, LazyLock};

use api::meta::field::FieldError;
use api::meta::pointer;
use api::meta::selector::LabelSelector;
use openapi::catalog;
use openapi::catalog::resource_info::{ResourceInfo, ScalePaths};
use openapi::meta::status::{GroupResource, Status};
use openapi::patch::apply;
use openapi::schema::Origin;
use openapi::schema::builtin;
use serde_json::{Value, json};

use crate::objects::metadata;
use crate::registry::call::Call;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;

const GROUP: &str = "autoscaling";
const VERSION: &str = "v1";
const KIND: &str = "Scale";

/// The default number of replicas, as in Kubernetes.
const REPLICAS: i64 = 1;

/// Returns the resource of scales, so that they are read and patched like other objects.
pub(crate) fn resource(of: &ResourceInfo) -> Arc<ResourceInfo> {
    static RESOURCE: LazyLock<ResourceInfo> = LazyLock::new(|| {
        let pattern = catalog::find("", "v1", "replicationcontrollers")
            .expect("the catalogue has replication controllers");
        ResourceInfo {
            origin: Origin::BuiltIn,
            group: GROUP.into(),
            version: VERSION.into(),
            kind: KIND.into(),
            list_kind: "ScaleList".into(),
            columns: catalog::scale_columns().to_vec(),
            type_name: builtin::type_name(GROUP, VERSION, KIND).unwrap_or_default().into(),
            subresources: Vec::new(),
            selectable: Vec::new(),
            generation: Default::default(),
            ..ResourceInfo::clone(pattern)
        }
    });
    // A custom object takes no strategic merge patch, so its scale takes none either.
    let schema = RESOURCE.schema().cloned();
    Arc::new(ResourceInfo { namespaced: of.namespaced, origin: of.origin, schema, ..RESOURCE.clone() })
}

/// Returns the scale of an object. The definition of a custom kind names its fields; replicas that were never set are
/// an error.
pub(crate) fn of(resource: &ResourceInfo, object: &Value) -> Result<Value, Status> {
    let Some(scale) = defined(resource) else { return Ok(built_in(object)) };
    match object.pointer(&scale.replicas).and_then(Value::as_i64) {
        Some(replicas) => Ok(custom(scale, object, replicas)),
        None => {
            let path = scale.replicas.replace('/', ".");
            Err(Status::internal(&format!("the spec replicas field {path:?} does not exist")))
        }
    }
}

/// Returns the scale of an object that a write is about to change. Replicas that were never set count as 0.
pub(crate) fn before(resource: &ResourceInfo, object: &Value) -> Value {
    match defined(resource) {
        Some(scale) => {
            let replicas = object.pointer(&scale.replicas).and_then(Value::as_i64);
            custom(scale, object, replicas.unwrap_or(0))
        }
        None => built_in(object),
    }
}

fn defined(resource: &ResourceInfo) -> Option<&ScalePaths> {
    resource.custom.as_ref()?.scale.as_ref()
}

fn custom(scale: &ScalePaths, object: &Value, replicas: i64) -> Value {
    let current_replicas = object.pointer(&scale.replicas_now).and_then(Value::as_i64).unwrap_or(0);
    let selector = scale.selector.as_ref().and_then(|pointer| object.pointer(pointer)?.as_str());
    view(object, replicas, current_replicas, selector.unwrap_or_default())
}

fn built_in(object: &Value) -> Value {
    let replicas = object["spec"]["replicas"].as_i64().unwrap_or(REPLICAS);
    let current_replicas = object["status"]["replicas"].as_i64().unwrap_or(0);
    view(object, replicas, current_replicas, &selector(&object["spec"]["selector"]))
}

fn view(object: &Value, replicas: i64, current_replicas: i64, selector: &str) -> Value {
    let fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata = fields
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), object["metadata"].get(*field)?.clone())));
    let mut status = json!({ "replicas": current_replicas });
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({
        "kind": KIND,
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": metadata.collect::<serde_json::Map<_, _>>(),
        // Kubernetes omits a zero here.
        "spec": if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) },
        "status": status,
    })
}

/// Formats a selector as in a query. ReplicationControllers have plain labels instead of a selector.
fn selector(value: &Value) -> String {
    let is_bare = |value: &Value| value.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let labels = match is_bare(value) {
        true => LabelSelector::from_value(&json!({ "matchLabels": value })),
        false => LabelSelector::from_value(value),
    };
    labels.map(|labels| labels.to_string()).unwrap_or_default()
}

/// Returns the managed fields of an object's scale.
pub(crate) fn managed_fields(call: &Call, object: &Value) -> Option<Value> {
    let entries = object["metadata"].get("managedFields");
    let is_known_version = |version: &str| managed_fields::is_known_version(call, version);
    in_place(&call.resource, |place| apply::to_scale(entries, place, &is_known_version))
}

/// Returns the managed fields of an object whose scale has the managed fields `managed`.
pub(crate) fn managed_fields_of_object(call: &Call, object: &Value, managed: Option<Value>) -> ManagedFields {
    let entries = object["metadata"].get("managedFields");
    let is_known_version = |version: &str| managed_fields::is_known_version(call, version);
    let api_version = call.resource.api_version();
    let in_object =
        |place: &[&str]| apply::from_scale(entries, managed.as_ref(), place, &api_version, &is_known_version);
    ManagedFields::Known(in_place(&call.resource, in_object))
}

/// Runs `run` with the path of the replicas in the object.
fn in_place<R>(resource: &ResourceInfo, run: impl FnOnce(&[&str]) -> R) -> R {
    let Some(scale) = defined(resource) else { return run(&["spec", "replicas"]) };
    let steps: Vec<String> = steps(&scale.replicas).collect();
    run(&steps.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the fields that a JSON pointer names, from the outermost.
fn steps(pointer: &str) -> impl Iterator<Item = String> {
    pointer.split('/').skip(1).map(pointer::unescape)
}

/// Sets the replicas of an object to those of the scale.
pub(crate) fn applied(resource: &ResourceInfo, mut object: Value, scale: &Value) -> Result<Value, Status> {
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if let Some(defined) = defined(resource) {
        // The schema of the custom kind validates the number.
        set(&mut object, &defined.replicas, replicas);
        return Ok(object);
    }
    if replicas < 0 {
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Status::invalid(
            GroupResource::new(GROUP, KIND),
            metadata::text(scale, "name"),
            &[error],
        ));
    }
    object["spec"]["replicas"] = replicas.into();
    Ok(object)
}

/// Sets a number at a JSON pointer. Creates missing objects on the way.
fn set(object: &mut Value, pointer: &str, number: i64) {
    let mut place = object;
    for step in steps(pointer) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = number.into();
}

#[cfg(test)]
mod tests {
    use super::*;

    use openapi::catalog::resource_info::CustomResourceInfo;

    fn deployments() -> &'static ResourceInfo {
        catalog::find("apps", "v1", "deployments").unwrap()
    }

    #[test]
    fn a_scale_equals_that_of_kubernetes() {
        let deployment = json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" } },
            "spec": {
                "replicas": 2,
                "selector": {
                    "matchLabels": { "app": "web" },
                    "matchExpressions": [{ "key": "t", "operator": "In", "values": ["x", "y"] }],
                },
            },
            "status": { "replicas": 1 },
        });
        let expected = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": { "name": "web", "namespace": "default", "uid": "u", "resourceVersion": "7" },
            "spec": { "replicas": 2 },
            "status": { "replicas": 1, "selector": "app=web,t in (x,y)" },
        });
        assert_eq!(of(deployments(), &deployment).unwrap(), expected);
    }

    #[test]
    fn plain_labels_become_a_selector() {
        let rendered = |spec: Value| of(deployments(), &json!({ "metadata": {}, "spec": spec })).unwrap();
        assert_eq!(rendered(json!({ "selector": { "b": "2", "a": "1" } }))["status"]["selector"], "a=1,b=2");
        assert_eq!(rendered(json!({}))["status"], json!({ "replicas": 0 }));
        assert_eq!(rendered(json!({ "replicas": 0 }))["spec"], json!({}));
        assert_eq!(rendered(json!({}))["spec"], json!({ "replicas": 1 }));
    }

    #[test]
    fn a_custom_scale_uses_the_paths_of_its_definition() {
        let scale = ScalePaths {
            replicas: "/spec/size/count".into(),
            replicas_now: "/status/count".into(),
            selector: Some("/status/labels".into()),
        };
        let custom = CustomResourceInfo {
            warning: None,
            scale: Some(scale),
            versions: Default::default(),
            schema_hash: 0,
        };
        let resource =
            ResourceInfo { origin: Origin::Custom, custom: Some(Arc::new(custom)), ..deployments().clone() };
        let unset = json!({ "metadata": { "name": "a" }, "status": { "count": 2, "labels": "app=a" } });
        let error = of(&resource, &unset).unwrap_err();
        assert!(
            error.message.ends_with("the spec replicas field \".spec.size.count\" does not exist"),
            "{error:?}"
        );
        let object = applied(&resource, unset, &json!({ "spec": { "replicas": 3 } })).unwrap();
        let rendered = of(&resource, &object).unwrap();
        assert_eq!(rendered["spec"], json!({ "replicas": 3 }));
        assert_eq!(rendered["status"], json!({ "replicas": 2, "selector": "app=a" }));
    }

    #[test]
    fn negative_replicas_are_refused() {
        let scale =
            |replicas: i64| json!({ "metadata": { "name": "web" }, "spec": { "replicas": replicas } });
        let error = applied(deployments(), json!({}), &scale(-1)).unwrap_err().message;
        let expected = "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(error, expected);
        assert_eq!(
            applied(deployments(), json!({}), &scale(3)).unwrap(),
            json!({ "spec": { "replicas": 3 } })
        );
    }
}
