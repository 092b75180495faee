//! The keys of objects in the store.
//!
//! ```text
//!   group / resource / logical cluster id / namespace / name
//!   core  / pods     / ~bbbbbbbbbbbbbbbb  / shop      / web-1
//!   core  / nodes    / ~bbbbbbbbbbbbbbbb  / -         / east
//! ```
//!
//! The resource comes first, so that the pods of one logical cluster and the pods of all are each one range. A slash
//! ends every part, so that no prefix matches a neighbour: names, groups and ids contain none.
//!
//! Besides the objects, each logical cluster has an entry for its [record](crate::clusters::records), and, once it has
//! issued a token, an entry for its signing keys:
//!
//! ```text
//!   ~births / ~bbbbbbbbbbbbbbbb
//!   ~keys   / ~bbbbbbbbbbbbbbbb
//!   ~pki    / authority            the certificate authority of servers that share an etcd
//!   ~data   / version              which names the objects use
//! ```

use api::cluster::Id;
use storage::{Key, Range};

/// The namespace part of the key of a cluster-scoped object. No namespace has this name.
const NO_NAMESPACE: &str = "-";
/// The group part of the key of an object in the core group.
const CORE: &str = "core";

/// The prefix of records. Groups are host names without a tilde, so no custom resource can have keys here.
const CLUSTER_RECORDS: &str = "~births/";

/// The prefix of the signing keys of logical clusters.
const SIGNING: &str = "~keys/";

/// Returns the key of the certificate authority that the servers of one etcd share, including its private key. It is in
/// no group, so no path of the API leads to it.
pub(crate) fn shared_authority() -> Key {
    Key::from("~pki/authority")
}

/// Returns the key of the version of the store: which names of annotations and fields its objects use.
pub fn data_version() -> Key {
    Key::from("~data/version")
}

/// Returns the key of a logical cluster's signing keys.
pub(crate) fn signing(cluster: Id) -> Key {
    Key::from(format!("{SIGNING}{cluster}"))
}

/// Returns the range of the signing keys of all logical clusters.
pub(crate) fn all_signing() -> Range {
    Range::prefix(SIGNING)
}

/// Returns the key of a logical cluster's record.
pub fn cluster_record(cluster: Id) -> Key {
    Key::from(format!("{CLUSTER_RECORDS}{cluster}"))
}

/// Returns the id of the logical cluster whose record has this key.
pub(crate) fn cluster_record_id(key: &Key) -> Option<Id> {
    std::str::from_utf8(key.as_bytes()).ok()?.strip_prefix(CLUSTER_RECORDS)?.parse().ok()
}

/// Returns the range of all records, ordered by id.
pub fn cluster_records() -> Range {
    Range::prefix(CLUSTER_RECORDS)
}

/// Returns the range of the records whose ids are at least `from` and, if given, at most `to`.
pub(crate) fn cluster_records_between(from: &[u8], to: Option<&[u8]>) -> Range {
    let start = [CLUSTER_RECORDS.as_bytes(), from].concat();
    match (to, cluster_records().end()) {
        (Some(to), _) => Range::between(start, [CLUSTER_RECORDS.as_bytes(), to, &[0]].concat()),
        (None, Some(end)) if !from.is_empty() => Range::between(start, end.clone()),
        (None, _) => cluster_records(),
    }
}

/// A collection: all objects of one resource, regardless of the version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Collection<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl Collection<'_> {
    /// Returns the prefix of the keys of the objects.
    pub(crate) fn prefix(&self) -> String {
        let group = if self.group.is_empty() { CORE } else { self.group };
        format!("{group}/{}/", self.plural)
    }

    /// Returns the key of one object.
    pub fn key(&self, cluster: Id, namespace: Option<&str>, name: &str) -> Key {
        Key::from(format!("{}{cluster}/{}", self.prefix(), Self::place(namespace, name)))
    }

    /// Returns the part of an object's key that is the same in every logical cluster.
    pub(crate) fn place(namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", namespace.unwrap_or(NO_NAMESPACE))
    }

    /// Returns the range of all objects of a logical cluster or of one of its namespaces.
    pub fn range(&self, cluster: Id, namespace: Option<&str>) -> Range {
        match namespace {
            Some(namespace) => Range::prefix(format!("{}{cluster}/{namespace}/", self.prefix())),
            None => Range::prefix(format!("{}{cluster}/", self.prefix())),
        }
    }

    /// Returns a key after every key of this collection and before those of the next.
    pub(crate) fn after(&self) -> Key {
        let mut bytes = self.prefix().into_bytes();
        bytes.push(u8::MAX);
        Key::from(bytes)
    }

    /// Returns the range of the objects of all logical clusters.
    pub fn everywhere(&self) -> Range {
        Range::prefix(self.prefix())
    }
}

/// The parsed key of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectKey<'a> {
    pub collection: Collection<'a>,
    pub cluster: Id,
    pub namespace: Option<&'a str>,
    pub name: &'a str,
}

impl<'a> ObjectKey<'a> {
    /// Parses a key. Returns None if it is not the key of an object.
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
    fn a_key_identifies_its_object() {
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
    fn ranges_contain_exactly_their_objects() {
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
    fn no_object_has_the_key_of_the_shared_authority() {
        let key = shared_authority();
        assert_eq!(ObjectKey::of(&key), None);
        // A definition can have any group and plural that are DNS names.
        for (group, plural) in [("pki", "authority"), ("", "authority"), ("~pki", "authority"), ("~pki", "")]
        {
            let collection = Collection { group, plural };
            assert!(!collection.everywhere().contains(key.as_bytes()), "{collection:?}");
        }
    }

    #[test]
    fn records_are_outside_all_object_ranges_and_ordered_by_id() {
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
