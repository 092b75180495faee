//! The audit log: a line of JSON for each write and each denial.
//!
//! ```text
//!   {"time":"2026-11-16T10:50:59.123456Z","id":"…","user":"ann","groups":["dev"],"cluster":"root:a","verb":"create",
//!    "resource":"pods","namespace":"shop","name":"web","path":"…","code":201,"decision":"allow","duration_ms":1.2}
//! ```
//! Allowed reads are not logged, except those that lead to running pods (`pods/log` and others); neither are allowed
//! [`reviews`](crate::endpoints::reviews). A line never contains a body, a header or a query, because these may contain
//! secrets. Each text from the client is cut to a kilobyte. [`log`] writes the lines to disk.

mod log;

use std::io;
use std::path::Path;
use std::time::Duration;

use api::cluster::Id;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::audit::log::Log;
use crate::authn::identity::{ANONYMOUS, Identity};
use crate::objects::metadata;
use crate::request::attributes::{Attributes, ResourceAttributes};
use crate::request::info::RequestInfo;

/// The groups of reviews, which change nothing.
const REVIEW_GROUPS: &[&str] = &["authentication.k8s.io", "authorization.k8s.io"];
/// Subresources that lead to running pods, logged for every method.
const POD_ACCESS: &[&str] = &["attach", "ephemeralcontainers", "exec", "log", "portforward", "proxy"];
/// Maximum length of a text from the client.
const TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of logged groups of a user.
const GROUPS_MAX: usize = 64;

/// The audit log.
#[derive(Debug)]
pub struct Audit(Log);

impl Audit {
    /// Opens a file for appending. A new file is readable only by its owner.
    pub fn open(path: &Path) -> io::Result<Audit> {
        Log::open(path).map(Audit)
    }

    /// Logs an answered request, if it is one to log.
    pub(crate) fn note(&self, event: &AuditEvent<'_>) {
        let AuditEvent { id, info, sender, acting, cluster, is_refused, is_authorized, code, took } = *event;
        // Every 403 is a denial, whichever check it comes from.
        let refused = is_refused || matches!(code, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !refused && !is_noted(info) {
            return;
        }
        let mut line = json!({
            "time": metadata::micro_now(), "id": id, "method": short(info.method.as_str()),
            "path": short(&info.path), "code": code.as_u16(),
            "decision": if refused { "forbid" } else if is_authorized { "allow" } else { "none" },
            "duration_ms": took.as_secs_f64() * 1000.0,
        });
        add_users(&mut line, sender, acting);
        add_cluster(&mut line, info, cluster);
        add_attributes(&mut line, info);
        self.0.send(line, *sender == Identity::Anonymous);
    }
}

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuditEvent<'a> {
    pub(crate) id: &'a str,
    pub(crate) info: &'a RequestInfo,
    /// Anonymous if the credential is invalid.
    pub(crate) sender: &'a Identity,
    /// The impersonated identity, allowed or not.
    pub(crate) acting: Option<&'a Identity>,
    /// The logical cluster, and its path if the request does not name it.
    pub(crate) cluster: Option<(Id, Option<&'a str>)>,
    /// Access was denied, whatever the status code.
    pub(crate) is_refused: bool,
    /// Access was granted. Without either, the request ended before it was authorized.
    pub(crate) is_authorized: bool,
    pub(crate) code: StatusCode,
    pub(crate) took: Duration,
}

/// Reports whether a request is logged even if it was allowed.
fn is_noted(info: &RequestInfo) -> bool {
    let reads = matches!(info.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let Some(resource) = info.resource() else { return !reads };
    let enters_pod =
        resource.subresource.as_deref().is_some_and(|subresource| POD_ACCESS.contains(&subresource));
    enters_pod && resource.group.is_empty() || !reads && !REVIEW_GROUPS.contains(&resource.group.as_str())
}

fn add_users(line: &mut Value, sender: &Identity, acting: Option<&Identity>) {
    let (name, groups) = name_and_groups(sender);
    line["user"] = name;
    line["groups"] = groups;
    if let Some(acting) = acting.filter(|acting| *acting != sender) {
        let (name, groups) = name_and_groups(acting);
        line["impersonated"] = json!({ "user": name, "groups": groups });
    }
}

fn name_and_groups(identity: &Identity) -> (Value, Value) {
    match identity {
        Identity::Anonymous => (ANONYMOUS.0.into(), json!([ANONYMOUS.1])),
        Identity::User(user) => {
            let groups = user.groups.iter().take(GROUPS_MAX).map(|group| short(group));
            (short(&user.name).into(), groups.collect())
        }
    }
}

/// Adds the logical cluster. Its id distinguishes successive logical clusters with the same path. If the request named
/// it by id or by a token, its path is added.
fn add_cluster(line: &mut Value, info: &RequestInfo, found: Option<(Id, Option<&str>)>) {
    if let Ok((cluster, _)) = &info.address {
        line["cluster"] = short(&cluster.to_string()).into();
    }
    if let Some((id, path)) = found {
        line["cluster_id"] = id.to_string().into();
        if let Some(path) = path {
            line["cluster"] = short(path).into();
        }
    }
}

/// Shortens a text from the client.
fn short(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_owned();
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

fn add_attributes(line: &mut Value, info: &RequestInfo) {
    let Attributes::Resource(ResourceAttributes {
        verb, group, resource, subresource, namespace, name, ..
    }) = Attributes::of(info)
    else {
        return;
    };
    let attribute_fields = [
        ("verb", verb),
        ("group", group),
        ("resource", resource),
        ("subresource", subresource),
        ("namespace", namespace),
        ("name", name),
    ];
    for (field, text) in attribute_fields.into_iter().filter(|(_, text)| !text.is_empty()) {
        line[field] = short(&text).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openapi::meta::status::Status;

    fn noted(line: &str, identity: Result<Identity, Status>, refused: bool, code: u16) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let audit = Audit::open(&file).unwrap();
        audit.note(&AuditEvent {
            id: "the-id",
            info: &RequestInfo::line(line),
            sender: identity.as_ref().unwrap_or(&Identity::Anonymous),
            acting: None,
            cluster: None,
            is_refused: refused,
            is_authorized: code < 429,
            code: StatusCode::from_u16(code).unwrap(),
            took: Duration::from_millis(2),
        });
        drop(audit);
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn only_writes_and_refusals_are_recorded() {
        let count = |line: &str, refused: bool, code: u16| {
            noted(line, Ok(Identity::user("ann", &["dev"])), refused, code).len()
        };
        assert_eq!(count("POST /api/v1/namespaces", false, 201), 1);
        assert_eq!(count("DELETE /api/v1/namespaces/x", false, 404), 1);
        assert_eq!(count("GET /api/v1/namespaces", false, 200), 0);
        assert_eq!(count("GET /api/v1/namespaces", true, 404), 1);
        assert_eq!(count("POST /api/v1/namespaces", false, 403), 1);
        for into in ["log", "exec?command=sh", "attach", "portforward", "proxy/x"] {
            assert_eq!(count(&format!("GET /api/v1/namespaces/x/pods/y/{into}"), false, 200), 1, "{into}");
        }
        assert_eq!(count("GET /api/v1/namespaces/x/pods/y/status", false, 200), 0);
        assert_eq!(count("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false, 201), 0);
        assert_eq!(noted("GET /api", Err(Status::unauthorized()), false, 401).len(), 1);
        let early = noted("POST /api/v1/namespaces", Ok(Identity::user("ann", &[])), false, 499);
        assert_eq!(early[0]["decision"], "none", "it ended before it was authorized");
    }

    #[test]
    fn a_line_has_the_user_the_request_and_the_decision() {
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

    /// Regression: a path of 59 KB made a line of 118 KB.
    #[test]
    fn long_values_from_clients_are_truncated() {
        let long = "a".repeat(30_000);
        let line =
            noted(&format!("PUT /api/v1/namespaces/{long}/pods/{long}"), Ok(Identity::Anonymous), true, 401);
        assert!(line[0].to_string().len() < 5000, "{}", line[0]);
        let groups: Vec<&str> = vec![long.as_str(); 500];
        let line = noted("POST /api/v1/namespaces", Ok(Identity::user(&long, &groups)), true, 403);
        assert!(line[0].to_string().len() < 80_000);
    }
}
