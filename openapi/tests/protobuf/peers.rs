//! The same objects from a real kube-apiserver in both forms.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use openapi::protobuf;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn hack(script: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack").join(script))
}

/// A cluster behind `kubectl proxy`, which speaks plain HTTP; both end when dropped.
struct Cluster {
    kubectl: PathBuf,
    state: tempfile::TempDir,
    proxy: Option<(Child, String)>,
}

impl Cluster {
    fn up(kubectl: PathBuf) -> Cluster {
        let mut cluster = Cluster { kubectl, state: tempfile::tempdir().unwrap(), proxy: None };
        let up = cluster.cluster("up");
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let mut proxy = cluster.kubectl(&["proxy", "--port=0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().rsplit(' ').next().unwrap().to_owned();
        cluster.proxy = Some((proxy, address));
        cluster
    }

    fn cluster(&self, verb: &str) -> Output {
        hack("cluster").args([verb, "protobuf"]).env("HOLON_CLUSTERS", self.state.path()).output().unwrap()
    }

    fn kubectl(&self, arguments: &[&str]) -> Command {
        let mut kubectl = Command::new(&self.kubectl);
        kubectl.args(arguments).env("KUBECONFIG", self.state.path().join("protobuf/kubeconfig"));
        kubectl
    }

    fn create(&self, object: &Value) {
        let mut kubectl = self.kubectl(&["create", "-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
        kubectl.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
        assert!(kubectl.wait().unwrap().success(), "{object}");
    }

    /// The body and its type. HTTP/1.0 has no chunks: the answer ends where the connection does.
    fn get(&self, path: &str, accept: &str) -> (String, Vec<u8>) {
        let (_, address) = self.proxy.as_ref().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        (kind.to_owned(), answer.split_off(end))
    }

    fn json(&self, path: &str) -> Value {
        let (_, body) = self.get(path, JSON);
        serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{path}: {}", String::from_utf8_lossy(&body)))
    }

    /// Every collection that is stored: what can be listed but not watched is made up when asked for.
    fn collections(&self) -> Vec<String> {
        let groups = self.json("/apis");
        let groups = groups["groups"].as_array().unwrap().iter();
        let versions = groups
            .map(|group| format!("/apis/{}", group["preferredVersion"]["groupVersion"].as_str().unwrap()));
        let mut found = Vec::new();
        for version in std::iter::once("/api/v1".to_owned()).chain(versions) {
            let resources = self.json(&version);
            for resource in resources["resources"].as_array().unwrap() {
                if resource["verbs"].as_array().unwrap().contains(&json!("watch")) {
                    found.push(format!("{version}/{}", resource["name"].as_str().unwrap()));
                }
            }
        }
        found
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some((proxy, _)) = &mut self.proxy {
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
        self.cluster("down");
    }
}

fn populate(cluster: &Cluster) {
    let create =
        |arguments: &[&str]| assert!(cluster.kubectl(arguments).status().unwrap().success(), "{arguments:?}");
    create(&["create", "deployment", "web", "--image=web:1", "--replicas=2", "--port=80"]);
    create(&["create", "configmap", "settings", "--from-literal=colour=blue"]);
    create(&["create", "ingress", "front", "--rule=shop.example/*=web:80"]);
    create(&["create", "quota", "small", "--hard=cpu=2,memory=4Gi"]);
    create(&["create", "pdb", "web", "--selector=app=web", "--min-available=50%"]);
    create(&["expose", "deployment", "web"]);
    create(&["autoscale", "deployment", "web", "--max=5"]);
    create(&["create", "cronjob", "nightly", "--image=job:1", "--schedule=0 3 * * *"]);
    cluster.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "orders.shop.example"},
        "spec": {
            "group": "shop.example", "scope": "Namespaced", "names": {"plural": "orders", "kind": "Order"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {
                    "type": "object", "default": {"size": 1}, "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"size": {"type": "number", "minimum": 0, "maximum": 9.5}},
                }},
            }}}],
        },
    }));
    create(&["rollout", "status", "deployment/web", "--timeout=60s"]);
}

/// Compares one collection; whether it had anything in it.
fn check_collection(cluster: &Cluster, path: &str) -> bool {
    let listed = cluster.json(path);
    let revision =
        listed["metadata"]["resourceVersion"].as_str().unwrap_or_else(|| panic!("{path}: {listed}"));
    let same = format!("{path}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let (kind, body) = cluster.get(&same, PROTOBUF);
    assert_eq!(kind, PROTOBUF, "{path}: {}", String::from_utf8_lossy(&body));
    let decoded = protobuf::decode(&body).unwrap_or_else(|error| panic!("{path}: {error}"));
    if listed["items"] == json!([]) {
        // An empty list cannot be told from an absent one in protobuf.
        assert_eq!(decoded.value["items"], Value::Null, "{path}");
        return false;
    }
    assert_eq!(decoded.value, listed, "{path}");
    let encoded = protobuf::encode(&listed).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(encoded == body, "{path} is encoded as\n{encoded:02x?} and not\n{body:02x?}");
    true
}

/// Compares a collection of which only the metadata is asked for.
fn check_partial(cluster: &Cluster, path: &str) {
    let partial = |media: &str| format!("{media};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let listed: Value = serde_json::from_slice(&cluster.get(path, &partial(JSON)).1).unwrap();
    assert_eq!(listed["kind"], "PartialObjectMetadataList");
    assert_eq!(protobuf::encode(&listed).unwrap(), cluster.get(path, &partial(PROTOBUF)).1, "{path}");
}

/// Compares the frames of a watch.
fn check_watch(cluster: &Cluster, path: &str) {
    let query = format!("{path}?watch=1&timeoutSeconds=1");
    let events = cluster.get(&query, JSON).1;
    let (_, frames) = cluster.get(&query, &format!("{PROTOBUF};stream=watch"));
    let mut ours = Vec::new();
    for line in String::from_utf8(events).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let object = protobuf::encode(&event["object"]).unwrap();
        ours.extend(protobuf::watch_frame(event["type"].as_str().unwrap(), &object));
    }
    assert!(!ours.is_empty());
    assert_eq!(ours, frames, "{path}\nours:   {ours:02x?}\ntheirs: {frames:02x?}");
}

#[test]
fn a_real_server_says_the_same_in_json_and_in_protobuf() {
    let needed = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl"];
    let bin = String::from_utf8(hack("peers").arg("--bin").output().unwrap().stdout).unwrap();
    let bin = Path::new(bin.trim());
    let missing: Vec<_> = needed.into_iter().filter(|name| !bin.join(name).exists()).collect();
    if !missing.is_empty() {
        let needs = format!("the peers {}", missing.join(", "));
        return super::skip("a_real_server_says_the_same_in_json_and_in_protobuf", &needs);
    }

    let cluster = Cluster::up(bin.join("kubectl"));
    populate(&cluster);
    let collections = cluster.collections();
    // A custom kind is served as JSON whatever is asked for.
    let built_in = collections.iter().filter(|path| !path.contains("shop.example"));
    let compared: BTreeSet<_> = built_in.filter(|path| check_collection(&cluster, path)).collect();
    for path in [
        "/api/v1/pods",
        "/apis/apps/v1/deployments",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ] {
        assert!(compared.contains(&path.to_owned()), "{path} is among {compared:?}");
    }
    println!("{} of {} collections had objects to compare", compared.len(), collections.len());
    check_partial(&cluster, "/api/v1/namespaces/default/configmaps");
    check_watch(&cluster, "/api/v1/namespaces/default/configmaps");
    check_watch(&cluster, "/apis/apps/v1/namespaces/default/deployments");
}
