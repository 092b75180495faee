//! The attributes of a request that authorization decides on.
//!
//! An anonymous client may read health and version; everything else is 401 for it, except paths that the policy of a
//! logical cluster opens. [`authz`](crate::authz) decides for all other clients.

use api::meta::selector::FieldSelector;
use http::Method;
use openapi::catalog::resource_info::Verb;

use crate::request::info::RequestInfo;

/// The attributes of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attributes {
    Resource(ResourceAttributes),
    /// A path that is not a resource.
    Path {
        path: String,
        verb: String,
    },
}

/// The attributes of a resource request, in the terms of RBAC rules. An empty field names nothing: an empty `name`, for
/// example, means the collection.
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
    /// Returns the attributes of a request.
    pub(crate) fn of(info: &RequestInfo) -> Attributes {
        let method = || info.method.as_str().to_lowercase();
        // A method that has no verb here, such as POST to an object, is authorized as its verb elsewhere.
        let verb_of_method = || match info.method {
            Method::POST => Verb::Create.as_str().to_owned(),
            Method::PUT => Verb::Update.as_str().to_owned(),
            _ => method(),
        };
        let Some(resource) = info.resource() else {
            return Attributes::Path { path: info.path_inside(), verb: method() };
        };
        let mut attributes = ResourceAttributes {
            verb: info.verb().map_or_else(verb_of_method, |verb| verb.as_str().to_owned()),
            group: resource.group.clone(),
            version: resource.version.clone(),
            resource: resource.resource.clone(),
            subresource: resource.subresource.clone().unwrap_or_default(),
            namespace: resource.namespace.clone().unwrap_or_default(),
            name: resource.name.clone().unwrap_or_default(),
        };
        // A namespace counts as inside itself, so that a role in the namespace can grant access to it.
        if attributes.group.is_empty() && attributes.resource == "namespaces" {
            attributes.namespace = attributes.name.clone();
        }
        if matches!(info.verb(), Some(Verb::List | Verb::Watch)) {
            attributes.name = selected(info);
        }
        Attributes::Resource(attributes)
    }
}

/// Returns the name that the field selector of a list or watch selects. The response then contains no other object, so
/// the rights on that one name suffice. Other verbs on a collection must not use this: a create ignores the selector.
fn selected(info: &RequestInfo) -> String {
    let selector = FieldSelector::parse(info.query.text("fieldSelector")).ok();
    let name = selector.and_then(|selector| selector.exact("metadata.name").map(str::to_owned));
    // A value that cannot be in a path is not a name.
    let is_name = |name: &String| !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']);
    name.filter(is_name).unwrap_or_default()
}

/// Paths that every client may read, also an anonymous one.
const PUBLIC_PATHS: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

/// Paths that the policy of a logical cluster can open to anonymous clients: discovery, and the issuer of its tokens.
const OPENABLE_PATHS: &[&str] =
    &["/api", "/apis", "/openapi", "/openid", "/.well-known/openid-configuration"];

/// Reports whether an anonymous client may always send this request.
pub(crate) fn is_public(attributes: &Attributes) -> bool {
    reads(attributes, PUBLIC_PATHS)
}

/// Reports whether the policy of a logical cluster can allow this request to anonymous clients.
pub(crate) fn can_be_public(attributes: &Attributes) -> bool {
    reads(attributes, OPENABLE_PATHS)
}

fn reads(attributes: &Attributes, paths: &[&str]) -> bool {
    let Attributes::Path { path, verb } = attributes else { return false };
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_one =
        |one: &&str| path.strip_prefix(*one).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    matches!(verb.as_str(), "get" | "head") && paths.iter().any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_health_and_version_are_public() {
        let check = |line: &str, expected: bool| {
            let attributes = Attributes::of(&RequestInfo::line(line));
            assert_eq!(is_public(&attributes), expected, "{line}");
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
    fn request_attributes_use_the_terms_of_roles() {
        let formatted = |line: &str| match Attributes::of(&RequestInfo::line(line)) {
            Attributes::Resource(it) => {
                [it.verb, it.group, it.resource, it.subresource, it.namespace, it.name].join(",")
            }
            Attributes::Path { path, verb } => format!("{verb} {path}"),
        };
        let check = |line: &str, expected: &str| assert_eq!(formatted(line), expected, "{line}");
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
