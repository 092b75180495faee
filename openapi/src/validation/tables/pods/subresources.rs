//! Rules for writes to `resize` and `ephemeralcontainers`: which fields they may change. The pod itself has been
//! validated before, like any other pod.

use serde_json::{Value, json};

use crate::defaulting;
use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::value::{at, get, has, items, same, text};
use api::meta::field::FieldError;

use super::update::MIRROR;

/// The resources that a resize can change; a change of any other field is an error.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const AMOUNTS: [&str; 2] = ["requests", "limits"];

/// Checks that ephemeral containers are only added, neither removed nor changed.
pub(crate) fn validate_ephemeral_containers(old: &Value, new: &Value, found: &mut FieldErrors) {
    super::validate_annotation_update(old, new, found);
    if is_static(old) {
        return refuse(found, "static pods do not support ephemeral containers");
    }
    let field = FieldPath::TOP.field("spec.ephemeralContainers");
    let news = items(get(new, "spec"), "ephemeralContainers");
    for container in items(get(old, "spec"), "ephemeralContainers") {
        let name = text(container, "name");
        // Of two with the same name the last one counts, as in Kubernetes. The duplicate is reported separately.
        let change = match news.iter().rfind(|new| text(new, "name") == name) {
            None => "removed",
            Some(now) if !same(now, container) => "changed",
            Some(_) => continue,
        };
        found.forbidden(&field, format!("existing ephemeral containers {name:?} may not be {change}\n"));
    }
}

/// Checks that a resize changes only cpu and memory of containers, and not the QoS class of the pod.
pub(crate) fn validate_resize(old: &Value, new: &Value, found: &mut FieldErrors) {
    if is_static(old) {
        return refuse(found, "static pods cannot be resized");
    }
    if at(old, "spec.os.name") == "windows" {
        return refuse(found, "windows pods cannot be resized");
    }
    let (spec, path) = (get(new, "spec"), FieldPath::TOP.field("spec"));
    let class = text(get(old, "status"), "qosClass");
    let before = if class.is_empty() { defaulting::qos_class(get(old, "spec")) } else { class };
    if before != defaulting::qos_class(spec) {
        let qos_class = text(get(new, "status"), "qosClass");
        found.invalid(&path, qos_class, "Pod QOS Class may not change as a result of resizing");
    }
    if !is_resize_supported(old) {
        found.forbidden(&path, "Pod running on node without support for resize");
    }
    let old = get(old, "spec");
    pod_level(old, spec, &path, found);
    if !same_containers(old, spec, &path, found) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (index, (old, new)) in items(old, list).iter().zip(items(spec, list)).enumerate() {
            nothing_removed(
                get(old, "resources"),
                get(new, "resources"),
                &path.field(list).index(index),
                found,
            );
        }
    }
    for (old, new) in items(old, "containers").iter().zip(items(spec, "containers")) {
        if !same(old, &unresized(old, new)) {
            found.forbidden(&path, "only cpu and memory resources are mutable");
        }
    }
    let pairs = items(old, "initContainers").iter().zip(items(spec, "initContainers"));
    for (index, (old, new)) in pairs.enumerate() {
        init_container(old, new, &path.field("initContainers").index(index), found);
    }
    let mut restored = spec.clone();
    for field in ["containers", "initContainers", "resources"] {
        restored[field] = get(old, field).clone();
    }
    if found.errors.is_empty() && !same(old, &restored) {
        found.forbidden(&path, "only cpu and memory resources are mutable");
    }
}

fn is_static(pod: &Value) -> bool {
    has(at(pod, "metadata.annotations"), MIRROR)
}

/// Replaces all errors by this one. As in Kubernetes, it has no field.
fn refuse(found: &mut FieldErrors, detail: &str) {
    found.errors = vec![FieldError::forbidden("[]", detail)];
}

/// Reports whether the kubelet supports resizing: then it reports the resources of a running container. Without a
/// running container that is unknown, and allowed.
fn is_resize_supported(pod: &Value) -> bool {
    let mut statuses = items(get(pod, "status"), "containerStatuses").iter();
    let running = statuses.find(|status| has(get(status, "state"), "running"));
    running.is_none_or(|status| has(status, "resources"))
}

/// Validates a change of the resources of the whole pod.
fn pod_level(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    let (old, new, field) = (get(old, "resources"), get(new, "resources"), at.field("resources"));
    let is_set = |resources: &Value| {
        AMOUNTS.iter().any(|list| get(resources, list).as_object().is_some_and(|all| !all.is_empty()))
    };
    if !is_set(old) && !is_set(new) {
        return;
    }
    if !old.is_null() && new.is_null() {
        return found.forbidden(&field, "pod-level resources cannot be removed");
    }
    for list in AMOUNTS {
        if !old.is_null() && is_removed(get(old, list), get(new, list)) {
            found.forbidden(&field.field(list), format!("pod-level resource {list} cannot be removed"));
        }
    }
    let mut restored = new.clone();
    AMOUNTS.iter().for_each(|list| restored[*list] = restore(get(old, list), get(new, list)));
    if !same(old, &restored) {
        found.forbidden(at, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Checks that containers are neither added, removed, renamed nor reordered.
fn same_containers(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) -> bool {
    let before = found.count();
    for list in ["containers", "initContainers"] {
        let (olds, news, at) = (items(old, list), items(new, list), at.field(list));
        if olds.len() != news.len() {
            found.forbidden(&at, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (index, (old, new)) in olds.iter().zip(news).enumerate() {
            if text(old, "name") != text(new, "name") {
                let detail = format!("{list} may not be renamed or reordered on resize");
                found.forbidden(&at.index(index).field("name"), detail);
            }
        }
    }
    found.count() == before
}

fn nothing_removed(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    for list in AMOUNTS {
        if is_removed(get(old, list), get(new, list)) {
            let at = at.field("resources");
            found.forbidden(&at.field(list), format!("resource {list} cannot be removed"));
        }
    }
}

fn is_removed(old: &Value, new: &Value) -> bool {
    old.as_object().into_iter().flatten().any(|(name, _)| !has(new, name))
}

/// Returns the new quantities with the old cpu and memory.
fn restore(old: &Value, new: &Value) -> Value {
    let mut amounts = new.as_object().cloned().unwrap_or_default();
    for name in RESIZABLE {
        amounts.remove(name);
        amounts.extend(old.get(name).map(|amount| (name.to_owned(), amount.clone())));
    }
    amounts.into()
}

/// Returns the new container with its old cpu and memory. Its device claims are dropped: as in Kubernetes, a container
/// with claims cannot be resized.
fn unresized(old: &Value, new: &Value) -> Value {
    let (before, after) = (get(old, "resources"), get(new, "resources"));
    let mut container = new.clone();
    container["resources"] = json!({
        "limits": restore(get(before, "limits"), get(after, "limits")),
        "requests": restore(get(before, "requests"), get(after, "requests")),
    });
    container
}

fn init_container(old: &Value, new: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
    if !same(old, &unresized(old, new)) {
        found.forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable");
    }
    let is_sidecar = text(new, "restartPolicy") == "Always";
    if is_sidecar || same(old, new) {
        return;
    }
    for policy in items(new, "resizePolicy") {
        if text(policy, "restartPolicy") == "RestartContainer" {
            let detail =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            found.forbidden(at, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalog, validation};

    fn pod() -> Value {
        let row = catalog::find("", "v1", "pods").unwrap();
        let amounts =
            json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2", "ephemeral-storage": "1Gi" } });
        let mut pod = json!({
            "metadata": { "name": "p", "namespace": "n" },
            "spec": {
                "containers": [{ "name": "c", "image": "i", "resources": amounts }, { "name": "d", "image": "i" }],
                "ephemeralContainers": [{ "name": "e", "image": "i" }],
            },
            "status": { "qosClass": "Burstable" },
        });
        defaulting::apply_defaults(row, &mut pod);
        pod
    }

    fn errors_of(subresource: &str, pointer: &str, value: Value) -> Vec<String> {
        let row = catalog::find("", "v1", "pods").unwrap();
        let (old, mut new) = (pod(), pod());
        *new.pointer_mut(pointer).unwrap() = value;
        defaulting::apply_defaults(row, &mut new);
        let errors = validation::validate_subresource(row, subresource, &old, &new);
        errors.iter().map(|error| format!("{}: {}", error.field, error.body())).collect()
    }

    /// Regression: each of these was accepted and left the pod with a spec that every later write was rejected for.
    #[test]
    fn a_resize_is_checked_as_the_pod_itself() {
        let amounts = "/spec/containers/0/resources";
        let validate = |pointer: &str, value: Value, expected: &[&str]| {
            assert_eq!(errors_of("resize", pointer, value), expected, "{pointer}");
        };
        let cpu = |limit: &str, request: &str| json!({ "requests": { "cpu": request }, "limits": { "cpu": limit, "ephemeral-storage": "1Gi" } });
        validate(amounts, cpu("3", "2"), &[]);
        let at = "spec.containers[0].resources";
        let negative =
            format!("{at}.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0");
        validate(amounts, cpu("2", "-1"), &[&negative]);
        let more =
            format!("{at}.requests: Invalid value: \"3\": must be less than or equal to cpu limit of 2");
        validate(amounts, cpu("2", "3"), &[&more]);
        let removed = format!("{at}.limits: Forbidden: resource limits cannot be removed");
        let other = "spec: Forbidden: only cpu and memory resources are mutable";
        validate(
            amounts,
            json!({ "requests": { "cpu": "1", "ephemeral-storage": "1Gi" } }),
            &[&removed, other],
        );
        let storage =
            json!({ "requests": { "cpu": "1" }, "limits": { "cpu": "2", "ephemeral-storage": "2Gi" } });
        validate(amounts, storage, &[other]);
        let renamed =
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize";
        validate("/spec/containers/0/name", json!("x"), &[renamed]);
        let fewer = "spec.containers: Forbidden: containers may not be added or removed on resize";
        validate("/spec/containers", json!([pod()["spec"]["containers"][0]]), &[fewer]);
        validate("/spec/containers/0/image", json!("other"), &[other]);
        validate("/spec/schedulerName", json!("other"), &[other]);
    }

    /// Regression: a container without an image, or with a duplicate name, was accepted. Every later write to the pod
    /// was rejected, because an ephemeral container cannot be removed.
    #[test]
    fn ephemeral_containers_are_checked_and_only_added() {
        let validate = |containers: Value, expected: &[&str]| {
            assert_eq!(errors_of("ephemeralcontainers", "/spec/ephemeralContainers", containers), expected);
        };
        let first = json!({ "name": "e", "image": "i" });
        validate(json!([first, { "name": "f", "image": "i" }]), &[]);
        validate(json!([first, { "name": "f" }]), &["spec.ephemeralContainers[1].image: Required value"]);
        let taken = "spec.ephemeralContainers[1].name: Duplicate value: \"c\"";
        validate(json!([first, { "name": "c", "image": "i" }]), &[taken]);
        let gone =
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n";
        validate(json!([]), &[gone]);
        let other =
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n";
        validate(json!([{ "name": "e", "image": "j" }]), &[other]);
    }
}
