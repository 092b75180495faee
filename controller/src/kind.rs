//! A kind of object, as an API server serves it.

use std::fmt;

/// The names of a kind, from which its URLs are made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// As in URLs: `deployments`.
    pub plural: String,
    /// As in objects: `Deployment`.
    pub name: String,
    pub namespaced: bool,
}

impl ResourceKind {
    pub fn new(group: &str, version: &str, plural: &str, name: &str, namespaced: bool) -> ResourceKind {
        let [group, version, plural, name] = [group, version, plural, name].map(str::to_owned);
        ResourceKind { group, version, plural, name, namespaced }
    }

    /// Returns the `apiVersion` of its objects: `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    /// Returns the path of its objects in one namespace or, if that is empty, in all namespaces.
    pub fn path(&self, namespace: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let within = match self.namespaced && !namespace.is_empty() {
            true => format!("/namespaces/{namespace}"),
            false => String::new(),
        };
        format!("{root}/{}{within}/{}", self.api_version(), self.plural)
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.is_empty() {
            true => f.write_str(&self.plural),
            false => write!(f, "{}.{}", self.plural, self.group),
        }
    }
}

impl fmt::Debug for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_of_kinds() {
        let pods = ResourceKind::new("", "v1", "pods", "Pod", true);
        let roles =
            ResourceKind::new("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false);
        assert_eq!(pods.path("shop"), "/api/v1/namespaces/shop/pods");
        assert_eq!(pods.path(""), "/api/v1/pods");
        assert_eq!(roles.path("shop"), "/apis/rbac.authorization.k8s.io/v1/clusterroles");
        assert_eq!(
            (pods.api_version(), roles.to_string()),
            ("v1".into(), "clusterroles.rbac.authorization.k8s.io".into())
        );
    }
}
