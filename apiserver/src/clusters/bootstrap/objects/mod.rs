//! The bootstrap objects: those of a new Kubernetes cluster.
//!
//! Each object is written as clients see it, except for the fields that differ between logical clusters: uids and
//! times. A new object here appears in every logical cluster, also in existing ones. An object must never be removed
//! from here: a user may have deleted it, and without it the bootstrap layer would take its tombstone for an ordinary
//! entry.

mod flow_control;
mod roles;

use std::net::{IpAddr, SocketAddr};

use serde_json::{Value, json};

use crate::clusters::bootstrap::template::{BootstrapObject, TIME};
use crate::clusters::service_cidr::{self, FIRST};
use crate::keys::Collection;
use crate::rbac;

/// The address and certificate of the server, which some objects contain.
#[derive(Clone, Debug)]
pub struct BootstrapOptions<'a> {
    /// The certificate of the server's authority, as PEM.
    pub authority: &'a str,
    /// The address at which clients reach the server.
    pub address: SocketAddr,
}

const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

/// The description in the config map with the CA certificate.
pub(crate) const ABOUT_THE_AUTHORITY: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using \
    internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed \
    across distributions of Kubernetes clusters.";

/// Name, value, description.
const PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Returns all bootstrap objects.
pub fn objects(surroundings: &BootstrapOptions<'_>) -> Vec<BootstrapObject> {
    let mut objects = Vec::new();
    let mut add = |group: &'static str, plural: &'static str, value: Value| {
        objects.push(BootstrapObject { collection: Collection { group, plural }, value });
    };
    for name in NAMESPACES {
        add("", "namespaces", namespace(name));
        add(
            "",
            "serviceaccounts",
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default", "namespace": name },
            }),
        );
        add("", "configmaps", authority(name, surroundings.authority));
    }
    let [service, endpoints, slice] = service(surroundings.address);
    add("", "services", service);
    add("", "endpoints", endpoints);
    add("discovery.k8s.io", "endpointslices", slice);
    add("networking.k8s.io", "ipaddresses", address());
    add("networking.k8s.io", "servicecidrs", service_range());
    for (name, value, description) in PRIORITY_CLASSES {
        add(
            "scheduling.k8s.io",
            "priorityclasses",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": { "name": name, "generation": 1 },
                "value": value, "preemptionPolicy": "PreemptLowerPriority", "description": description,
            }),
        );
    }
    for level in flow_control::LEVELS {
        add(flow_control::GROUP, "prioritylevelconfigurations", level.object());
    }
    for schema in flow_control::schemas() {
        add(flow_control::GROUP, "flowschemas", schema.object());
    }
    for (plural, object) in roles::objects() {
        add(rbac::GROUP, plural, object);
    }
    objects
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active" },
    })
}

/// Returns the config map with which pods verify the API server.
fn authority(namespace: &str, certificate: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "kube-root-ca.crt", "namespace": namespace,
            "annotations": { "kubernetes.io/description": ABOUT_THE_AUTHORITY },
        },
        "data": { "ca.crt": certificate },
    })
}

/// Returns the Service, Endpoints and EndpointSlice of the API server.
fn service(server: SocketAddr) -> [Value; 3] {
    let metadata = |labels: Value| json!({ "name": "kubernetes", "namespace": "default", "labels": labels });
    let ports = json!([{ "name": "https", "port": server.port(), "protocol": "TCP" }]);
    let mut slice_metadata = metadata(json!({ "kubernetes.io/service-name": "kubernetes" }));
    slice_metadata["generation"] = 1.into();
    let family = match server.ip() {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    [
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": metadata(json!({ "component": "apiserver", "provider": "kubernetes" })),
            "spec": {
                "clusterIP": FIRST, "clusterIPs": [FIRST], "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": server.port() }],
                "sessionAffinity": "None", "type": "ClusterIP",
            },
            "status": { "loadBalancer": {} },
        }),
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            // The EndpointSlice exists already, so no controller needs to mirror the Endpoints.
            "metadata": metadata(json!({ "endpointslice.kubernetes.io/skip-mirror": "true" })),
            "subsets": [{ "addresses": [{ "ip": server.ip() }], "ports": ports }],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": slice_metadata,
            "addressType": family,
            "endpoints": [{ "addresses": [server.ip()], "conditions": { "ready": true } }],
            "ports": ports,
        }),
    ]
}

/// Returns the IPAddress of that Service.
fn address() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {
            "name": FIRST,
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": { "parentRef": { "name": "kubernetes", "namespace": "default", "resource": "services" } },
    })
}

fn service_range() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": { "name": "kubernetes", "finalizers": ["networking.k8s.io/service-cidr-finalizer"] },
        "spec": { "cidrs": [service_cidr::cidr()] },
        "status": { "conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready",
            "lastTransitionTime": TIME,
        }] },
    })
}
