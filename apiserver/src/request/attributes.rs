//! The attributes of a request that authorization decides on.
//!
//! An anonymous client may read health and version, and gets 401 otherwise.
//! What the others may do is decided in [`authz`](crate::authz).

use http::Method;
use openapi::catalog::resource_info::Verb;
use openapi::meta::selector::FieldSelector;

use crate::request::info::RequestInfo;

/// What a request does.
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
    /// The attributes of a request.
    pub(crate) fn of(info: &RequestInfo) -> Attributes {
        let method = || info.method.as_str().to_lowercase();
        // What makes no sense for what is named is refused as what it would be elsewhere.
        let meant = || match info.method {
            Method::POST => Verb::Create.as_str().to_owned(),
            Method::PUT => Verb::Update.as_str().to_owned(),
            _ => method(),
        };
        let Some(named) = info.resource() else {
            return Attributes::Path { path: info.path_inside(), verb: method() };
        };
        let mut attributes = ResourceAttributes {
            verb: info.verb().map_or_else(meant, |verb| verb.as_str().to_owned()),
            group: named.group.clone(),
            version: named.version.clone(),
            resource: named.resource.clone(),
            subresource: named.subresource.clone().unwrap_or_default(),
            namespace: named.namespace.clone().unwrap_or_default(),
            name: named.name.clone().unwrap_or_default(),
        };
        // A namespace is in itself, so that a role there can be about it.
        if attributes.group.is_empty() && attributes.resource == "namespaces" {
            attributes.namespace = attributes.name.clone();
        }
        if matches!(info.verb(), Some(Verb::List | Verb::Watch)) {
            attributes.name = selected(info);
        }
        Attributes::Resource(attributes)
    }
}

/// The one name a list or a watch is about, if its selector leaves but one: nothing else is then served. Other verbs do
/// not care for the selector, or do but are about a collection all the same: for them it names nothing.
fn selected(info: &RequestInfo) -> String {
    let selector = FieldSelector::parse(info.query.text("fieldSelector")).ok();
    let name = selector.and_then(|selector| selector.exact("metadata.name").map(str::to_owned));
    // What could not stand in a path is no name.
    let is_name = |name: &String| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']);
    name.filter(is_name).unwrap_or_default()
}

/// Paths that every client may read.
const OPEN: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Paths that the policy of a logical cluster may open to every client: discovery, and the issuer of its tokens.
const OPENED: &[&str] = &["/api", "/apis", "/openapi", "/openid", "/.well-known/openid-configuration"];

/// Whether an anonymous client may do this.
pub(crate) fn is_open(wanted: &Attributes) -> bool {
    reads(wanted, OPEN)
}

/// Whether a policy may let an anonymous client do this.
pub(crate) fn can_be_opened(wanted: &Attributes) -> bool {
    reads(wanted, OPENED)
}

fn reads(wanted: &Attributes, paths: &[&str]) -> bool {
    let Attributes::Path { path, verb } = wanted else { return false };
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_one =
        |one: &&str| path.strip_prefix(*one).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    matches!(verb.as_str(), "get" | "head") && paths.iter().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_may_ask_how_it_is_and_nothing_else() {
        let check = |line: &str, expected: bool| {
            let wanted = Attributes::of(&RequestInfo::line(line));
            assert_eq!(is_open(&wanted), expected, "{line}");
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
        let words = |line: &str| match Attributes::of(&RequestInfo::line(line)) {
            Attributes::Resource(it) => {
                [it.verb, it.group, it.resource, it.subresource, it.namespace, it.name].join(",")
            }
            Attributes::Path { path, verb } => format!("{verb} {path}"),
        };
        let check = |line: &str, expected: &str| assert_eq!(words(line), expected, "{line}");
        check("GET /clusters/root/api/v1/namespaces/shop/pods/web/status", "get,,pods,status,shop,web");
        check("GET /apis/apps/v1/deployments?watch=1", "watch,apps,deployments,,,");
        check("DELETE /api/v1/namespaces/shop/pods", "deletecollection,,pods,,shop,");
        check("GET /api/v1/namespaces/shop/status", "get,,namespaces,status,shop,shop");
        check("GET /api/v1/namespaces", "list,,namespaces,,,");
        check("GET /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb", "list,,pods,,shop,web");
        check("GET /api/v1/pods?watch=1&fieldSelector=metadata.name!%3Dweb", "watch,,pods,,,");
        // A user who may create one object by name must not create another by selecting the first.
        let one = "fieldSelector=metadata.name%3Dweb";
        check(&format!("POST /api/v1/namespaces/shop/pods?{one}"), "create,,pods,,shop,");
        check(&format!("DELETE /api/v1/namespaces/shop/pods?{one}"), "deletecollection,,pods,,shop,");
        check(&format!("PUT /api/v1/namespaces/shop/pods?{one}"), "update,,pods,,shop,");
        check(&format!("GET /api/v1/namespaces/shop/pods/db?{one}"), "get,,pods,,shop,db");
        check("GET /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3D..", "list,,pods,,shop,");
        check("GET /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Da%2Fb", "list,,pods,,shop,");
        check("POST /api/v1/namespaces/shop/pods/web", "create,,pods,,shop,web");
        check("PATCH /api/v1/namespaces/shop/pods", "patch,,pods,,shop,");
        check("GET /clusters/root:a/openapi/v3", "get /openapi/v3");
        check("GET /clusters/root:a", "get /");
        check("POST /nothing", "post /nothing");
    }
}
