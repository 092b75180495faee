//! A kube-apiserver to ask, and what it answers.

use peers::Request;
use serde_json::Value;

pub(crate) struct Cluster(peers::Cluster);

/// What the server answered.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Cluster {
    /// None, with a word about it, where the programs are not installed.
    pub(crate) fn start(apiserver_flags: &[&str]) -> Option<Cluster> {
        peers::Cluster::start("comparing with a real server", apiserver_flags).map(Cluster)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", "")
    }

    /// The same in another form.
    #[allow(dead_code, reason = "one of the tests asks for other forms")]
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> Value {
        self.0.send(Request { accept, ..Request::get(path) }).json()
    }

    pub(crate) fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Answer {
        let request = Request { content_type, ..Request::json(method, path, body.as_bytes()) };
        let answer = self.0.send(request);
        Answer { code: answer.code, body: answer.json(), warnings: answer.warnings() }
    }
}
