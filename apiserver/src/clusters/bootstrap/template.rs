//! The template: the bootstrap objects and their keys, stored once for all logical clusters.
//!
//! ```text
//!   core/configmaps/            ◄ the objects of one collection
//!     default/kube-root-ca.crt  ◄ the key of the object within a logical cluster, and its bytes
//!     kube-system/kube-root-ca.crt
//! ```
//!
//! The value of a template object has the bytes of a stored object, with gaps for its uid and times. Rendering it for a
//! logical cluster copies the bytes and writes a few words into the gaps.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cluster::Id;
use bytes::Bytes;
use serde_json::Value;
use storage::{Entry, Key, Range, Revision};
use uuid::Uuid;

use crate::clusters::records::LogicalClusterRecord;
use crate::keys;
use crate::keys::Collection;
use crate::objects::stored;

/// Placeholders in the gaps. No bootstrap object contains them for another reason.
pub(super) const UID: &str = "00000000-0000-0000-0000-000000000000";
pub(super) const TIME: &str = "0000-00-00T00:00:00Z";
/// The length of an id in a key.
const ID_BYTES: usize = 17;

/// A bootstrap object and its collection.
#[derive(Debug)]
pub struct BootstrapObject {
    pub collection: Collection<'static>,
    pub value: Value,
}

/// The bootstrap objects of all logical clusters.
#[derive(Debug, Default)]
pub struct Template(BTreeMap<Box<[u8]>, Arc<TemplateCollection>>);

/// The objects of one collection, in key order.
#[derive(Debug)]
pub(super) struct TemplateCollection {
    prefix: Box<[u8]>,
    pub(super) objects: Vec<Arc<TemplateObject>>,
}

#[derive(Debug)]
pub(super) struct TemplateObject {
    /// The part of the key after the logical cluster's id: `namespace/name`.
    place: Box<[u8]>,
    value: Bytes,
    uids: Vec<usize>,
    times: Vec<usize>,
}

/// The part of a collection that a range covers.
#[derive(Clone, Debug)]
pub(super) struct TemplateRange {
    pub(super) collection: Arc<TemplateCollection>,
    /// The records of all logical clusters whose keys can be in the range.
    pub(super) records: Range,
    /// The logical cluster that contains the whole range, if there is only one.
    pub(super) only: Option<Id>,
}

impl Template {
    pub fn new(objects: impl IntoIterator<Item = BootstrapObject>) -> Template {
        let mut collections: BTreeMap<Box<[u8]>, Vec<Arc<TemplateObject>>> = BTreeMap::new();
        for object in objects {
            let prefix = object.collection.prefix().into_bytes().into();
            collections.entry(prefix).or_default().push(Arc::new(TemplateObject::new(object)));
        }
        let made = collections.into_iter().map(|(prefix, mut objects)| {
            objects.sort_by(|one, next| one.place.cmp(&next.place));
            (prefix.clone(), Arc::new(TemplateCollection { prefix, objects }))
        });
        Template(made.collect())
    }

    /// Returns the logical cluster and the template object of a key. None if no template object has this key.
    pub(super) fn find(&self, key: &Key) -> Option<(Id, &Arc<TemplateObject>)> {
        let key = key.as_bytes();
        let slash = |from: usize| Some(from + key[from..].iter().position(|byte| *byte == b'/')? + 1);
        let (prefix, rest) = key.split_at(slash(slash(0)?)?);
        let collection = self.0.get(prefix)?;
        let (id, place) = rest.split_at_checked(ID_BYTES)?;
        let place = place.strip_prefix(b"/")?;
        let index = collection.objects.binary_search_by(|object| (*object.place).cmp(place)).ok()?;
        Some((std::str::from_utf8(id).ok()?.parse().ok()?, &collection.objects[index]))
    }

    /// Returns the parts of collections that the range can contain, in key order. Empty if the range contains no key of
    /// a template object.
    pub(super) fn within(&self, range: &Range) -> Vec<TemplateRange> {
        self.0.values().filter_map(|collection| collection.within(range)).collect()
    }

    /// Returns the keys of all template objects in one logical cluster.
    pub(super) fn keys(&self, cluster: Id) -> impl Iterator<Item = Key> {
        self.0.values().flat_map(move |collection| {
            collection.objects.iter().map(move |object| collection.key(object, cluster))
        })
    }
}

impl TemplateCollection {
    pub(super) fn key(&self, object: &TemplateObject, cluster: Id) -> Key {
        Key::from([&*self.prefix, cluster.to_string().as_bytes(), b"/", &*object.place].concat())
    }

    /// Returns the range of this collection in one logical cluster.
    pub(super) fn range(&self, cluster: Id) -> Range {
        Range::prefix([&*self.prefix, cluster.to_string().as_bytes(), b"/"].concat())
    }

    /// Returns the part of this collection that a range covers. The id follows the prefix in a key, so the bytes after
    /// the prefix in a bound of the range, cut to the length of an id, are a bound on ids.
    fn within(self: &Arc<Self>, range: &Range) -> Option<TemplateRange> {
        let cut = |rest: &'_ [u8]| rest.len().min(ID_BYTES);
        let start = range.start().as_bytes();
        let from = match start.strip_prefix(&*self.prefix) {
            Some(rest) => &rest[..cut(rest)],
            None if start < &*self.prefix => b"",
            None => return None,
        };
        let to = match range.end().map(Key::as_bytes) {
            None => None,
            Some(end) => match end.strip_prefix(&*self.prefix) {
                Some(rest) => Some(&rest[..cut(rest)]),
                None if end > &*self.prefix => None,
                None => return None,
            },
        };
        let mut only = None;
        if from.len() == ID_BYTES && to == Some(from) {
            // One logical cluster, or one of its namespaces, which may have no template objects.
            let cluster = std::str::from_utf8(from).ok()?.parse().ok()?;
            let covered = |object: &Arc<TemplateObject>| range.contains(self.key(object, cluster).as_bytes());
            self.objects.iter().any(covered).then_some(())?;
            only = Some(cluster);
        }
        Some(TemplateRange {
            collection: self.clone(),
            records: keys::cluster_records_between(from, to),
            only,
        })
    }
}

impl TemplateObject {
    fn new(BootstrapObject { collection: _, mut value }: BootstrapObject) -> TemplateObject {
        value["metadata"]["uid"] = UID.into();
        value["metadata"]["creationTimestamp"] = TIME.into();
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let namespace = value["metadata"]["namespace"].as_str();
        let place = Collection::place(namespace, name).into_bytes().into();
        let value = stored::encode(&value);
        let gaps = |of: &str| {
            let found = value.windows(of.len()).enumerate().filter(|(_, bytes)| *bytes == of.as_bytes());
            found.map(|(at, _)| at).collect()
        };
        TemplateObject { place, uids: gaps(UID), times: gaps(TIME), value: value.clone() }
    }

    /// Returns the template object as an entry of a logical cluster whose record has this revision. It is rendered when
    /// it is read.
    pub(super) fn entry(
        self: &Arc<Self>,
        key: Key,
        record: &LogicalClusterRecord,
        revision: Revision,
    ) -> Entry {
        let (object, at, seed, time) = (self.clone(), key.clone(), record.seed, record.time.clone());
        Entry::made(key, revision, move || object.render(&at, &seed, &time))
    }

    /// Renders the template object. The result is always the same.
    fn render(&self, key: &Key, seed: &Uuid, time: &str) -> Bytes {
        let uid = Uuid::new_v5(seed, key.as_bytes()).to_string();
        let mut value = self.value.to_vec();
        let mut write = |gaps: &[usize], text: &str| {
            for at in gaps {
                value[*at..*at + text.len()].copy_from_slice(text.as_bytes());
            }
        };
        write(&self.uids, &uid);
        // A time of another length would not fit the gaps; the objects then have no creation time.
        if time.len() == TIME.len() {
            write(&self.times, time);
        }
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MAPS: Collection<'static> = Collection { group: "", plural: "configmaps" };
    const NODES: Collection<'static> = Collection { group: "", plural: "nodes" };

    fn template() -> Template {
        let map = |namespace: &str| json!({ "metadata": { "name": "m", "namespace": namespace } });
        let node = json!({ "metadata": { "name": "n" }, "since": TIME });
        Template::new([
            BootstrapObject { collection: MAPS, value: map("b") },
            BootstrapObject { collection: MAPS, value: map("a") },
            BootstrapObject { collection: NODES, value: node },
        ])
    }

    #[test]
    fn a_template_object_is_found_by_its_key_in_any_logical_cluster() {
        let template = template();
        let check = |key: Key, expected: Option<(u64, &str)>| {
            let found = template
                .find(&key)
                .map(|(id, object)| (id, String::from_utf8_lossy(&object.place).into_owned()));
            assert_eq!(found, expected.map(|(id, place)| (Id::new(id), place.to_owned())), "{key:?}");
        };
        check(MAPS.key(Id::new(3), Some("a"), "m"), Some((3, "a/m")));
        check(NODES.key(Id::ROOT, None, "n"), Some((0, "-/n")));
        check(MAPS.key(Id::new(3), Some("c"), "m"), None);
        check(MAPS.key(Id::new(3), Some("a"), "mm"), None);
        check(Collection { group: "apps", plural: "configmaps" }.key(Id::ROOT, Some("a"), "m"), None);
        for odd in
            ["", "/", "core", "core/nodes", "core/nodes/", "core/nodes/~b/-/n", "core/nodes/x/-/n", "//"]
        {
            check(Key::from(odd), None);
        }
    }

    #[test]
    fn only_ranges_that_can_contain_a_template_object_are_merged() {
        let (template, id) = (template(), Id::new(3));
        let records =
            |range: Range| template.within(&range).into_iter().map(|s| s.records).collect::<Vec<_>>();
        let only = keys::cluster_records_between(id.to_string().as_bytes(), Some(id.to_string().as_bytes()));
        for one in [MAPS.range(id, None), MAPS.range(id, Some("a")), Range::key(MAPS.key(id, Some("a"), "m"))]
        {
            assert_eq!(records(one.clone()), std::slice::from_ref(&only), "{one:?}");
        }
        assert_eq!(records(MAPS.everywhere()), [keys::cluster_records()]);
        assert_eq!(records(Range::all()), [keys::cluster_records(), keys::cluster_records()]);
        for none in [
            MAPS.range(id, Some("shop")),
            Range::key(MAPS.key(id, Some("a"), "x")),
            Collection { group: "", plural: "pods" }.everywhere(),
            Collection { group: "", plural: "configmap" }.range(id, None),
            keys::cluster_records(),
        ] {
            assert_eq!(records(none.clone()), [], "{none:?}");
        }
        let later = Range::between(MAPS.key(id, Some("z"), ""), MAPS.everywhere().end().unwrap().clone());
        let expected = keys::cluster_records_between(id.to_string().as_bytes(), None);
        assert_eq!(records(later), [expected]);
    }

    #[test]
    fn a_template_object_is_stable_in_a_logical_cluster_and_differs_between_two() {
        let template = template();
        let key = NODES.key(Id::new(3), None, "n");
        let (_, object) = template.find(&key).unwrap();
        let mut record = LogicalClusterRecord::root();
        record.time = "2026-11-16T06:24:49Z".to_owned();
        let tree = |record: &LogicalClusterRecord| {
            stored::tree(&object.entry(key.clone(), record, Revision(9))).unwrap()
        };
        let seen = tree(&record);
        assert_eq!(seen, tree(&record));
        assert_eq!(seen["since"], "2026-11-16T06:24:49Z");
        let uid = seen["metadata"]["uid"].clone();
        let expected = json!({
            "name": "n", "uid": uid, "creationTimestamp": "2026-11-16T06:24:49Z", "resourceVersion": "9"
        });
        assert_eq!(seen["metadata"], expected);
        assert!(Uuid::parse_str(uid.as_str().unwrap()).unwrap().get_version_num() == 5);
        assert_ne!(tree(&LogicalClusterRecord::root())["metadata"]["uid"], uid);
    }
}
