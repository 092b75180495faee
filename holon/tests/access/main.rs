//! Access between clusters: of pods to their logical cluster, of logical clusters to physical ones, and of Holon's own
//! controllers, which have only the rights they need. Uses the built binary, and stand-ins that it reaches over TLS.

#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod controllers;
mod operator;
mod pods;
mod takeover;
mod using;

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::Client;
use common::Server;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tokio::runtime::Runtime;

const PHYSICAL: &str = "/apis/holon.dev/v1alpha1/physicalclusters";
const LOGICAL: &str = "/apis/holon.dev/v1alpha1/logicalclusters";
/// How long a wait may take. Everything takes moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server and the physical clusters it connects to.
struct World {
    server: Server,
    admin: Client,
    below: Vec<(String, Standin)>,
    runtime: Runtime,
}

impl World {
    fn new(clusters: &[&str]) -> World {
        World::with(clusters, &[])
    }

    fn with(clusters: &[&str], options: &[&str]) -> World {
        let server = Server::start_with(options);
        World::of(server, clusters)
    }

    fn of(server: Server, clusters: &[&str]) -> World {
        let runtime = Runtime::new().unwrap();
        let admin = Client::new(&server, true).at(&server);
        let mut world = World { server, admin, below: Vec::new(), runtime };
        for name in clusters {
            let standin = world.runtime.block_on(Standin::start(Options::new(*name))).unwrap();
            world.join(name, &standin);
            world.below.push(((*name).to_owned(), standin));
        }
        world.until("all are ready", || clusters.iter().all(|name| world.is_ready(name)));
        world
    }

    /// Registers a physical cluster as `holon join` does.
    fn join(&self, name: &str, standin: &Standin) {
        let kubeconfig = STANDARD.encode(standin.kubeconfig().unwrap());
        let secret = json!({ "metadata": { "name": name }, "data": { "kubeconfig": kubeconfig } });
        self.make("/api/v1/namespaces/default/secrets", &secret);
        let reference = json!({ "namespace": "default", "name": name });
        let object = json!({
            "apiVersion": "holon.dev/v1alpha1", "kind": "PhysicalCluster",
            "metadata": { "name": name, "labels": { "name": name } },
            "spec": { "connection": { "push": { "secretRef": reference } } },
        });
        self.make(PHYSICAL, &object);
    }

    fn is_ready(&self, name: &str) -> bool {
        let object = self.admin.get(&format!("{PHYSICAL}/{name}")).json();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|said| said["type"] == "Ready" && said["status"] == "True")
    }

    /// Creates a logical cluster in the root and returns its path.
    fn cluster(&self, name: &str) -> String {
        self.make(LOGICAL, &json!({ "metadata": { "name": name } }));
        format!("/clusters/root:{name}")
    }

    #[track_caller]
    fn make(&self, path: &str, object: &Value) -> Value {
        let made = self.admin.ask("POST", path, object);
        assert_eq!(made.code, 201, "{path}: {}", made.body);
        made.json()
    }

    fn read(&self, path: &str) -> Value {
        self.admin.get(path).json()
    }

    /// Reads from a physical cluster directly.
    fn below(&self, cluster: &str, path: &str) -> Value {
        let (_, standin) = self.below.iter().find(|(name, _)| name == cluster).expect("it was started");
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let asked = async { standin.client().request::<Value>(request).await };
        self.runtime.block_on(asked).unwrap_or_default()
    }

    /// Returns all placed objects of a kind on a physical cluster.
    fn placed(&self, cluster: &str, path: &str) -> Vec<Value> {
        let list = self.below(cluster, &format!("{path}?labelSelector=holon.dev%2Fplaced%3Dtrue"));
        list["items"].as_array().cloned().unwrap_or_default()
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn deployment(name: &str, replicas: u32, pod: Value) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": pod },
        },
    })
}

fn decoded(data: &Value) -> String {
    let bytes = STANDARD.decode(data.as_str().expect("text")).unwrap();
    String::from_utf8(bytes).unwrap()
}
