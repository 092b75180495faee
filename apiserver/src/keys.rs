//! Where objects are in the store.
//!
//! ```text
//!   group / resource / logical cluster id / namespace / name
//!   core  / pods     / ~bbbbbbbbbbbbbbbb  / shop      / web-1
//!   core  / nodes    / ~bbbbbbbbbbbbbbbb  / -         / east
//! ```
//!
//! The resource comes first, so that one logical cluster's pods and everybody's pods are both one range. Every
//! part is followed by a slash, so that no prefix runs into a neighbour: names, groups and ids have none.

use api::cluster::Id;
use storage::{Key, Range};

/// Stands where a namespace would, for objects that have none. No namespace is called that.
const NO_NAMESPACE: &str = "-";
/// Stands for the group without a name.
const CORE: &str = "core";

/// A collection: all objects of one resource, whatever the version they are asked for in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collection<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl Collection<'_> {
    fn prefix(&self) -> String {
        let group = if self.group.is_empty() { CORE } else { self.group };
        format!("{group}/{}/", self.plural)
    }

    /// One object.
    pub fn key(&self, cluster: Id, namespace: Option<&str>, name: &str) -> Key {
        let namespace = namespace.unwrap_or(NO_NAMESPACE);
        Key::from(format!("{}{cluster}/{namespace}/{name}", self.prefix()))
    }

    /// All objects of a logical cluster, or of one namespace of it.
    pub fn range(&self, cluster: Id, namespace: Option<&str>) -> Range {
        match namespace {
            Some(namespace) => Range::prefix(format!("{}{cluster}/{namespace}/", self.prefix())),
            None => Range::prefix(format!("{}{cluster}/", self.prefix())),
        }
    }

    /// All objects of all logical clusters.
    pub fn everywhere(&self) -> Range {
        Range::prefix(self.prefix())
    }
}

/// Where one object is, as its key says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place<'a> {
    pub cluster: Id,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

impl<'a> Place<'a> {
    /// None if the key is not one of an object.
    pub fn of(key: &'a Key) -> Option<Place<'a>> {
        let mut parts = str::from_utf8(key.as_bytes()).ok()?.rsplitn(4, '/');
        let (name, namespace) = (parts.next()?, parts.next()?);
        let cluster = parts.next()?.parse().ok()?;
        Some(Place { cluster, namespace: Some(namespace).filter(|found| *found != NO_NAMESPACE), name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_own_objects_and_no_others() {
        let pods = Collection { group: "", plural: "pods" };
        let (one, other) = (Id::new(1), Id::new(2));
        let key = pods.key(one, Some("shop"), "web-1");
        assert_eq!(key.as_bytes(), b"core/pods/~bbbbbbbbbbbbbbbc/shop/web-1");
        let holds = |range: Range| range.contains(key.as_bytes());
        assert!(
            holds(pods.range(one, None)) && holds(pods.range(one, Some("shop"))) && holds(pods.everywhere())
        );
        assert!(!holds(pods.range(one, Some("sho"))) && !holds(pods.range(one, Some("shop-2"))));
        assert!(!holds(pods.range(other, None)));
        assert!(!holds(Collection { group: "", plural: "pod" }.everywhere()));
        assert!(!holds(Collection { group: "metrics.k8s.io", plural: "pods" }.everywhere()));
    }

    #[test]
    fn a_key_says_where_its_object_is() {
        let pods = Collection { group: "apps", plural: "pods" };
        let (namespaced, not) =
            (pods.key(Id::new(1), Some("shop"), "web-1"), pods.key(Id::ROOT, None, "east"));
        let expected = Place { cluster: Id::new(1), namespace: Some("shop"), name: "web-1" };
        assert_eq!(Place::of(&namespaced), Some(expected));
        assert_eq!(Place::of(&not), Some(Place { cluster: Id::ROOT, namespace: None, name: "east" }));
        assert_eq!(Place::of(&Key::from("a/b")), None);
    }
}
