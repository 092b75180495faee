//! The path of a request, parsed once.
//!
//! ```text
//!   GET /clusters/root:team-a/api/v1/namespaces/shop/pods/web-1/status?…
//!       └──── cluster ──────┘└─────────────── target ───────────────┘
//! ```
//!
//! Later stages use the result and never parse the path again. An ambiguous path is refused, not repaired: no segment
//! may be empty, dotted or doubly encoded.

use std::fmt;

use api::cluster::{Id, NameError, Path, ROOT};

/// The logical cluster in a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cluster {
    /// No `/clusters/…` prefix: the root, or the home of the service account that sends the request.
    Bare,
    Path(Path),
    Id(Id),
    /// `/clusters/*`: all logical clusters, for lists and watches only.
    All,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cluster::Bare => f.write_str(ROOT),
            Cluster::Path(path) => path.fmt(f),
            Cluster::Id(id) => id.fmt(f),
            Cluster::All => f.write_str("*"),
        }
    }
}

/// The target of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// `/healthz`, `/livez` or `/readyz`, optionally with the name of one check.
    Health {
        endpoint: Health,
        check: Option<String>,
    },
    Version,
    Metrics,
    /// `/.well-known/openid-configuration`: the issuer of service account tokens.
    Issuer,
    /// `/openid/v1/jwks`: the keys of that issuer.
    Keys,
    /// `/`: the list of paths.
    Index,
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/openapi/v3`, or one group version of it: `api/v1`, `apis/apps/v1`.
    OpenApiV3 {
        group_version: Option<String>,
    },
    /// `/api` or `/apis`.
    Groups {
        core: bool,
    },
    /// `/apis/apps`.
    Group {
        group: String,
    },
    /// `/api/v1` or `/apis/apps/v1`.
    Resources {
        group: String,
        version: String,
    },
    Resource(Resource),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    Healthz,
    Livez,
    Readyz,
}

/// A collection, an object in it, or a subresource of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    /// The plural name, as in the path.
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The path segments after the subresource, for proxies.
    pub rest: Vec<String>,
}

impl fmt::Display for Resource {
    /// Formats the resource and subresource without any name: `deployments.apps/scale`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        self.subresource.as_ref().map_or(Ok(()), |segment| write!(f, "/{segment}"))
    }
}

/// The error for a path that is not served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathError {
    /// The name of the logical cluster is invalid.
    Cluster(NameError),
    /// A segment that parsers could read in two ways.
    Ambiguous,
    /// Nothing is served at this path.
    Unknown,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Cluster(error) => error.fmt(f),
            PathError::Ambiguous => {
                write!(f, "the path has an empty, \".\", \"..\" or doubly encoded segment")
            }
            PathError::Unknown => write!(f, "the server could not find the requested resource"),
        }
    }
}

impl std::error::Error for PathError {}

/// Parses the path of a request, without its query.
pub fn parse(path: &str) -> Result<(Cluster, Target), PathError> {
    let path = path.strip_prefix('/').ok_or(PathError::Unknown)?;
    // A trailing slash changes nothing: `/api/` is `/api`.
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok((Cluster::Bare, Target::Index));
    }
    let segments = path.split('/').map(decode).collect::<Result<Vec<_>, _>>()?;
    match segments.split_first() {
        Some((first, rest)) if first == "clusters" => {
            let (name, rest) = rest.split_first().ok_or(PathError::Unknown)?;
            // Logical clusters do not nest in paths, so a second `clusters` is an error.
            if rest.first().is_some_and(|next| next == "clusters") {
                return Err(PathError::Unknown);
            }
            Ok((cluster(name)?, target(rest)?))
        }
        _ => Ok((Cluster::Bare, target(&segments)?)),
    }
}

fn cluster(name: &str) -> Result<Cluster, PathError> {
    if name == "*" {
        return Ok(Cluster::All);
    }
    if let Ok(id) = name.parse() {
        return Ok(Cluster::Id(id));
    }
    name.parse().map(Cluster::Path).map_err(PathError::Cluster)
}

/// Decodes one segment. Refuses characters that a later parser could take for a separator, a parent directory or
/// another encoding.
fn decode(segment: &str) -> Result<String, PathError> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or(PathError::Ambiguous)?, digit().ok_or(PathError::Ambiguous)?);
        bytes.push((high << 4 | low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| PathError::Ambiguous)?;
    let strange = |character: char| matches!(character, '/' | '\\' | '%') || character.is_control();
    if text.is_empty() || text == "." || text == ".." || text.chars().any(strange) {
        return Err(PathError::Ambiguous);
    }
    Ok(text)
}

fn target(segments: &[String]) -> Result<Target, PathError> {
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let health =
        |endpoint, check: Option<&str>| Ok(Target::Health { endpoint, check: check.map(str::to_owned) });
    match segments.as_slice() {
        [] => Ok(Target::Index),
        ["version"] => Ok(Target::Version),
        ["metrics"] => Ok(Target::Metrics),
        ["healthz"] => health(Health::Healthz, None),
        ["livez"] => health(Health::Livez, None),
        ["readyz"] => health(Health::Readyz, None),
        ["healthz", check] => health(Health::Healthz, Some(check)),
        ["livez", check] => health(Health::Livez, Some(check)),
        ["readyz", check] => health(Health::Readyz, Some(check)),
        [".well-known", "openid-configuration"] => Ok(Target::Issuer),
        ["openid", "v1", "jwks"] => Ok(Target::Keys),
        ["openapi", "v2"] => Ok(Target::OpenApiV2),
        ["openapi", "v3"] => Ok(Target::OpenApiV3 { group_version: None }),
        ["openapi", "v3", group_version @ ..] => {
            Ok(Target::OpenApiV3 { group_version: Some(group_version.join("/")) })
        }
        ["api"] => Ok(Target::Groups { core: true }),
        ["apis"] => Ok(Target::Groups { core: false }),
        ["apis", group] => Ok(Target::Group { group: (*group).to_owned() }),
        ["api", version] => Ok(Target::Resources { group: String::new(), version: (*version).to_owned() }),
        ["apis", group, version] => {
            Ok(Target::Resources { group: (*group).to_owned(), version: (*version).to_owned() })
        }
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        _ => Err(PathError::Unknown),
    }
}

/// Subresources of namespaces. Any other segment after the name of a namespace is a collection in it.
const OF_NAMESPACE: &[&str] = &["status", "finalize"];

fn resource(group: &str, version: &str, rest: &[&str]) -> Result<Target, PathError> {
    let (namespace, rest) = match rest {
        ["namespaces", _, segment] if OF_NAMESPACE.contains(segment) => (None, rest),
        ["namespaces", namespace, collection @ ..] if !collection.is_empty() => {
            (Some(*namespace), collection)
        }
        _ => (None, rest),
    };
    let (resource, rest) = rest.split_first().ok_or(PathError::Unknown)?;
    let owned = |text: &&str| (*text).to_owned();
    Ok(Target::Resource(Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.map(str::to_owned),
        resource: (*resource).to_owned(),
        name: rest.first().map(owned),
        subresource: rest.get(1).map(owned),
        rest: rest.iter().skip(2).map(owned).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a target in short: `apps/v1 ns=shop deployments/web/scale`.
    fn described(target: &Target) -> String {
        let Target::Resource(found) = target else { return format!("{target:?}") };
        let mut text = if found.group.is_empty() { String::new() } else { format!("{}/", found.group) };
        text += &found.version;
        if let Some(namespace) = &found.namespace {
            text += &format!(" ns={namespace}");
        }
        text += &format!(" {}", found.resource);
        for segment in found.name.iter().chain(&found.subresource).chain(&found.rest) {
            text += &format!("/{segment}");
        }
        text
    }

    #[test]
    fn paths_name_resources() {
        let check = |path: &str, expected: &str| {
            let found = parse(path).map(|(_, target)| described(&target));
            assert_eq!(found.as_deref(), Ok(expected), "{path}");
        };
        check("/api/v1/pods", "v1 pods");
        check("/api/v1/pods/", "v1 pods");
        check("/api/v1/namespaces", "v1 namespaces");
        check("/api/v1/namespaces/shop", "v1 namespaces/shop");
        check("/api/v1/namespaces/shop/status", "v1 namespaces/shop/status");
        check("/api/v1/namespaces/shop/finalize", "v1 namespaces/shop/finalize");
        check("/api/v1/namespaces/shop/pods", "v1 ns=shop pods");
        check("/api/v1/namespaces/shop/pods/web-1", "v1 ns=shop pods/web-1");
        check("/api/v1/namespaces/shop/pods/web-1/log", "v1 ns=shop pods/web-1/log");
        check("/api/v1/namespaces/shop/services/web:80/proxy/a/b", "v1 ns=shop services/web:80/proxy/a/b");
        check("/apis/apps/v1/namespaces/shop/deployments/web/scale", "apps/v1 ns=shop deployments/web/scale");
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "rbac.authorization.k8s.io/v1 clusterroles/system:node",
        );
        check("/clusters/root:a/api/v1/pods", "v1 pods");
    }

    #[test]
    fn paths_name_other_endpoints() {
        let check = |path: &str, expected: Target| {
            assert_eq!(parse(path).map(|(_, target)| target), Ok(expected), "{path}");
        };
        check("/", Target::Index);
        check("/clusters/root", Target::Index);
        check("/version", Target::Version);
        check("/clusters/root:a/version", Target::Version);
        check("/readyz/etcd", Target::Health { endpoint: Health::Readyz, check: Some("etcd".into()) });
        check("/.well-known/openid-configuration", Target::Issuer);
        check("/clusters/root:a/openid/v1/jwks", Target::Keys);
        check("/openapi/v2", Target::OpenApiV2);
        check("/openapi/v3/apis/apps/v1", Target::OpenApiV3 { group_version: Some("apis/apps/v1".into()) });
        check("/api", Target::Groups { core: true });
        check("/apis", Target::Groups { core: false });
        check("/apis/apps", Target::Group { group: "apps".into() });
        check("/api/v1", Target::Resources { group: String::new(), version: "v1".into() });
        check("/apis/apps/v1", Target::Resources { group: "apps".into(), version: "v1".into() });
    }

    #[test]
    fn addresses_name_logical_clusters() {
        let check = |path: &str, expected: Cluster| {
            assert_eq!(parse(path).map(|(cluster, _)| cluster), Ok(expected), "{path}");
        };
        check("/api/v1/pods", Cluster::Bare);
        check("/clusters/root:a:b/api/v1/pods", Cluster::Path("root:a:b".parse().unwrap()));
        check("/clusters/root%3Aa/api/v1/pods", Cluster::Path("root:a".parse().unwrap()));
        check("/clusters/*/api/v1/pods", Cluster::All);
        let id = Id::new(7);
        check(&format!("/clusters/{id}/api/v1/pods"), Cluster::Id(id));
    }

    /// Each of these was a path traversal in some server.
    #[test]
    fn malformed_paths_are_refused() {
        let strange = [
            "",
            "api/v1/pods",
            "//api/v1/pods",
            "/api//v1/pods",
            "/api/v1/pods//",
            "/api/v1/../v1/pods",
            "/api/v1/%2e%2e/pods",
            "/api/v1/namespaces/a%2fb/pods",
            "/api/v1/namespaces/a%252fb/pods",
            "/api/v1/namespaces/a%5cb/pods",
            "/api/v1/namespaces/a%00/pods",
            "/api/v1/namespaces/%/pods",
            "/api/v1/namespaces/%zz/pods",
            "/api/v1/namespaces/%ff/pods",
            "/api/v1/namespaces/a%0ab/pods",
            "/clusters",
            "/clusters/",
            "/clusters//api/v1/pods",
            "/clusters/../api/v1/pods",
            "/clusters/Root/api",
            "/clusters/root:/api",
            "/clusters/root/clusters/root:a/api/v1/pods",
            "/clusters/root:*/api/v1/pods",
            "/clusters/~x/api/v1/pods",
            "/nothing",
            "/healthz/a/b",
        ];
        for path in strange {
            assert!(parse(path).is_err(), "{path} became {:?}", parse(path));
        }
    }
}
