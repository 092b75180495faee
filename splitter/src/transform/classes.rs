//! Cluster-scoped objects that others name: PriorityClasses, RuntimeClasses, StorageClasses and IngressClasses.
//!
//! They are not sent: a tenant's PriorityClass would preempt the pods of others. A physical cluster has its own, and
//! its admin may map the names that logical clusters use to those (`spec.classMappings`). Missing classes are reported
//! to the user, because the physical cluster refuses a pod that names one, and a claim waits for ever.

use api::fleet::{ClassKind, ClassMapping, PhysicalCluster};
use serde_json::Value;

use super::references::pod_spec_at;
use super::server_fields::at_each;

/// Paths of class names in a pod spec. `*` is every item of a list.
const OF_PODS: &[(ClassKind, &[&str])] = &[
    (ClassKind::PriorityClass, &["priorityClassName"]),
    (ClassKind::RuntimeClass, &["runtimeClassName"]),
    (
        ClassKind::StorageClass,
        &["volumes", "*", "ephemeral", "volumeClaimTemplate", "spec", "storageClassName"],
    ),
];

/// Paths of class names in other objects, by group and kind.
const OF_KINDS: &[(&str, &str, ClassKind, &[&str])] = &[
    (
        "apps",
        "StatefulSet",
        ClassKind::StorageClass,
        &["spec", "volumeClaimTemplates", "*", "spec", "storageClassName"],
    ),
    ("", "PersistentVolumeClaim", ClassKind::StorageClass, &["spec", "storageClassName"]),
    ("networking.k8s.io", "Ingress", ClassKind::IngressClass, &["spec", "ingressClassName"]),
];

/// Replaces the class names in an object with those of a physical cluster.
pub(super) fn map_names(object: &mut Value, mappings: &[ClassMapping]) {
    if mappings.is_empty() {
        return;
    }
    visit(object, &mut |kind, name| {
        let mapping = mappings.iter().find(|mapping| mapping.kind == kind && mapping.from == *name);
        if let Some(mapping) = mapping {
            name.clone_from(&mapping.to);
        }
    });
}

/// The classes that a transformed object names and a physical cluster is known to lack.
pub fn missing(object: &Value, cluster: &PhysicalCluster) -> Vec<(ClassKind, String)> {
    let known = cluster.status.as_ref().map(|status| status.classes.as_slice()).unwrap_or_default();
    let lacks = |kind: ClassKind, name: &str| {
        let reported = known.iter().find(|row| row.kind == kind);
        reported.is_some_and(|row| !row.truncated && !row.names.iter().any(|one| one == name))
    };
    let mut missing = Vec::new();
    visit(&mut object.clone(), &mut |kind, name| {
        if !name.is_empty() && lacks(kind, name) && !missing.contains(&(kind, name.clone())) {
            missing.push((kind, name.clone()));
        }
    });
    missing
}

/// The missing classes of a cluster as a message, with what to do.
pub fn missing_message(missing: &[(ClassKind, String)], cluster: &str) -> String {
    let names: Vec<String> = missing.iter().map(|(kind, name)| format!("{kind:?} {name}")).collect();
    format!(
        "{cluster} has no {}; an admin can create it there, or map the name in spec.classMappings of PhysicalCluster \
         {cluster}",
        names.join(", ")
    )
}

/// Visits the name of every class that an object names.
fn visit(object: &mut Value, visit: &mut dyn FnMut(ClassKind, &mut String)) {
    let mut name = |kind: ClassKind, value: &mut Value| {
        if let Value::String(name) = value {
            visit(kind, name);
        }
    };
    let (group, kind) = super::group_kind(object);
    let rows: Vec<_> = OF_KINDS.iter().filter(|(of, named, ..)| *of == group && *named == kind).collect();
    for (_, _, class, path) in rows {
        at_each(object, path, &mut |value| name(*class, value));
    }
    if let Some(pod) = pod_spec_at(object).and_then(|at| object.pointer_mut(at)) {
        for (class, path) in OF_PODS {
            at_each(pod, path, &mut |value| name(*class, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster() -> PhysicalCluster {
        serde_json::from_value(json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster", "metadata": { "name": "west" },
            "spec": {}, "status": { "classes": [
                { "kind": "PriorityClass", "names": ["low"] },
                { "kind": "StorageClass", "names": [], "truncated": true },
            ] },
        }))
        .unwrap()
    }

    fn deployment() -> Value {
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": {
            "priorityClassName": "high", "runtimeClassName": "gvisor", "containers": [],
            "volumes": [{ "ephemeral": { "volumeClaimTemplate": { "spec": { "storageClassName": "fast" } } } }],
        } } } })
    }

    /// Pods that named a PriorityClass of their logical cluster were never created on a physical cluster without a class of
    /// that name, and the user got no condition or Event.
    #[test]
    fn missing_classes_are_named_only_if_the_classes_are_known() {
        let found = missing(&deployment(), &cluster());
        assert_eq!(found, [(ClassKind::PriorityClass, "high".to_owned())]);
        assert_eq!(
            missing_message(&found, "west"),
            "west has no PriorityClass high; an admin can create it there, or map the name in spec.classMappings of \
             PhysicalCluster west"
        );
        assert_eq!(missing(&deployment(), &PhysicalCluster::default()), []);
    }

    #[test]
    fn class_names_are_mapped() {
        let mapping = |kind, from: &str, to: &str| ClassMapping { kind, from: from.into(), to: to.into() };
        let mappings = [
            mapping(ClassKind::PriorityClass, "high", "low"),
            mapping(ClassKind::StorageClass, "fast", "ssd"),
            mapping(ClassKind::IngressClass, "gvisor", "no"),
        ];
        let mut mapped = deployment();
        map_names(&mut mapped, &mappings);
        let pod = &mapped["spec"]["template"]["spec"];
        assert_eq!((&pod["priorityClassName"], &pod["runtimeClassName"]), (&json!("low"), &json!("gvisor")));
        let claim = &pod["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"];
        assert_eq!(claim["storageClassName"], "ssd");
        assert_eq!(missing(&mapped, &cluster()), []);
        let mut set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet",
            "spec": { "volumeClaimTemplates": [{ "spec": { "storageClassName": "fast" } }] } });
        map_names(&mut set, &mappings);
        assert_eq!(set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"], "ssd");
    }
}
