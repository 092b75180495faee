//! A kube-apiserver to compare with, and its responses.

use serde_json::Value;
use testkit::peers::Request;

pub(crate) struct Cluster(testkit::peers::Cluster);

/// A response of the server.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ServerResponse {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl ServerResponse {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Cluster {
    #[track_caller]
    pub(crate) fn start(apiserver_flags: &[&str]) -> Cluster {
        Cluster(testkit::peers::Cluster::start(apiserver_flags))
    }

    pub(crate) fn get(&self, path: &str) -> ServerResponse {
        self.send("GET", path, "application/json", "")
    }

    /// Returns the response to a GET with this Accept header.
    #[allow(dead_code, reason = "one of the tests asks for other forms")]
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> Value {
        self.0.send(Request { accept, ..Request::get(path) }).json()
    }

    pub(crate) fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> ServerResponse {
        let request = Request { content_type, ..Request::json(method, path, body.as_bytes()) };
        let answer = self.0.send(request);
        ServerResponse { code: answer.code, body: answer.json(), warnings: answer.warnings() }
    }
}
