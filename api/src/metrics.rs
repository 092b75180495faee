//! The resource metrics API, `metrics.k8s.io`, which `kubectl top` reads.

use serde_json::{Value, json};

/// Its group and version. Clients read it but never write it.
pub const METRICS: (&str, &str) = ("metrics.k8s.io", "v1beta1");

/// Returns custom resource definitions of PodMetrics and NodeMetrics. A server that stores no such objects applies
/// these, so that discovery lists the kinds and roles can name them.
pub fn definitions() -> [Value; 2] {
    let (group, version) = METRICS;
    [("pods", "PodMetrics", "Namespaced"), ("nodes", "NodeMetrics", "Cluster")].map(|(plural, kind, scope)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                // API servers require this annotation on definitions in a group that ends in k8s.io.
                "annotations": { "api-approved.kubernetes.io": "unapproved, read from the physical cluster" },
            },
            "spec": {
                "group": group, "scope": scope,
                "names": { "plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                }],
            },
        })
    })
}
