//! Who changed what, and who was refused, a line of JSON each, in a file of the operator's.
//!
//! ```text
//!   {"time":"2026-11-16T10:50:59.123456Z","id":"…","user":"ann","groups":["dev"],"cluster":"root:a","verb":"create",
//!    "resource":"pods","namespace":"shop","name":"web","path":"…","code":201,"decision":"allow","duration_ms":1.2}
//! ```
//!
//! Reads that were answered leave no line, and neither do questions ([`reviews`](crate::reviews)). A line never holds a
//! body, a header or a query: there is where secrets travel.
//!
//! Requests do not wait for the disk: lines go through a queue to one thread. If it cannot keep up, lines are lost rather
//! than requests, and the next line that is written says how many.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::authorize::{Attributes, ResourceAttributes};
use crate::findings::Findings;
use crate::identity::{ANONYMOUS, Identity};
use crate::metadata;

/// Lines that wait for the disk, of half a kilobyte or so each.
const WAITING_MAX: usize = 16 * 1024;
/// Groups of questions, which change nothing.
const QUESTIONS: &[&str] = &["authentication.k8s.io", "authorization.k8s.io"];

/// The file, and what goes there.
#[derive(Debug)]
pub struct Audit {
    /// None while it is dropped.
    lines: Option<SyncSender<String>>,
    lost: AtomicU64,
    writer: Option<JoinHandle<()>>,
}

impl Audit {
    /// Adds to a file, which only its owner can read if it is made here.
    pub fn open(path: &Path) -> io::Result<Audit> {
        let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let writer = std::thread::Builder::new().name("audit".to_owned());
        let writer = writer.spawn(move || write(file, &receiver))?;
        Ok(Audit { lines: Some(sender), lost: AtomicU64::new(0), writer: Some(writer) })
    }

    /// Notes a request that was answered, if it is one to note.
    pub(crate) fn note(
        &self,
        id: &str,
        asked: &Asked,
        identity: &Result<Identity, openapi::status::Status>,
        findings: &Findings,
        (code, took): (StatusCode, Duration),
    ) {
        let refused = findings.is_refused() || code == StatusCode::UNAUTHORIZED;
        if !refused && !is_write(asked) {
            return;
        }
        let mut line = json!({
            "time": metadata::micro_now(), "id": id, "method": asked.method.as_str(), "path": asked.path,
            "code": code.as_u16(), "decision": if refused { "forbid" } else { "allow" },
            "duration_ms": took.as_secs_f64() * 1000.0,
        });
        who(&mut line, identity.as_ref().unwrap_or(&Identity::Anonymous), findings.acting());
        what(&mut line, asked);
        self.send(line);
    }

    fn send(&self, mut line: Value) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line["lost"] = lost.into();
        }
        let sent = self.lines.as_ref().map(|lines| lines.try_send(format!("{line}\n")));
        if !matches!(sent, Some(Ok(()))) {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }
}

impl Drop for Audit {
    /// What waits is written.
    fn drop(&mut self) {
        self.lines = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// Writes lines for as long as somebody can send any.
fn write(file: File, lines: &Receiver<String>) {
    let mut file = BufWriter::new(file);
    while let Ok(first) = lines.recv() {
        // As many as there are go to the disk together.
        let mut together = std::iter::once(first).chain(lines.try_iter());
        let written = together.try_for_each(|line| file.write_all(line.as_bytes()));
        if let Err(error) = written.and_then(|()| file.flush()) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}

fn is_write(asked: &Asked) -> bool {
    let reads = matches!(asked.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let asks = asked.resource().is_some_and(|named| QUESTIONS.contains(&named.group.as_str()));
    !reads && !asks
}

fn who(line: &mut Value, sender: &Identity, acting: Option<&Identity>) {
    let (name, groups) = told(sender);
    line["user"] = name.into();
    line["groups"] = groups;
    if let Some(acting) = acting.filter(|acting| *acting != sender) {
        let (name, groups) = told(acting);
        line["impersonated"] = json!({ "user": name, "groups": groups });
    }
    if let Some(home) = sender.home() {
        line["home"] = home.to_string().into();
    }
}

fn told(identity: &Identity) -> (&str, Value) {
    match identity {
        Identity::Anonymous => (ANONYMOUS.0, json!([ANONYMOUS.1])),
        Identity::User(user) => (&user.name, json!(user.groups)),
    }
}

fn what(line: &mut Value, asked: &Asked) {
    if let Ok((cluster, _)) = &asked.address {
        line["cluster"] = cluster.to_string().into();
    }
    let Attributes::Resource(ResourceAttributes {
        verb, group, resource, subresource, namespace, name, ..
    }) = Attributes::of(asked)
    else {
        return;
    };
    let said = [
        ("verb", verb),
        ("group", group),
        ("resource", resource),
        ("subresource", subresource),
        ("namespace", namespace),
        ("name", name),
    ];
    for (field, text) in said.into_iter().filter(|(_, text)| !text.is_empty()) {
        line[field] = text.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::status::Status;

    fn noted(line: &str, identity: Result<Identity, Status>, refused: bool, code: u16) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let audit = Audit::open(&file).unwrap();
        let findings = Findings::default();
        if refused {
            findings.refuse();
        }
        let outcome = (StatusCode::from_u16(code).unwrap(), Duration::from_millis(2));
        audit.note("the-id", &Asked::line(line), &identity, &findings, outcome);
        drop(audit);
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn writes_and_refusals_are_noted_and_nothing_else() {
        let count = |line: &str, refused: bool, code: u16| {
            noted(line, Ok(Identity::user("ann", &["dev"])), refused, code).len()
        };
        assert_eq!(count("POST /api/v1/namespaces", false, 201), 1);
        assert_eq!(count("DELETE /api/v1/namespaces/x", false, 404), 1);
        assert_eq!(count("GET /api/v1/namespaces", false, 200), 0);
        assert_eq!(count("GET /api/v1/namespaces", true, 404), 1);
        assert_eq!(count("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false, 201), 0);
        assert_eq!(noted("GET /api", Err(Status::unauthorized()), false, 401).len(), 1);
    }

    #[test]
    fn a_line_says_who_where_what_and_how_it_went() {
        let path = "PUT /clusters/root:a/apis/apps/v1/namespaces/shop/deployments/web/scale?token=s3cret";
        let mut line = noted(path, Ok(Identity::user("ann", &["dev"])), true, 403).remove(0);
        assert!(line["time"].as_str().unwrap().ends_with('Z'));
        line.as_object_mut().unwrap().remove("time");
        let expected = json!({
            "id": "the-id", "user": "ann", "groups": ["dev", "system:authenticated"], "cluster": "root:a",
            "method": "PUT", "path": "/clusters/root:a/apis/apps/v1/namespaces/shop/deployments/web/scale",
            "verb": "update", "group": "apps", "resource": "deployments", "subresource": "scale",
            "namespace": "shop", "name": "web", "code": 403, "decision": "forbid", "duration_ms": 2.0,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let (sender, receiver) = sync_channel(1);
        let audit = Audit { lines: Some(sender), lost: AtomicU64::new(0), writer: None };
        for _ in 0..3 {
            audit.send(json!({}));
        }
        assert_eq!(receiver.recv().unwrap(), "{}\n");
        audit.send(json!({}));
        assert_eq!(receiver.recv().unwrap(), "{\"lost\":2}\n");
    }
}
