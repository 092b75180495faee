//! What a user may do.
//!
//! So far: whoever has proved to be somebody may do everything, and whoever has not may ask whether the server is well
//! and which it is. [`may`] is the only place that decides so; requests and access reviews both ask it.

use serde_json::{Value, json};

use crate::asked::Asked;
use crate::identity::Identity;

/// What somebody wants to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attributes {
    Resource(ResourceAttributes),
    /// Something that is no resource.
    Path {
        path: String,
        verb: String,
    },
}

/// The words of roles. Empty stands for what is not named: all objects, or none in particular.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResourceAttributes {
    pub verb: String,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl Attributes {
    /// What a request wants to do.
    pub(crate) fn of(asked: &Asked) -> Attributes {
        let method = || asked.method.as_str().to_lowercase();
        let Some(named) = asked.resource() else {
            return Attributes::Path { path: asked.path_inside(), verb: method() };
        };
        Attributes::Resource(ResourceAttributes {
            verb: asked.verb().map_or_else(method, |verb| verb.as_str().to_owned()),
            group: named.group.clone(),
            version: named.version.clone(),
            resource: named.resource.clone(),
            subresource: named.subresource.clone().unwrap_or_default(),
            namespace: named.namespace.clone().unwrap_or_default(),
            name: named.name.clone().unwrap_or_default(),
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub(crate) allowed: bool,
    /// For whoever asks why. Empty if there is nothing to say.
    pub(crate) reason: String,
}

/// What anybody may read.
const OPEN: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Whether somebody may do something.
pub(crate) fn may(identity: &Identity, attributes: &Attributes) -> Decision {
    let allowed = match (identity, attributes) {
        (Identity::User(_), _) => true,
        (Identity::Anonymous, Attributes::Resource(_)) => false,
        (Identity::Anonymous, Attributes::Path { path, verb }) => {
            let path = path.strip_suffix('/').unwrap_or(path);
            let is_open = |open: &&str| {
                path.strip_prefix(*open).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            matches!(verb.as_str(), "get" | "head") && OPEN.iter().any(is_open)
        }
    };
    Decision { allowed, reason: String::new() }
}

/// Everything somebody may do, as rules of a role: those about resources, and those about paths.
pub(crate) fn rules(identity: &Identity) -> (Value, Value) {
    match identity {
        Identity::User(_) => (
            json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]),
            json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }]),
        ),
        Identity::Anonymous => (json!([]), json!([{ "verbs": ["get"], "nonResourceURLs": OPEN }])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_may_ask_how_it_is_and_nothing_else() {
        let check = |line: &str, expected: bool| {
            let wanted = Attributes::of(&Asked::line(line));
            assert_eq!(may(&Identity::Anonymous, &wanted).allowed, expected, "{line}");
            assert!(may(&Identity::user("ann", &[]), &wanted).allowed, "{line}");
        };
        check("GET /healthz", true);
        check("GET /readyz/ping?verbose", true);
        check("HEAD /livez/", true);
        check("GET /clusters/root:a/readyz", true);
        check("GET /version", true);
        check("POST /healthz", false);
        check("GET /readyzz", false);
        check("GET /", false);
        check("GET /metrics", false);
        check("GET /nothing", false);
        check("GET /clusters/healthz", false);
        check("GET /clusters/root/api/v1/namespaces/healthz", false);
        check("GET /openapi/v3/healthz", false);
    }

    #[test]
    fn a_request_is_told_in_the_words_of_roles() {
        let words = |line: &str| match Attributes::of(&Asked::line(line)) {
            Attributes::Resource(it) => {
                [it.verb, it.group, it.resource, it.subresource, it.namespace, it.name].join(",")
            }
            Attributes::Path { path, verb } => format!("{verb} {path}"),
        };
        let check = |line: &str, expected: &str| assert_eq!(words(line), expected, "{line}");
        check("GET /clusters/root/api/v1/namespaces/shop/pods/web/status", "get,,pods,status,shop,web");
        check("GET /apis/apps/v1/deployments?watch=1", "watch,apps,deployments,,,");
        check("DELETE /api/v1/namespaces/shop/pods", "deletecollection,,pods,,shop,");
        check("GET /clusters/root:a/openapi/v3", "get /openapi/v3");
        check("GET /clusters/root:a", "get /");
        check("POST /nothing", "post /nothing");
    }
}
