//! What Holon and a physical cluster agree on when a client's wish is led there.
//!
//! ```text
//!   syncer ─► GET …/physicalclusters/<name>/tunnel, Upgrade: holon-tunnel/1 ─► Holon       (one connection, dialled in)
//!   Holon  ─► HTTP/2 requests on that connection, as one asks the physical cluster itself ─► syncer
//! ```
//!
//! Once the connection is changed over, the syncer is the HTTP/2 server on it. A request for something a client talks
//! otherwise on (WebSocket, SPDY) is an extended CONNECT (RFC 8441): `:protocol` is what is to be spoken, [`METHOD`] how the
//! client asked. What may be asked, and which headers go along, is decided by the same lines at both ends.

use serde_json::{Value, json};

/// The part of a PhysicalCluster in its mailbox that a syncer dials.
pub const PART: &str = "tunnel";
/// What is spoken there, as the header `Upgrade` says it.
pub const PROTOCOL: &str = "holon-tunnel/1";
/// Header: the method of a request that is sent as a CONNECT.
pub const METHOD: &str = "holon-method";
/// Streams of one tunnel at a time.
pub const STREAMS_MAX: u32 = 256;

/// The parts that are led, by the plural of what they are parts of.
const PARTS: [(&str, &str); 7] = [
    ("pods", "attach"),
    ("pods", "ephemeralcontainers"),
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "portforward"),
    ("pods", PROXY),
    ("services", PROXY),
];
const PROXY: &str = "proxy";

/// The group of what is known about use, and its version. It is read and never written.
pub const METRICS: (&str, &str) = ("metrics.k8s.io", "v1beta1");

/// The definitions of what is known about use, for a server that keeps none of it.
pub fn measured() -> [Value; 2] {
    let (group, version) = METRICS;
    [("pods", "PodMetrics", "Namespaced"), ("nodes", "NodeMetrics", "Cluster")].map(|(plural, kind, scope)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                // Whoever defines something in a group of Kubernetes's says why.
                "annotations": { "api-approved.kubernetes.io": "unapproved, read from the physical cluster" },
            },
            "spec": {
                "group": group, "scope": scope,
                "names": { "plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                }],
            },
        })
    })
}

/// Whether a part of a resource of the core group is led.
pub fn is_led(plural: &str, part: &str) -> bool {
    PARTS.contains(&(plural, part))
}

/// Whether a path, without its query, may be asked for through a tunnel: what is led, and which version there is.
pub fn may_ask(path: &str) -> bool {
    // Neither of them can leave its place in the path.
    let is_name = |text: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-.:".contains(letter);
        !text.is_empty() && text.chars().all(is_letter) && text.chars().any(|letter| letter != '.')
    };
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["", "version"] => true,
        ["", "api", "v1", "namespaces", namespace, plural, name, part, rest @ ..] => {
            let leads = is_led(plural, part) && (rest.is_empty() || *part == PROXY);
            leads && is_name(namespace) && is_name(name)
        }
        ["", "apis", group, version, rest @ ..] => {
            (*group, *version) == METRICS && rest.iter().all(|name| is_name(name))
        }
        _ => false,
    }
}

/// What says how to speak on a connection, and about whom an answer is. It ends at each hop, or is each hop's own.
const OF_THE_HOP: &[&str] = &[
    "authorization",
    "connection",
    "content-length",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    METHOD,
];
/// What begins like this says who somebody is. Nothing a client says about itself goes along: the physical cluster would
/// believe it, for the syncer says it.
const OF_THE_SENDER: &[&str] = &["impersonate-", "x-remote-", "x-forwarded-"];

/// What a request says that is not for what runs behind a proxy.
const ASKED: &[&str] = &["accept", "content-type", "x-stream-protocol-version"];
/// The same of an answer.
const ANSWERED: &[&str] = &["content-type", "retry-after", "warning", "x-stream-protocol-version"];
/// What a WebSocket is opened with.
const SOCKET: &str = "sec-websocket-";

/// Whether a header of a request for a part goes along. `name` is in lower case.
pub fn is_asked(part: &str, name: &str) -> bool {
    passes(part, name, ASKED)
}

/// Whether a header of the answer comes back.
pub fn is_answered(part: &str, name: &str) -> bool {
    passes(part, name, ANSWERED)
}

fn passes(part: &str, name: &str, known: &[&str]) -> bool {
    if OF_THE_HOP.contains(&name) || OF_THE_SENDER.iter().any(|start| name.starts_with(start)) {
        return false;
    }
    // What runs behind a proxy speaks for itself.
    part == PROXY || known.contains(&name) || name.starts_with(SOCKET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_led_may_be_asked_for() {
        let check = |path: &str, expected: bool| assert_eq!(may_ask(path), expected, "{path}");
        check("/version", true);
        check("/api/v1/namespaces/shop/pods/web-1/log", true);
        check("/api/v1/namespaces/shop/pods/web-1/exec", true);
        check("/api/v1/namespaces/shop/pods/https:web-1:8443/proxy/a/../b", true);
        check("/api/v1/namespaces/shop/services/web:http/proxy/", true);
        check("/apis/metrics.k8s.io/v1beta1", true);
        check("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods/web-1", true);
        check("/api/v1/namespaces/shop/pods/web-1", false);
        check("/api/v1/namespaces/shop/pods/web-1/eviction", false);
        check("/api/v1/namespaces/shop/pods/web-1/log/more", false);
        check("/api/v1/namespaces/shop/pods/../secrets/proxy/log", false);
        check("/api/v1/namespaces/shop/pods/%2e%2e/log", false);
        check("/api/v1/namespaces//pods/web-1/log", false);
        check("/api/v1/nodes/one/proxy/logs", false);
        check("/api/v1/namespaces/shop/secrets/key", false);
        check("/apis/metrics.k8s.io/v1beta1/../../apps/v1", false);
        check("/apis/apps/v1/deployments", false);
    }

    /// Whoever could send `Impersonate-User` along would be anybody on the physical cluster.
    #[test]
    fn nothing_a_client_says_about_itself_goes_along() {
        for part in ["exec", "proxy"] {
            for name in ["authorization", "impersonate-user", "impersonate-extra-x", "x-remote-group", "host"]
            {
                assert!(!is_asked(part, name), "{part} {name}");
            }
            assert!(is_asked(part, "sec-websocket-key") && is_answered(part, "sec-websocket-accept"));
        }
        let check = |part, name, expected| assert_eq!(is_asked(part, name), expected, "{part} {name}");
        check("log", "accept", true);
        check("log", "cookie", false);
        check("proxy", "cookie", true);
        check("proxy", "transfer-encoding", false);
    }
}
