//! The keys of objects in the store.
//!
//! ```text
//!   group / resource / logical cluster id / namespace / name
//!   core  / pods     / ~bbbbbbbbbbbbbbbb  / shop      / web-1
//!   core  / nodes    / ~bbbbbbbbbbbbbbbb  / -         / east
//! ```
//!
//! The resource comes first, so that the pods of one logical cluster and those of all are both one range. Every
//! part is followed by a slash, so that no prefix runs into a neighbour: names, groups and ids have none.
//!
//! Beside the objects there is one entry for each logical cluster, its [record](crate::clusters::records), and one with the keys its
//! service accounts are known by, if it has made any:
//!
//! ```text
//!   ~births / ~bbbbbbbbbbbbbbbb
//!   ~keys   / ~bbbbbbbbbbbbbbbb
//!   ~pki    / authority            the certificate authority of servers that share an etcd
//! ```

use api::cluster::Id;
use storage::{Key, Range};

/// Stands where a namespace would, for objects that have none. No namespace is called that.
const NO_NAMESPACE: &str = "-";
/// Stands for the group without a name.
const CORE: &str = "core";

/// Stands where a group would. Groups are host names and have no tilde, so no custom resource comes
/// to lie here.
const CLUSTER_RECORDS: &str = "~births/";

/// The same for the keys that logical clusters sign with.
const SIGNING: &str = "~keys/";

/// The certificate authority that the servers of one etcd share, private key included. Like the others beside the objects it
/// is in no group, so no path of the API leads here.
pub(crate) fn shared_authority() -> Key {
    Key::from("~pki/authority")
}

/// The keys a logical cluster signs with.
pub(crate) fn signing(cluster: Id) -> Key {
    Key::from(format!("{SIGNING}{cluster}"))
}

/// Those of all logical clusters.
pub(crate) fn all_signing() -> Range {
    Range::prefix(SIGNING)
}

/// The record of a logical cluster.
pub fn cluster_record(cluster: Id) -> Key {
    Key::from(format!("{CLUSTER_RECORDS}{cluster}"))
}

/// Whose record this is the key of.
pub(crate) fn cluster_record_id(key: &Key) -> Option<Id> {
    std::str::from_utf8(key.as_bytes()).ok()?.strip_prefix(CLUSTER_RECORDS)?.parse().ok()
}

/// The records of all logical clusters, in the order of their ids.
pub fn cluster_records() -> Range {
    Range::prefix(CLUSTER_RECORDS)
}

/// The records of those whose ids begin with `from` or come after it, up to and including `to`, if that is given.
pub(crate) fn cluster_records_between(from: &[u8], to: Option<&[u8]>) -> Range {
    let start = [CLUSTER_RECORDS.as_bytes(), from].concat();
    match (to, cluster_records().end()) {
        (Some(to), _) => Range::between(start, [CLUSTER_RECORDS.as_bytes(), to, &[0]].concat()),
        (None, Some(end)) if !from.is_empty() => Range::between(start, end.clone()),
        (None, _) => cluster_records(),
    }
}

/// A collection: all objects of one resource, whatever the version they are asked for in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collection<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl Collection<'_> {
    /// The prefix of the keys of its objects.
    pub(crate) fn prefix(&self) -> String {
        let group = if self.group.is_empty() { CORE } else { self.group };
        format!("{group}/{}/", self.plural)
    }

    /// One object.
    pub fn key(&self, cluster: Id, namespace: Option<&str>, name: &str) -> Key {
        Key::from(format!("{}{cluster}/{}", self.prefix(), Self::place(namespace, name)))
    }

    /// The part of an object's key that is the same in every logical cluster.
    pub(crate) fn place(namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", namespace.unwrap_or(NO_NAMESPACE))
    }

    /// All objects of a logical cluster, or of one namespace of it.
    pub fn range(&self, cluster: Id, namespace: Option<&str>) -> Range {
        match namespace {
            Some(namespace) => Range::prefix(format!("{}{cluster}/{namespace}/", self.prefix())),
            None => Range::prefix(format!("{}{cluster}/", self.prefix())),
        }
    }

    /// After every key of this collection, and before those of the next.
    pub(crate) fn after(&self) -> Key {
        let mut bytes = self.prefix().into_bytes();
        bytes.push(u8::MAX);
        Key::from(bytes)
    }

    /// All objects of all logical clusters.
    pub fn everywhere(&self) -> Range {
        Range::prefix(self.prefix())
    }
}

/// Where one object is, as its key says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectKey<'a> {
    pub collection: Collection<'a>,
    pub cluster: Id,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

impl<'a> ObjectKey<'a> {
    /// None if the key is not one of an object.
    pub fn of(key: &'a Key) -> Option<ObjectKey<'a>> {
        let mut parts = str::from_utf8(key.as_bytes()).ok()?.split('/');
        let mut next = || parts.next();
        let (group, plural) = (next()?, next()?);
        let group = if group == CORE { "" } else { group };
        let cluster = next()?.parse().ok()?;
        let (namespace, name) = (next()?, next()?);
        let namespace = Some(namespace).filter(|found| *found != NO_NAMESPACE);
        let place = ObjectKey { collection: Collection { group, plural }, cluster, namespace, name };
        parts.next().is_none().then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_where_its_object_is() {
        let (pods, nodes) =
            (Collection { group: "", plural: "pods" }, Collection { group: "g.io", plural: "nodes" });
        let id = Id::new(7);
        for (collection, namespace) in [(pods, Some("shop")), (nodes, None)] {
            let key = collection.key(id, namespace, "a:b");
            assert_eq!(
                ObjectKey::of(&key),
                Some(ObjectKey { collection, cluster: id, namespace, name: "a:b" })
            );
        }
        for odd in [
            "",
            "core",
            "core/pods/x/y/z",
            "core/pods/~bbbbbbbbbbbbbbbc/y",
            "core/pods/~bbbbbbbbbbbbbbbc/y/z/u",
        ] {
            assert_eq!(ObjectKey::of(&Key::from(odd)), None, "{odd}");
        }
    }

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
    fn no_object_is_where_the_shared_authority_is() {
        let key = shared_authority();
        assert_eq!(ObjectKey::of(&key), None);
        // A definition may name any group and any plural that are DNS names.
        for (group, plural) in [("pki", "authority"), ("", "authority"), ("~pki", "authority"), ("~pki", "")]
        {
            let collection = Collection { group, plural };
            assert!(!collection.everywhere().contains(key.as_bytes()), "{collection:?}");
        }
    }

    #[test]
    fn records_are_beside_the_objects_and_in_the_order_of_ids() {
        let (one, other) = (Id::new(1), Id::new(2));
        assert_eq!(cluster_record(one).as_bytes(), b"~births/~bbbbbbbbbbbbbbbc");
        assert_eq!(
            (cluster_record_id(&cluster_record(one)), cluster_record_id(&Key::from("~births/x"))),
            (Some(one), None)
        );
        assert!(cluster_record(one) < cluster_record(other));
        let between = |from: &[u8], to: Option<&[u8]>, id| {
            cluster_records_between(from, to).contains(cluster_record(id).as_bytes())
        };
        let text = one.to_string();
        assert!(between(b"", None, one) && between(text.as_bytes(), Some(text.as_bytes()), one));
        assert!(!between(text.as_bytes(), Some(text.as_bytes()), other));
        assert!(between(text.as_bytes(), None, other) && !between(b"~c", None, one));
    }
}
