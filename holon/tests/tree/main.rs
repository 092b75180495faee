//! What users see of their running workloads: the built binary, stand-ins as physical clusters, and a logical cluster
//! of a user.

#[path = "../common/mod.rs"]
mod common;
mod dedicated;
mod hostile;
mod looking;
mod real;
mod rollouts;
mod touching;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::objects::{has_condition, items, placed_namespace};
use testkit::{Answer, objects, until};

use common::fleet::TestFleet;

const TEAM: &str = "/clusters/root:team-a";
const SHOP: &str = "/api/v1/namespaces/shop";
const APPS: &str = "/apis/apps/v1/namespaces/shop";

/// A user in `root:team-a` with a namespace `shop`, and the physical clusters where it may run.
struct Team {
    fleet: TestFleet,
}

impl Deref for Team {
    type Target = TestFleet;

    fn deref(&self) -> &TestFleet {
        &self.fleet
    }
}

impl DerefMut for Team {
    fn deref_mut(&mut self) -> &mut TestFleet {
        &mut self.fleet
    }
}

impl Team {
    /// Returns a team whose namespace has this placement on `east` and `west`.
    fn new(placement: &str) -> Team {
        Team::on(&["east", "west"], placement)
    }

    /// The same on other physical clusters.
    fn on(clusters: &[&str], placement: &str) -> Team {
        let team = Team { fleet: TestFleet::start(clusters) };
        team.admin.create_logical_cluster("root:team-a");
        team.create("/api/v1/namespaces", placed_namespace("shop", placement));
        team
    }

    /// Sends a request as the user.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        self.admin.ask(method, &format!("{TEAM}{path}"), body)
    }

    #[track_caller]
    fn create(&self, path: &str, object: Value) -> Value {
        self.admin.create(&format!("{TEAM}{path}"), &object)
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).json()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        items(&self.get(path))
    }

    /// Creates a Deployment and waits until all its replicas run.
    fn deploy(&self, name: &str, replicas: u64) -> Value {
        self.create(&format!("{APPS}/deployments"), deployment(name, replicas));
        self.until_ready(name, replicas)
    }

    fn until_ready(&self, name: &str, replicas: u64) -> Value {
        let is_ready = |found: &Value| {
            let status = &found["status"];
            ["replicas", "readyReplicas", "updatedReplicas"].iter().all(|field| status[*field] == replicas)
                && status["observedGeneration"] == found["metadata"]["generation"]
        };
        let path = format!("{APPS}/deployments/{name}");
        until(&format!("{name} is ready"), || is_ready(&self.get(&path)));
        until(&format!("the pods of {name} are projected"), || {
            let pods = self.pods(name);
            pods.len() as u64 == replicas && pods.iter().all(is_running)
        });
        self.get(&path)
    }

    fn pods(&self, app: &str) -> Vec<Value> {
        self.list(&format!("{SHOP}/pods?labelSelector=app={app}"))
    }
}

fn is_running(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && has_condition(pod, "Ready")
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn template(app: &str) -> Value {
    objects::template(app, objects::pod_spec("app:1"))
}

fn deployment(name: &str, replicas: u64) -> Value {
    objects::deployment(name, replicas, objects::pod_spec("app:1"))
}
