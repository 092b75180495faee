//! A real kube-apiserver to compare with.

use serde_json::Value;
use testkit::peers::{Cluster, Request};

pub(crate) struct Server(Cluster);

impl Server {
    #[track_caller]
    pub(crate) fn start() -> Server {
        Server(Cluster::start(&[]))
    }

    /// Returns the response to a GET as JSON. Panics on any status but 200.
    pub(crate) fn get(&self, path: &str, accept: &str) -> Value {
        let (status, body) = self.request(path, accept);
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) fn request(&self, path: &str, accept: &str) -> (u16, Vec<u8>) {
        self.send("GET", path, accept, "")
    }

    pub(crate) fn send(&self, method: &str, path: &str, accept: &str, body: &str) -> (u16, Vec<u8>) {
        let answer = self.0.send(Request { accept, ..Request::json(method, path, body.as_bytes()) });
        (answer.code, answer.body)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) {
        self.0.run(arguments, input);
    }
}
