//! Subresources of pods that act: binding and eviction.

use api::meta::field;
use api::meta::field::FieldError;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::{GroupResource, Status};
use openapi::schema::builtin;
use serde_json::{Value, json};
use storage::{Change, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::update::Version;
use crate::endpoints::{delete, eviction, get, update};
use crate::http::body::Body;
use crate::kinds::Kinds;
use crate::objects::metadata;
use crate::registry::call::Call;
use crate::registry::decode;
use crate::registry::metadata::set_namespace;
use crate::request::negotiation::JSON;
use crate::response::render::Style;

/// `POST …/pods/NAME/binding`, and the legacy `POST …/bindings`.
pub(crate) async fn bind(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let binding = sent(call, "", "v1", "Binding", bytes)?;
    let name = metadata::text(&binding, "name");
    if call.name.as_deref().is_some_and(|path_name| path_name != name) {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    bindable(&binding)?;
    let pod = pod(call, name)?;
    for _ in 0..ATTEMPTS {
        let current = get::find_current(store, &pod).await?;
        // A binding with a uid must not bind another pod of the same name.
        update::expected(&pod, name, &binding, &current, Version::May)?;
        let old = &current.object;
        let new = bound(old.clone(), &binding)
            .map_err(|why| Status::conflict(GroupResource::new("", "pods/binding"), name, &why))?;
        pod.validate_admission(name, Some(old), Some(&new)).await?;
        let change = Change::Put(pod.encode(&new));
        if update::commit(store, &pod, &current.entry, change).await?.is_some() {
            return Ok(style.status(&Status::done(201)));
        }
    }
    Err(Status::modified(pod.grouped(), name))
}

/// `POST …/pods/NAME/eviction`: a deletion that first checks the disruption budget.
pub(crate) async fn evict(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let eviction = sent(call, "policy", "v1", "Eviction", bytes)?;
    let (name, _) = call.name_and_key()?;
    if metadata::text(&eviction, "name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut pod = pod(call, name)?;
    let entry = get::find(store, &pod).await?;
    let options = &eviction["deleteOptions"];
    let dry = call.query.dry_run() || options["dryRun"].as_array().is_some_and(|values| !values.is_empty());
    let tree = pod.tree(&entry)?;
    let admission_call = Call { subresource: call.subresource.clone(), ..pod.clone() };
    admission_call.validate_admission(name, Some(&tree), None).await?;
    eviction::spare(store, &pod, &tree, dry).await?;
    // The rest is an ordinary deletion.
    pod.headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    let options = if options.is_null() { Bytes::new() } else { options.to_string().into() };
    delete::delete(store, &pod, style, &options).await?;
    Ok(style.status(&Status::done(201)))
}

/// Decodes the body as an object of a kind that is not stored.
pub(crate) fn sent(
    call: &Call,
    group: &str,
    version: &str,
    kind: &str,
    bytes: &Bytes,
) -> Result<Value, Status> {
    let type_name = builtin::type_name(group, version, kind).unwrap_or_default();
    let resource = ResourceInfo {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        type_name: type_name.into(),
        ..ResourceInfo::clone(&call.resource)
    };
    let mut object = decode::object(&Call { resource: resource.into(), ..call.clone() }, bytes)?.object;
    set_namespace(call, &mut object)?;
    Ok(object)
}

/// Returns the same request for the pod itself.
fn pod(call: &Call, name: &str) -> Result<Call, Status> {
    let resource = Kinds::built_in().find("", "v1", "pods").ok_or_else(Status::unknown_path)?;
    Ok(Call { resource: resource.clone(), name: Some(name.to_owned()), subresource: None, ..call.clone() })
}

/// Validates a binding. Kubernetes answers 500 to an invalid one, but the client made the error.
fn bindable(binding: &Value) -> Result<(), Status> {
    let target = |field: &str| binding["target"][field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !["", "Node"].contains(&target("kind")) {
        errors.push(FieldError::not_supported("target.kind", target("kind"), &["Node", "<empty>"]));
    }
    if target("name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::bad_request(field::summary(&errors)))
}

/// Returns the pod assigned to its node, or the reason of the refusal.
fn bound(mut pod: Value, binding: &Value) -> Result<Value, String> {
    let name = metadata::text(&pod, "name");
    if metadata::is_being_deleted(&pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": metadata::now(),
    });
    let conditions = &mut pod["status"]["conditions"];
    match conditions.as_array_mut() {
        Some(conditions) => {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(scheduled);
        }
        None => *conditions = json!([scheduled]),
    }
    Ok(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::catalog;

    #[test]
    fn a_pod_is_bound_once() {
        let binding =
            json!({ "metadata": { "name": "p", "annotations": { "x": "y" } }, "target": { "name": "n" } });
        let pod = json!({ "metadata": { "name": "p" }, "spec": {}, "status": { "phase": "Pending" } });
        let bound_pod = bound(pod, &binding).unwrap();
        assert_eq!(bound_pod["spec"]["nodeName"], "n");
        assert_eq!(bound_pod["metadata"]["annotations"], json!({ "x": "y" }));
        assert_eq!(bound_pod["status"]["conditions"][0]["status"], "True");
        assert_eq!(bound(bound_pod, &binding).unwrap_err(), "pod p is already assigned to node \"n\"");
    }

    #[test]
    fn a_binding_must_name_a_node() {
        let error_of =
            |target: Value| bindable(&json!({ "target": target })).map_err(|status| status.message);
        assert_eq!(error_of(json!({ "name": "n" })), Ok(()));
        let expected = "[target.kind: Unsupported value: \"Nod\": supported values: \"Node\", \"<empty>\", target.name: Required value]";
        assert_eq!(error_of(json!({ "kind": "Nod" })), Err(expected.to_owned()));
    }

    #[test]
    fn kinds_of_request_bodies_are_in_the_catalogue() {
        for (group, kind) in [("", "Binding"), ("policy", "Eviction")] {
            assert!(builtin::type_name(group, "v1", kind).is_some(), "{kind}");
        }
        assert!(catalog::find("", "v1", "bindings").is_some());
    }
}
