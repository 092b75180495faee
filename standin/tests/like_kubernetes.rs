//! The statuses that a stand-in's controllers write equal those of Kubernetes, field by field.
//!
//! The same objects are applied to a stand-in and to a real cluster with the released kube-controller-manager and
//! scheduler, and kwok instead of kubelets. Names, uids and times differ; everything else must be equal.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use standin::{NodeShape, Options, Standin};
use testkit::peers::Cluster;
use testkit::{Kubectl, until};

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {note: hi}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1", ports: [{name: http, containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 50%, selector: {matchLabels: {app: web}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: db}
spec: {minAvailable: 1, selector: {matchLabels: {app: db}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  ordinals: {start: 3}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: pg}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: agent}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  completions: 3
  parallelism: 2
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: idx}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: busybox}]}
"#;

/// One of the two clusters.
struct ComparedCluster(Kubectl);

impl ComparedCluster {
    fn run(&self, line: &str) -> String {
        self.0.output(line)
    }

    fn get(&self, resource: &str) -> Value {
        serde_json::from_str(&self.run(&format!("get {resource} -o json"))).unwrap()
    }

    fn until(&self, resource: &str, is_right: impl Fn(&Value) -> bool) {
        until(resource, || is_right(&self.get(resource)));
    }

    /// Runs a rollout and a rollback, and returns the final state.
    fn story(&self) -> Value {
        self.run(&format!("apply -f {}", self.0.file("manifest.yaml", MANIFEST)));
        let wait_for_rollouts = |cluster: &ComparedCluster| {
            for name in ["deployment/web", "statefulset/db", "daemonset/agent"] {
                cluster.run(&format!("rollout status {name} --timeout=120s"));
            }
        };
        wait_for_rollouts(self);
        self.run("wait --for=condition=complete job/once job/idx --timeout=120s");
        let first = json!([self.controller_state(), self.messages()]);
        self.run("set image deployment/web web=nginx:2");
        self.run("set image statefulset/db db=pg:2");
        wait_for_rollouts(self);
        self.run("rollout undo deployment/web");
        self.run("scale statefulset/db --replicas=3");
        wait_for_rollouts(self);
        self.until("deployment/web", |web| web["status"]["terminatingReplicas"] == 0);
        json!([first, self.controller_state()])
    }

    /// Returns the distinct messages of the controllers and the scheduler: how often each occurs depends on the speed
    /// of the machine.
    fn messages(&self) -> Value {
        let sets = self.get("replicasets");
        let hash = &sets["items"][0]["metadata"]["labels"]["pod-template-hash"];
        let events = self.get("events");
        let ours = events["items"].as_array().unwrap().iter().filter(|event| {
            let source = event["reportingComponent"].as_str().unwrap_or_default();
            EVENT_SOURCES.contains(&source) && event["involvedObject"]["kind"] != "Node"
        });
        let messages = ours.map(|event| {
            let involved = &event["involvedObject"]["kind"];
            let text = format!("{involved} {} {} {}", event["type"], event["reason"], event["message"]);
            let text = text.replace(hash.as_str().unwrap(), "HASH").replace("test-node-1", "east-1");
            // Words may be names with a random suffix.
            text.split(' ').map(mask_random_suffixes).collect::<Vec<_>>().join(" ")
        });
        let messages: BTreeSet<String> = messages.collect();
        assert!(messages.len() > 10, "{messages:#?}");
        json!(messages)
    }

    /// Returns everything that the controllers have written, without values that differ between any two clusters.
    fn controller_state(&self) -> Value {
        self.until("deployment/web", |web| web["status"]["terminatingReplicas"] == 0);
        let kinds = [
            "deployments",
            "replicasets",
            "statefulsets",
            "daemonsets",
            "jobs",
            "endpointslices",
            "poddisruptionbudgets",
        ];
        let sets = self.get("replicasets");
        let hash = |set: &Value| set["metadata"]["labels"]["pod-template-hash"].as_str().map(str::to_owned);
        let hashes: Vec<String> = sets["items"].as_array().unwrap().iter().filter_map(hash).collect();
        let mut state_by_kind = Map::new();
        for kind in kinds {
            let listed = self.get(kind);
            let items = listed["items"].as_array().unwrap().iter();
            let ours = items.filter(|item| item["metadata"]["name"] != "kubernetes");
            let ours = ours.map(|item| normalize(item, &hashes));
            let mut ours: Vec<Value> = ours.collect();
            ours.sort_by_key(Value::to_string);
            state_by_kind.insert(kind.to_owned(), ours.into());
        }
        state_by_kind.into()
    }
}

/// The components whose Events are compared. The real cluster's kubelet is kwok, which writes other Events.
const EVENT_SOURCES: &[&str] = &[
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",
    "job-controller",
    "default-scheduler",
];

/// Fields with generated values.
const GENERATED_FIELDS: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "generateName",
    "selfLink",
    "nodeName",
    "podIP",
    "addresses",
    "currentRevision",
    "updateRevision",
    "generation",
];

/// Returns an object without the values that differ between any two clusters.
fn normalize(object: &Value, hashes: &[String]) -> Value {
    let mut object = object.clone();
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        annotations.remove("endpoints.kubernetes.io/last-change-trigger-time");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    strip_generated(&mut object);
    let text = hashes.iter().fold(object.to_string(), |text, hash| text.replace(hash, "HASH"));
    let text = text.replace(&uid, "UID");
    serde_json::from_str(&mask_random_suffixes(&text)).unwrap()
}

/// Replaces the random suffix of names by a star.
fn mask_random_suffixes(text: &str) -> String {
    let mut out = String::new();
    for segment in text.split_inclusive('"') {
        let body = segment.trim_end_matches('"');
        let random = |tail: &str| {
            let letters = "bcdfghjklmnpqrstvwxz2456789";
            (tail.len() == 5 || tail.len() >= 9) && tail.chars().all(|letter| letters.contains(letter))
        };
        match body.rsplit_once('-') {
            Some((head, tail)) if random(tail) => out += &format!("{head}-*{}", &segment[body.len()..]),
            _ => out += segment,
        }
    }
    out
}

fn strip_generated(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let is_time = key.ends_with("Time") && value.is_string();
                !is_time && !GENERATED_FIELDS.contains(&key.as_str())
            });
            map.values_mut().for_each(strip_generated);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_generated),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real Kubernetes cluster"]
async fn statuses_are_those_of_kubernetes() {
    let program = testkit::peers::program("kubectl");
    let real = Cluster::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let nodes = vec![NodeShape::new("east-1", "64", "256Gi", 1000)];
    let standin = Standin::start(Options { nodes, ..Options::new("east") }).await.unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, standin.kubeconfig().unwrap()).unwrap();
    let story = |kubeconfig| {
        let kubectl = Kubectl::with_kubeconfig(&program, kubeconfig, dir.path().join("cache"));
        tokio::task::spawn_blocking(|| ComparedCluster(kubectl).story())
    };
    let ours = story(kubeconfig).await.unwrap();
    let theirs = story(real.kubeconfig()).await.unwrap();
    let mut differences = Vec::new();
    compare("", &ours, &theirs, &mut differences);
    assert!(differences.is_empty(), "ours and Kubernetes':\n{}", differences.join("\n"));
}

fn compare(path: &str, ours: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                compare(&format!("{path}/{key}"), &of(one), &of(other), differences);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(&format!("{path}/{index}"), one, other, differences);
            }
        }
        _ if ours == theirs => {}
        _ => differences.push(format!("{path}: {ours} and {theirs}")),
    }
}
