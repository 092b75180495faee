//! Access between clusters: of pods to their logical cluster, of logical clusters to physical ones, and of Holon's own
//! controllers, which have only the rights they need. Uses the built binary, and stand-ins that it reaches over TLS.

#[path = "../common/mod.rs"]
mod common;
mod controllers;
mod operator;
mod pods;
mod takeover;
mod using;

use serde_json::Value;
use testkit::client::from_base64;

use common::fleet::TestFleet;

impl TestFleet {
    /// Returns all placed objects of a kind on a physical cluster.
    fn placed(&self, cluster: &str, path: &str) -> Vec<Value> {
        self.list_downstream(cluster, &format!("{path}?labelSelector=holon.dev%2Fplaced%3Dtrue"))
    }
}

fn decoded(data: &Value) -> String {
    String::from_utf8(from_base64(data.as_str().expect("text"))).unwrap()
}
