//! A newborn has what a fresh Kubernetes cluster has, field by field. Asks a real one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use apiserver::newborn::{self, Surroundings};
use serde_json::Value;

/// What the real cluster has and a newborn has not: its controllers' accounts, and what its server notes for others.
const ELSEWHERE: &[&str] = &[
    "configmaps kube-system/extension-apiserver-authentication",
    "configmaps kube-system/kube-apiserver-legacy-service-account-token-tracking",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Whether the peers are there. If not, says that this is skipped, or fails where peers are required.
fn present() -> Option<PathBuf> {
    let bin = Command::new(root().join("hack/peers")).arg("--bin").output().unwrap();
    let bin = PathBuf::from(String::from_utf8(bin.stdout).unwrap().trim());
    let needed = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];
    if needed.iter().all(|name| bin.join(name).exists()) {
        return Some(bin.join("kubectl"));
    }
    let told = "newborns are compared with a real cluster only if its programs are there; run hack/peers";
    assert!(std::env::var_os("HOLON_REQUIRE_PEERS").is_none(), "{told}");
    // Past the harness, which hides what a passing test prints.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {told}\n").as_bytes());
    None
}

/// Taken down whatever happens.
struct Cluster(tempfile::TempDir);

impl Cluster {
    fn hack(&self, verb: &str) {
        let mut command = Command::new(root().join("hack/cluster"));
        let output = command.args([verb, "newborn"]).env("HOLON_CLUSTERS", self.0.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("newborn").join(name)
    }

    fn list(&self, kubectl: &Path, resource: &str) -> Vec<Value> {
        let mut command = Command::new(kubectl);
        command.arg("--kubeconfig").arg(self.file("kubeconfig")).arg("--cache-dir").arg(self.file("cache"));
        let output = command.args(["get", resource, "--all-namespaces", "-o", "json"]).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        list["items"].as_array().unwrap().clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.hack("down");
    }
}

/// Without what differs between any two clusters: uids, versions, times, who wrote it. The addresses of the service
/// range and of the server are chosen by whoever starts them.
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
fn a_newborn_has_what_a_fresh_cluster_has() {
    let Some(kubectl) = present() else { return };
    let cluster = Cluster(tempfile::tempdir().unwrap());
    cluster.hack("up");
    let authority = std::fs::read_to_string(cluster.file("pki/ca.crt")).unwrap();
    let surroundings = Surroundings { authority: &authority, address: "192.0.2.10:6443".parse().unwrap() };
    let mut ours: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    for object in newborn::objects(&surroundings) {
        let plural = object.collection.plural;
        ours.entry(plural).or_default().insert(name(plural, &object.value), comparable(&object.value));
    }
    // This cluster runs on a loopback address, and Kubernetes publishes no endpoints that lead there.
    for unpublished in ["endpoints", "endpointslices"] {
        assert!(ours.remove(unpublished).is_some());
    }
    for (plural, ours) in ours {
        let mut theirs = BTreeMap::new();
        for object in cluster.list(&kubectl, plural) {
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

/// kube-controller-manager makes an account for each of its controllers when it first starts one.
fn is_of_a_controller(name: &str) -> bool {
    name.starts_with("serviceaccounts kube-system/")
}
