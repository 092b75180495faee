//! What users see of their running workloads: the built binary, stand-ins as physical clusters, and a logical cluster
//! of a user.

#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod dedicated;
mod hostile;
mod looking;
mod real;
mod rollouts;
mod touching;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use client::{Answer, Client};
use common::Server;
use serde_json::{Value, json};
use standin::{Options, Standin};
use tokio::runtime::Runtime;

const TEAM: &str = "/clusters/root:team-a";
const SHOP: &str = "/api/v1/namespaces/shop";
const APPS: &str = "/apis/apps/v1/namespaces/shop";
/// How long a wait may take. Everything takes moments; a busy machine takes longer.
const PATIENCE: Duration = Duration::from_secs(90);

/// A server with physical clusters, and a user in `root:team-a` with a namespace `shop`.
struct World {
    server: Server,
    admin: Client,
    standins: BTreeMap<String, Standin>,
    runtime: Runtime,
}

impl World {
    /// Returns a world with `east` and `west`.
    fn new(placement: &str) -> World {
        World::of(&["east", "west"], placement)
    }

    fn of(clusters: &[&str], placement: &str) -> World {
        let runtime = Runtime::new().unwrap();
        let start = |name: &&str| {
            let options = Options { metrics_server: true, ..Options::new(*name) };
            ((*name).to_owned(), runtime.block_on(Standin::start(options)).unwrap())
        };
        let standins = clusters.iter().map(start).collect();
        let server = Server::start();
        let admin = Client::new(&server, true);
        let world = World { server, admin, standins, runtime };
        for (name, standin) in &world.standins {
            let file = world.server.file(name);
            std::fs::write(&file, standin.kubeconfig().unwrap()).unwrap();
            world.holon(&["join", name, "--kubeconfig", file.to_str().unwrap()]);
        }
        world.holon(&["lc", "create", "team-a"]);
        let annotations = json!({ "holon.dev/placement": placement });
        world.make(
            "/api/v1/namespaces",
            json!({ "metadata": { "name": "shop", "annotations": annotations } }),
        );
        world
    }

    fn holon(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holon"));
        let output = command.args(arguments).arg("--data-dir").arg(self.server.file("")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Sends a request as the user.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.admin.ask(method, &format!("{TEAM}{path}"), body)
    }

    fn make(&self, path: &str, object: Value) -> Value {
        let answer = self.ask("POST", path, &object);
        assert_eq!(answer.code, 201, "{}", answer.body);
        answer.json()
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).json()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        self.get(path)["items"].as_array().cloned().unwrap_or_default()
    }

    /// Reads from a physical cluster directly.
    fn below(&self, cluster: &str, path: &str) -> Value {
        let standin = &self.standins[cluster];
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.runtime.block_on(async { standin.client().request::<Value>(request).await }).unwrap_or_default()
    }

    /// Creates a Deployment and waits until all its replicas run.
    fn deploy(&self, name: &str, replicas: u64) -> Value {
        self.make(&format!("{APPS}/deployments"), deployment(name, replicas));
        self.until_ready(name, replicas)
    }

    fn until_ready(&self, name: &str, replicas: u64) -> Value {
        let is_ready = |found: &Value| {
            let status = &found["status"];
            ["replicas", "readyReplicas", "updatedReplicas"].iter().all(|field| status[*field] == replicas)
                && status["observedGeneration"] == found["metadata"]["generation"]
        };
        let path = format!("{APPS}/deployments/{name}");
        self.until(&format!("{name} is ready"), || is_ready(&self.get(&path)));
        self.until(&format!("the pods of {name} are seen"), || {
            let pods = self.pods(name);
            pods.len() as u64 == replicas && pods.iter().all(is_running)
        });
        self.get(&path)
    }

    fn pods(&self, app: &str) -> Vec<Value> {
        self.list(&format!("{SHOP}/pods?labelSelector=app={app}"))
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn is_running(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.into_iter().any(|said| said["type"] == "Ready" && said["status"] == "True")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "containers": [{ "name": "main", "image": "app:1" }] },
    })
}

fn deployment(name: &str, replicas: u64) -> Value {
    let selector = json!({ "matchLabels": { "app": name } });
    let spec = json!({ "replicas": replicas, "selector": selector, "template": template(name) });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name }, "spec": spec })
}
