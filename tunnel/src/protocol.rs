//! The protocol between both ends of a tunnel: the subresource that a syncer dials, the requests that a tunnel carries,
//! and the headers that pass.
//!
//! ```text
//!   syncer ─► GET …/physicalclusters/<name>/tunnel, Upgrade: holon-tunnel/1 ─► Holon       (one connection, dialled in)
//!   Holon  ─► HTTP/2 requests on that connection, addressed as to the physical cluster ──► syncer
//! ```
//!
//! After the upgrade the syncer is the HTTP/2 server on the connection. A request that upgrades to WebSocket or SPDY is an
//! extended CONNECT (RFC 8441): `:protocol` names the protocol, and the header [`METHOD`] carries the client's method. Both
//! ends check paths and headers with the functions of this module.

use api::metrics::METRICS;

/// The subresource of a PhysicalCluster in its mailbox that a syncer dials.
pub const TUNNEL_SUBRESOURCE: &str = "tunnel";
/// The protocol of a tunnel, as the header `Upgrade` names it.
pub const PROTOCOL: &str = "holon-tunnel/1";
/// The header with the client's method, on a request that is sent as a CONNECT.
pub const METHOD: &str = "holon-method";
/// Concurrent streams of one tunnel.
pub const STREAMS_MAX: u32 = 256;

/// The forwarded subresources, each with the plural of its resource.
const FORWARDED: [(&str, &str); 7] = [
    ("pods", "attach"),
    ("pods", "ephemeralcontainers"),
    ("pods", "exec"),
    ("pods", "log"),
    ("pods", "portforward"),
    ("pods", PROXY),
    ("services", PROXY),
];
const PROXY: &str = "proxy";

/// Reports whether a subresource of the core group is forwarded to the physical cluster.
pub fn is_forwarded(plural: &str, subresource: &str) -> bool {
    FORWARDED.contains(&(plural, subresource))
}

/// Reports whether a tunnel carries requests for a path (without its query): forwarded subresources, resource metrics
/// and `/version`.
pub fn is_path_allowed(path: &str) -> bool {
    // A namespace or name with only these characters stays one segment of the path.
    let is_name = |text: &str| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-.:".contains(letter);
        !text.is_empty() && text.chars().all(is_letter) && text.chars().any(|letter| letter != '.')
    };
    let segments: Vec<&str> = path.split('/').collect();
    match segments.as_slice() {
        ["", "version"] => true,
        ["", "api", "v1", "namespaces", namespace, plural, name, subresource, rest @ ..] => {
            let forwards = is_forwarded(plural, subresource) && (rest.is_empty() || *subresource == PROXY);
            forwards && is_name(namespace) && is_name(name)
        }
        ["", "apis", group, version, rest @ ..] => {
            (*group, *version) == METRICS && rest.iter().all(|name| is_name(name))
        }
        _ => false,
    }
}

/// Hop-by-hop headers, and headers that each hop sets itself.
const HOP_BY_HOP: &[&str] = &[
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
/// Prefixes of headers that state an identity. The physical cluster would trust them, because the syncer sends them, so
/// headers of clients with these prefixes never pass.
const IDENTITY_PREFIXES: &[&str] = &["impersonate-", "x-remote-", "x-forwarded-"];

/// Request headers that pass to subresources other than `proxy`.
const REQUEST_HEADERS: &[&str] = &["accept", "content-type", "x-stream-protocol-version"];
/// Response headers that pass from subresources other than `proxy`.
const RESPONSE_HEADERS: &[&str] = &["content-type", "retry-after", "warning", "x-stream-protocol-version"];
/// The prefix of the headers of a WebSocket handshake.
const WEBSOCKET_PREFIX: &str = "sec-websocket-";

/// Reports whether a request header passes to a subresource. `name` is in lower case.
pub fn is_request_header_forwarded(subresource: &str, name: &str) -> bool {
    is_header_forwarded(subresource, name, REQUEST_HEADERS)
}

/// Reports whether a response header passes. `name` is in lower case.
pub fn is_response_header_forwarded(subresource: &str, name: &str) -> bool {
    is_header_forwarded(subresource, name, RESPONSE_HEADERS)
}

fn is_header_forwarded(subresource: &str, name: &str, known: &[&str]) -> bool {
    if HOP_BY_HOP.contains(&name) || IDENTITY_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    // The headers of `proxy` concern only the client and the pod.
    subresource == PROXY || known.contains(&name) || name.starts_with(WEBSOCKET_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_carries_requests_for_forwarded_paths_only() {
        let check = |path: &str, expected: bool| assert_eq!(is_path_allowed(path), expected, "{path}");
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

    /// A client that could send `Impersonate-User` would have every identity on the physical cluster.
    #[test]
    fn no_header_that_states_an_identity_passes() {
        for subresource in ["exec", "proxy"] {
            for name in ["authorization", "impersonate-user", "impersonate-extra-x", "x-remote-group", "host"]
            {
                assert!(!is_request_header_forwarded(subresource, name), "{subresource} {name}");
            }
            assert!(
                is_request_header_forwarded(subresource, "sec-websocket-key")
                    && is_response_header_forwarded(subresource, "sec-websocket-accept")
            );
        }
        let check = |subresource, name, expected| {
            assert_eq!(is_request_header_forwarded(subresource, name), expected, "{subresource} {name}")
        };
        check("log", "accept", true);
        check("log", "cookie", false);
        check("proxy", "cookie", true);
        check("proxy", "transfer-encoding", false);
    }
}
