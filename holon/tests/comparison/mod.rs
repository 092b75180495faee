//! Sends the same requests to two servers and compares the responses.
//!
//! Values that differ between any two servers are masked ([`mask`]): uids, versions, times, allocated addresses. Known
//! differences are [`exceptions`].

// Every test target compiles this module for itself and uses a part of it.
#![allow(dead_code)]

pub(crate) mod exceptions;
mod mask;
pub(crate) mod request_step;

use std::path::Path;
use std::time::{Duration, Instant};

use openapi::codec::{Syntax, decode};
use serde_json::{Value, json};
use testkit::Server;
use testkit::peers::{Answer, Cluster, Proxy, Request};

use self::mask::mask;

pub(crate) use self::request_step::RequestStep;
use crate::common::HOLON;

/// Admission plug-ins that Holon does not implement, or that need controllers which do not run beside a bare server.
const PLUG_INS_OFF: &str = "--disable-admission-plugins=ServiceAccount,DefaultTolerationSeconds,Priority,\
StorageObjectInUseProtection,DefaultStorageClass,DefaultIngressClass,TaintNodesByCondition,RuntimeClass,\
LimitRanger,ResourceQuota,PersistentVolumeClaimResize,PodTopologyLabels,PodSecurity,\
CertificateSubjectRestriction";

/// How long to wait for a server. Longer than anything that it does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct ComparedServers {
    theirs: ComparedServer,
    ours: ComparedServer,
    namespace: String,
    /// The servers behind the proxies.
    _servers: ServerProcesses,
}

#[allow(clippy::large_enum_variant, reason = "a test has one value of it")]
enum ServerProcesses {
    WithHolon { _theirs: Cluster, _ours: Server },
    Alike { _theirs: [Cluster; 2] },
}

/// A server, and the uid and version of the last object in its responses.
struct ComparedServer {
    proxy: Proxy,
    uid: String,
    version: String,
}

impl ComparedServer {
    fn new(kubectl: &Path, kubeconfig: &Path) -> ComparedServer {
        ComparedServer {
            proxy: Proxy::start(kubectl, kubeconfig),
            uid: String::new(),
            version: String::new(),
        }
    }

    /// Sends a step and returns the response as one value.
    fn comparable_response(&mut self, step: &RequestStep, namespace: &str) -> Value {
        let answer = self.send(step, namespace);
        self.comparable(&answer)
    }

    fn send(&mut self, step: &RequestStep, namespace: &str) -> Answer {
        let substitute = |text: &str| {
            text.replace("{ns}", namespace).replace("{uid}", &self.uid).replace("{rv}", &self.version)
        };
        let path = substitute(&step.path);
        // Only a text can contain a placeholder.
        let body = match std::str::from_utf8(&step.body) {
            Ok(text) => substitute(text).into_bytes(),
            Err(_) => step.body.clone(),
        };
        let send = || {
            self.proxy.send(Request {
                method: &step.method,
                path: &path,
                accept: &step.accept,
                content_type: &step.content_type,
                user_agent: &step.user_agent,
                body: &body,
            })
        };
        let started = Instant::now();
        let mut answer = send();
        while !is_reached(step, &answer) && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            answer = send();
        }
        let metadata = &answer.json()["metadata"];
        if let (Some(uid), Some(version)) = (metadata["uid"].as_str(), metadata["resourceVersion"].as_str()) {
            (self.uid, self.version) = (uid.to_owned(), version.to_owned());
        }
        answer
    }

    /// Returns a response as one value.
    fn comparable(&self, answer: &Answer) -> Value {
        let text = answer.text();
        // The response to a watch has one line per event.
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        let is_yaml = answer.header("content-type").is_some_and(|media| media.contains("yaml"));
        let yaml = is_yaml.then(|| decode(text.as_bytes(), Syntax::Yaml).ok()).flatten();
        let mut body = match (serde_json::from_str(&text), lines, yaml) {
            (Ok(body), _, _) => body,
            (_, Ok(lines), _) => Value::Array(lines),
            (_, _, Some(yaml)) => yaml.value,
            _ => Value::String(text),
        };
        mask(&mut body);
        // Some error messages contain the current resource version.
        if let Some(message) = body.get_mut("message").and_then(|message| message.as_str().map(str::to_owned))
        {
            body["message"] = message.replace(&format!("({})", self.version), "(resourceVersion)").into();
        }
        let media_type = answer.header("content-type").unwrap_or_default();
        json!({"code": answer.code, "type": media_type, "warnings": answer.warnings(), "body": body})
    }
}

impl ComparedServers {
    /// Starts a real kube-apiserver and Holon.
    #[track_caller]
    pub(crate) fn start() -> ComparedServers {
        let kubectl = testkit::peers::program("kubectl");
        let cluster = Cluster::start_bare(&[PLUG_INS_OFF]);
        let server = Server::start(HOLON);
        ComparedServers {
            theirs: ComparedServer::new(&kubectl, &cluster.kubeconfig()),
            ours: ComparedServer::new(&kubectl, &server.file("admin.kubeconfig")),
            namespace: String::new(),
            _servers: ServerProcesses::WithHolon { _theirs: cluster, _ours: server },
        }
    }

    /// Starts two real kube-apiservers. If their responses differ, the test is wrong.
    #[track_caller]
    pub(crate) fn start_alike() -> ComparedServers {
        let kubectl = testkit::peers::program("kubectl");
        let clusters = [Cluster::start_bare(&[PLUG_INS_OFF]), Cluster::start_bare(&[PLUG_INS_OFF])];
        ComparedServers {
            theirs: ComparedServer::new(&kubectl, &clusters[0].kubeconfig()),
            ours: ComparedServer::new(&kubectl, &clusters[1].kubeconfig()),
            namespace: String::new(),
            _servers: ServerProcesses::Alike { _theirs: clusters },
        }
    }

    /// Creates a namespace for a story.
    pub(crate) fn start_story(&mut self, story: &str) {
        self.namespace = format!("story-{story}");
        let body = json!({"metadata": {"name": self.namespace}}).to_string();
        for created in self.both(&Request::json("POST", "/api/v1/namespaces", body.as_bytes())) {
            assert_eq!(created.code, 201, "{}", created.text());
        }
    }

    /// Sends a request to both servers and returns the responses without comparing them.
    pub(crate) fn both(&self, request: &Request<'_>) -> [Answer; 2] {
        [&self.theirs, &self.ours].map(|server| server.proxy.send(*request))
    }

    pub(crate) fn compare(&mut self, step: &RequestStep) -> Vec<String> {
        let ComparedServers { theirs, ours, namespace, .. } = self;
        let (theirs, ours) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| theirs.comparable_response(step, namespace));
            let ours = ours.comparable_response(step, namespace);
            (theirs.join().expect("it answers"), ours)
        });
        let mut found = Vec::new();
        differ("", &theirs, &ours, &mut found);
        found
    }
}

/// Returns whether a response has the value that the step waits for, if any.
fn is_reached(step: &RequestStep, answer: &Answer) -> bool {
    let Some((pointer, expected)) = &step.until else { return true };
    let body = answer.json();
    let found = body.pointer(pointer).map(|found| found.as_str().map_or(found.to_string(), str::to_owned));
    found.as_ref() == Some(expected)
}

/// Collects the differences between two values.
fn differ(path: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                differ(&format!("{path}.{key}"), value, right.get(key).unwrap_or(&Value::Null), found);
            }
            for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
                differ(&format!("{path}.{key}"), &Value::Null, value, found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                differ(&format!("{path}[{index}]"), left, right, found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push(format!("{path}: theirs {theirs}; ours {ours}")),
    }
}
