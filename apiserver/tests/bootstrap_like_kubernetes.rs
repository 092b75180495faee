//! A new logical cluster has the objects of a fresh Kubernetes cluster, field by field. Compares with a real one.

use std::collections::BTreeMap;

use apiserver::clusters::bootstrap;
use apiserver::clusters::bootstrap::BootstrapOptions;
use serde_json::Value;
use testkit::peers::Cluster;

/// Objects that only the real cluster has: accounts of its controllers, and records of its server.
const ELSEWHERE: &[&str] = &[
    "configmaps kube-system/extension-apiserver-authentication",
    "configmaps kube-system/kube-apiserver-legacy-service-account-token-tracking",
];

/// Objects that only a new logical cluster has.
const OURS: &[&str] = &["clusterroles holon:access"];

/// Returns an object without values that differ between any two clusters: uids, versions, times, managers. The
/// addresses of the service range and of the server are options.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        condition["lastTransitionTime"] = "then".into();
    }
    match object["kind"].as_str() {
        Some("ServiceCIDR") => object["spec"]["cidrs"] = "some".into(),
        Some("Service") => object["spec"]["ports"][0]["targetPort"] = "some".into(),
        _ => {}
    }
    object
}

fn name(resource: &str, object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{resource} {namespace}/{name}"),
        None => format!("{resource} {name}"),
    }
}

#[test]
#[ignore = "needs a real Kubernetes cluster"]
fn a_new_logical_cluster_has_the_objects_of_a_fresh_cluster() {
    let cluster = Cluster::start(&[]);
    let list = |resource: &str| -> Vec<Value> {
        let output = cluster.run(&["get", resource, "--all-namespaces", "-o", "json"], "");
        serde_json::from_str::<Value>(&output).unwrap()["items"].as_array().unwrap().clone()
    };
    let authority =
        std::fs::read_to_string(cluster.kubeconfig().with_file_name("pki").join("ca.crt")).unwrap();
    let surroundings =
        BootstrapOptions { authority: &authority, address: "192.0.2.10:6443".parse().unwrap() };
    let mut ours: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for object in bootstrap::objects(&surroundings) {
        let plural = object.collection.plural;
        if OURS.contains(&name(plural, &object.value).as_str()) {
            continue;
        }
        ours.entry(plural).or_default().insert(name(plural, &object.value), comparable(&object.value));
    }
    // This cluster runs on a loopback address, and Kubernetes publishes no endpoints for loopback addresses.
    for unpublished in ["endpoints", "endpointslices"] {
        assert!(ours.remove(unpublished).is_some());
    }
    for (plural, ours) in ours {
        let mut theirs = BTreeMap::new();
        for object in list(plural) {
            theirs.insert(name(plural, &object), comparable(&object));
        }
        let is_known = |name: &str| ELSEWHERE.contains(&name) || is_of_a_controller(name);
        theirs.retain(|name, _| ours.contains_key(name) || !is_known(name));
        for (name, object) in &ours {
            assert_eq!(Some(object), theirs.get(name), "{name}");
        }
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    }
}

/// kube-controller-manager creates an account for each of its controllers when it first starts one.
fn is_of_a_controller(name: &str) -> bool {
    name.starts_with("serviceaccounts kube-system/")
}
