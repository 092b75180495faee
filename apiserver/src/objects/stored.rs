//! The stored form of an object: the JSON of the response, without the fields that the store knows.
//!
//! ```text
//!   at: u32 | notes: u32 | {"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"x":"y"},"name":"a",…},…}
//!                                                                           ▲ at           ▲ notes
//! ```
//!
//! The resourceVersion is the revision, which is known only after the commit; the logical cluster is part of the key.
//! So both are left out of the stored JSON and inserted into each response: the version at `at`, and, for readers of
//! all logical clusters, an annotation with the logical cluster at `notes` (zero: there are no annotations). That is a
//! few copies instead of parsing. Get, list and watch never build a tree of an object.
//!
//! Objects of custom kinds have a stamp between the header and the JSON, marked by the highest bit of `at`: the hash of
//! the schema that they were pruned and defaulted with. While the schema has that hash, doing so again would change
//! nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

use api::cluster::Id;
use api::names::LOGICAL_CLUSTER;
use bytes::{BufMut, Bytes, BytesMut};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec;
use serde_json::{Map, Value};
use storage::{Entry, Revision};

use crate::objects::field_scan;

/// The length of `at` and `notes`.
const HEADER: usize = 8;
/// Set in `at` if a stamp follows.
const STAMPED: u32 = 1 << 31;
/// The length of a stamp.
const STAMP: usize = 16;
/// `"resourceVersion":"18446744073709551615",`, and the annotation with its surroundings.
pub(crate) const ADDED_BYTES_MAX: usize = 42 + 80;

/// Encodes an object for the store. Its metadata must not be empty; every stored object has a name.
///
/// Fields are written one by one, because the position of the contents of `metadata` is needed. Searching for it is not
/// possible: a value may contain `"metadata":{` too. `apiVersion` and `kind` come first, so that a list can omit them.
pub fn encode(object: &Value) -> Bytes {
    encode_with(object, None)
}

/// Encodes an object that replaces this entry without a change that its schema could prune or default.
pub fn encode_like(object: &Value, entry: &Entry) -> Bytes {
    encode_with(object, stamp(entry.value()))
}

/// Encodes an object with a stamp.
pub(crate) fn encode_with(object: &Value, stamp: Option<u128>) -> Bytes {
    let mut bytes = vec![0; HEADER];
    bytes.extend(stamp.iter().flat_map(|stamp| stamp.to_le_bytes()));
    let begun = bytes.len();
    let (mut at, mut notes) = (0, 0);
    let all = || object.as_object().into_iter().flatten();
    let kind = |(name, _): &(&String, &Value)| matches!(name.as_str(), "apiVersion" | "kind");
    let ordered = all().filter(kind).chain(all().filter(|field| !kind(field)));
    fields(&mut bytes, ordered, |bytes, name, value| match value.as_object() {
        Some(inner) if name == "metadata" => (at, notes) = write_metadata(bytes, inner),
        _ => put(bytes, value),
    });
    // Positions are relative to the JSON; zero means none.
    let place = |place: usize| place.saturating_sub(begun) as u32;
    let flag = if stamp.is_some() { STAMPED } else { 0 };
    bytes[..4].copy_from_slice(&(place(at) | flag).to_le_bytes());
    bytes[4..HEADER].copy_from_slice(&place(notes).to_le_bytes());
    bytes.into()
}

/// Writes the metadata. Returns the positions of its contents and of the contents of the annotations.
fn write_metadata(bytes: &mut Vec<u8>, metadata: &Map<String, Value>) -> (usize, usize) {
    let (at, mut notes) = (bytes.len() + 1, 0);
    // Drops this annotation, so that a client cannot set it: readers trust it to come from the server.
    let annotations = metadata.get("annotations").and_then(Value::as_object).into_iter().flatten();
    let annotations: BTreeMap<_, _> = annotations.filter(|(key, _)| *key != LOGICAL_CLUSTER).collect();
    let stored_fields = metadata.iter().filter(|(name, _)| match name.as_str() {
        "resourceVersion" => false,
        "annotations" => !annotations.is_empty(),
        _ => true,
    });
    fields(bytes, stored_fields, |bytes, name, value| match name {
        "annotations" => {
            notes = bytes.len() + 1;
            put(bytes, &annotations);
        }
        _ => put(bytes, value),
    });
    (at, notes)
}

/// Writes an object, and its values with `write`.
fn fields<'a>(
    bytes: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
    mut write: impl FnMut(&mut Vec<u8>, &str, &Value),
) {
    bytes.push(b'{');
    for (place, (name, value)) in fields.enumerate() {
        if place > 0 {
            bytes.push(b',');
        }
        put(bytes, name);
        bytes.push(b':');
        write(bytes, name, value);
    }
    bytes.push(b'}');
}

fn put(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing to memory cannot fail, and text and JSON values always have a JSON form.
    serde_json::to_writer(out, value).expect("JSON values are JSON");
}

/// Returns the JSON of an object without its version, for field scans.
pub(crate) fn json(entry: &Entry) -> Option<&[u8]> {
    Some(split(entry.value())?.3)
}

/// Returns the stamp of an object.
pub(crate) fn stamp(stored: &[u8]) -> Option<u128> {
    split(stored)?.2
}

/// Reports whether the JSON of an object begins with `heading`.
pub(crate) fn begins_with(stored: &[u8], heading: &str) -> bool {
    split(stored).is_some_and(|(.., json)| json.starts_with(heading.as_bytes()))
}

/// Returns `at`, `notes`, the stamp if there is one, and the JSON.
fn split(stored: &[u8]) -> Option<(usize, usize, Option<u128>, &[u8])> {
    let (at, rest) = stored.split_first_chunk::<4>()?;
    let (notes, rest) = rest.split_first_chunk::<4>()?;
    let (at, notes) = (u32::from_le_bytes(*at), u32::from_le_bytes(*notes));
    let (stamp, json) = match at & STAMPED {
        0 => (None, rest),
        _ => rest
            .split_first_chunk::<STAMP>()
            .map(|(stamp, json)| (Some(u128::from_le_bytes(*stamp)), json))?,
    };
    Some(((at & !STAMPED) as usize, notes as usize, stamp, json))
}

/// Returns the JSON of an object without its version, and the position at which the version belongs. Copies nothing.
pub(crate) fn without_version(stored: &Bytes) -> Option<(Bytes, usize)> {
    let (at, _, _, json) = split(stored)?;
    Some((stored.slice_ref(json), at))
}

/// A stored value, split where the version and the annotation are inserted.
struct StoredObject<'a> {
    before: &'a [u8],
    /// From the contents of the metadata to those of the annotations. None if there are none.
    between: Option<&'a [u8]>,
    after: &'a [u8],
}

impl<'a> StoredObject<'a> {
    fn of(stored: &'a [u8]) -> Option<StoredObject<'a>> {
        let (at, notes, _, json) = split(stored)?;
        let (before, after) = json.split_at_checked(at)?;
        match notes {
            0 => Some(StoredObject { before, between: None, after }),
            _ => {
                let (between, after) = after.split_at_checked(notes.checked_sub(at)?)?;
                Some(StoredObject { before, between: Some(between), after })
            }
        }
    }

    fn write(self, revision: Revision, home: Option<Id>, out: &mut BytesMut) {
        let StoredObject { before, between, after } = self;
        out.reserve(before.len() + between.map_or(0, <[u8]>::len) + after.len() + ADDED_BYTES_MAX);
        out.put_slice(before);
        if revision != Revision::ZERO {
            // Writing to memory cannot fail.
            let _ = write!(out, "\"resourceVersion\":\"{revision}\",");
        }
        match (between, home) {
            (Some(between), Some(home)) => {
                out.put_slice(between);
                out.put_slice(format!("\"{LOGICAL_CLUSTER}\":\"{home}\",").as_bytes());
            }
            (Some(between), None) => out.put_slice(between),
            (None, Some(home)) => {
                out.put_slice(format!("\"annotations\":{{\"{LOGICAL_CLUSTER}\":\"{home}\"}},").as_bytes())
            }
            (None, None) => {}
        }
        out.put_slice(after);
    }
}

/// Returns the first bytes of the JSON of every object of a kind.
pub(crate) fn heading(api_version: &str, kind: &str) -> String {
    format!("{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",")
}

/// Writes an object as an item of a list that names the kind: without its own [`heading`].
pub(crate) fn write_item(
    stored: &[u8],
    revision: Revision,
    home: Option<Id>,
    heading: &str,
    out: &mut BytesMut,
) {
    let Some(mut object) = StoredObject::of(stored) else { return };
    if let Some(rest) = object.before.strip_prefix(heading.as_bytes()) {
        out.put_u8(b'{');
        object.before = rest;
    }
    object.write(revision, home, out);
}

/// Writes an object as clients see it, with the version `revision` (zero: none, as in a dry run of a create). `home` is
/// given if the client reads all logical clusters.
pub fn write(stored: &[u8], revision: Revision, home: Option<Id>, out: &mut BytesMut) {
    if let Some(object) = StoredObject::of(stored) {
        object.write(revision, home, out);
    }
}

/// Returns the object as clients see it.
pub fn read(entry: &Entry) -> Bytes {
    let mut out = BytesMut::new();
    write(entry.value(), entry.revision(), None, &mut out);
    out.freeze()
}

/// Parses the object into a tree.
pub fn tree(entry: &Entry) -> Result<Value, serde_json::Error> {
    codec::parse_json(&read(entry))
}

/// Reports whether two stored objects are the same to clients, who do not see stamps.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let json = |stored| split(stored).map(|(at, notes, _, json)| (at, notes, json));
    json(one) == json(other)
}

/// Returns the JSON from the metadata on, for a [field scan](crate::objects::field_scan).
pub(crate) fn metadata_of(stored: &[u8]) -> Option<&[u8]> {
    let (at, _, _, json) = split(stored)?;
    // The opening brace of the metadata precedes its contents.
    json.get(at.checked_sub(1)?..)
}

/// Reports whether an object is terminating. One that cannot be read counts as terminating.
pub(crate) fn is_being_deleted(entry: &Entry) -> bool {
    let deletion_timestamp =
        metadata_of(entry.value()).and_then(|text| field_scan::field(text, "deletionTimestamp"));
    deletion_timestamp.is_none_or(|deletion_timestamp| deletion_timestamp.is_some_and(|text| text != b"null"))
}

/// Returns the uid of an object. Empty if it has none, None if the object cannot be read.
pub(crate) fn uid(entry: &Entry) -> Option<&str> {
    let uid = field_scan::field(metadata_of(entry.value())?, "uid")?;
    Some(uid.and_then(field_scan::text).unwrap_or_default())
}

/// Returns the raw labels of an object. None if they have escapes or cannot be read.
pub(crate) fn labels(stored: &[u8]) -> Option<Labels<'_>> {
    let labels =
        field_scan::field(metadata_of(stored)?, "labels")?.filter(|text| *text != b"null").unwrap_or(b"{}");
    (!labels.contains(&b'\\')).then_some(Labels(labels))
}

/// Labels without escapes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Labels<'a>(&'a [u8]);

impl<'a> Labels<'a> {
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        field_scan::text(field_scan::field(self.0, name)??)
    }
}

/// Reports whether the stored form of an object is the one that clients of a resource see.
pub(crate) fn is_as_stored(resource: &ResourceInfo, entry: &Entry) -> bool {
    let Some(custom) = &resource.custom else { return resource.stored_as.is_none() };
    let stamped = stamp(entry.value()) == Some(custom.schema_hash);
    stamped && begins_with(entry.value(), &heading(&resource.api_version(), &resource.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use storage::Key;

    fn objects() -> [Value; 6] {
        [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}),
            json!({"metadata": {"name": "a"}}),
            json!({"a\"metadata\":{": "\"metadata\":{", "metadata": {"name": "a", "labels": {"metadata": "x"}}, "z": [1]}),
            json!({"data": {"metadata": {"x": 1}}, "metadata": {"name": "ä\u{1}"}, "spec": null}),
            json!({"metadata": {"name": "a", "annotations": {"b": "\"annotations\":{", "z": ""}, "labels": {"annotations": "x"}}}),
            json!({"annotations": {"x": "y"}, "metadata": {"aa": {"annotations": {}}, "annotations": {"x": "y"}, "name": "a"}}),
        ]
    }

    #[test]
    fn the_resource_version_is_inserted_wherever_metadata_is() {
        for object in objects() {
            let entry = Entry::new(Key::from("k"), Revision(u64::MAX), encode(&object));
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!(u64::MAX.to_string());
            assert_eq!(tree(&entry).unwrap(), expected);
        }
    }

    #[test]
    fn items_of_a_list_omit_the_kind_of_the_list() {
        let object = json!({"addressType": "x", "apiVersion": "v1", "data": {"kind": "y"}, "kind": "K", "metadata": {"name": "a"}});
        let item = |heading: &str| {
            let mut out = BytesMut::new();
            write_item(&encode(&object), Revision(7), None, heading, &mut out);
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        let mut expected = object.clone();
        expected["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(item(&heading("v1", "Other")), expected, "an object of another kind");
        expected.as_object_mut().unwrap().retain(|name, _| name != "apiVersion" && name != "kind");
        assert_eq!(item(&heading("v1", "K")), expected);
    }

    #[test]
    fn objects_read_across_logical_clusters_are_annotated_with_their_own() {
        for object in objects() {
            let mut out = BytesMut::new();
            write(&encode(&object), Revision(7), Some(Id::new(1)), &mut out);
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!("7");
            expected["metadata"]["annotations"][LOGICAL_CLUSTER] = json!("~bbbbbbbbbbbbbbbc");
            assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        }
    }

    /// A tenant that could write the annotation could present its objects as those of another logical cluster.
    #[test]
    fn the_resource_version_and_the_cluster_annotation_are_not_stored() {
        let annotations = json!({ LOGICAL_CLUSTER: "~bbbbbbbbbbbbbbbb" });
        let metadata = json!({"name": "a", "resourceVersion": "7", "annotations": annotations});
        assert_eq!(&encode(&json!({ "metadata": metadata }))[HEADER..], b"{\"metadata\":{\"name\":\"a\"}}");
    }

    #[test]
    fn labels_are_read_from_the_metadata_alone() {
        let check = |object: Value, label: &str, expected: Option<&str>| {
            let stored = encode(&object);
            assert_eq!(labels(&stored).unwrap().get(label), expected, "{label} of {object}");
        };
        let labelled = json!({"labels": {"no": "no"}, "metadata": {"name": "a", "labels": {"app": "web", "k8s.io/x": ""}}});
        for (label, expected) in [("app", Some("web")), ("k8s.io/x", Some("")), ("no", None), ("ap", None)] {
            check(labelled.clone(), label, expected);
        }
        check(json!({"metadata": {"name": "a"}}), "name", None);
        check(json!({"metadata": {"name": "a", "labels": null}}), "name", None);
        let escaped = encode(&json!({"metadata": {"labels": {"a": "\n"}}}));
        assert!(labels(&escaped).is_none(), "not without decoding");
    }

    /// `serde_json` parses an object with this key as the JSON in its value, or not at all.
    #[test]
    fn no_key_makes_an_object_unreadable() {
        for value in [json!(1), json!("{\"x\":1}")] {
            let data = json!({ "$serde_json::private::RawValue": value });
            let object = json!({ "data": data, "metadata": { "name": "a", "resourceVersion": "7" } });
            let entry = Entry::new(Key::from("k"), Revision(7), encode(&object));
            assert_eq!(tree(&entry).unwrap(), object);
        }
    }

    #[test]
    fn stamps_do_not_make_objects_different() {
        let object = json!({ "metadata": { "name": "a" } });
        let stamped = |stamp| encode_with(&object, stamp);
        assert!(is_same(&stamped(Some(1)), &stamped(Some(2))) && is_same(&stamped(None), &stamped(Some(1))));
        assert!(!is_same(&stamped(None), &encode(&json!({ "metadata": { "name": "b" } }))));
    }

    #[test]
    fn a_stamp_is_stored_and_never_sent_to_clients() {
        for object in objects() {
            let (plain, stamped) = (encode(&object), encode_with(&object, Some(7 << 100)));
            assert_eq!((stamp(&plain), stamp(&stamped)), (None, Some(7 << 100)));
            let rendered = |stored: &[u8], home| {
                let mut out = BytesMut::new();
                write(stored, Revision(7), home, &mut out);
                out
            };
            assert_eq!(rendered(&plain, None), rendered(&stamped, None));
            assert_eq!(rendered(&plain, Some(Id::new(1))), rendered(&stamped, Some(Id::new(1))));
            assert_eq!(labels(&plain), labels(&stamped));
        }
    }

    #[test]
    fn damaged_bytes_are_empty_rather_than_a_panic() {
        for bytes in [
            &b""[..],
            b"abc",
            &[255, 255, 255, 255, 0, 0, 0, 0, b'{'],
            &[255, 255, 255, 127, 0, 0, 0, 0, b'{'],
            &[1, 0, 0, 0, 9, 0, 0, 0, b'{'],
        ] {
            let entry = Entry::new(Key::from("k"), Revision(1), Bytes::copy_from_slice(bytes));
            assert!(read(&entry).is_empty() && tree(&entry).is_err() && labels(bytes).is_none());
        }
    }
}
