//! An object as it is kept: the JSON we answer with, less the one thing the store knows better.
//!
//! ```text
//!   at: u32 | {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",…},…}
//!                                                              ▲ at
//! ```
//!
//! The resourceVersion is the store's revision, which is only known once the object is stored. So it is left
//! out, and put in at `at` whenever the object is written to somebody: two copies instead of a parse. A get,
//! a list and a watch never make a tree of an object.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use storage::{Entry, Revision};

/// The length of `at`.
const HEADER: usize = 4;
/// `"resourceVersion":"18446744073709551615",`
const VERSION_BYTES_MAX: usize = 42;

/// Turns an object into what is stored. Its metadata must not be empty; every stored object has a name.
///
/// Fields are written one by one, to know where the contents of `metadata` begin. Searching for them would not
/// do: a value may contain `"metadata":{` as well.
pub fn encode(object: &Value) -> Bytes {
    let mut bytes = vec![0; HEADER];
    let mut at = 0;
    bytes.push(b'{');
    for (name, value) in object.as_object().into_iter().flatten() {
        if bytes.len() > HEADER + 1 {
            bytes.push(b',');
        }
        put(&mut bytes, name);
        bytes.push(b':');
        match value.as_object().filter(|_| name == "metadata") {
            Some(metadata) => {
                at = bytes.len() + 1 - HEADER;
                let kept = metadata.iter().filter(|(name, _)| *name != "resourceVersion");
                put(&mut bytes, &kept.collect::<std::collections::BTreeMap<_, _>>());
            }
            None => put(&mut bytes, value),
        }
    }
    bytes.push(b'}');
    bytes[..HEADER].copy_from_slice(&(at as u32).to_le_bytes());
    bytes.into()
}

fn put(out: &mut Vec<u8>, value: &impl serde::Serialize) {
    // Writing to memory cannot fail, and text and JSON values always have a JSON form.
    serde_json::to_writer(out, value).expect("JSON values are JSON");
}

/// The JSON of an object, without its version; for those who look at a part of it.
pub(crate) fn json(entry: &Entry) -> Option<&[u8]> {
    entry.value().get(HEADER..)
}

/// The parts of an object as clients see it: before the version, the version, after it.
fn parts(stored: &[u8]) -> Option<(&[u8], &[u8])> {
    let (at, json) = stored.split_first_chunk::<HEADER>()?;
    json.split_at_checked(u32::from_le_bytes(*at) as usize)
}

/// Writes the object as clients see it, as of `revision`; one that was never stored (a dry run) has none.
pub fn write(stored: &[u8], revision: Revision, out: &mut BytesMut) {
    let Some((before, after)) = parts(stored) else { return };
    out.reserve(before.len() + VERSION_BYTES_MAX + after.len());
    out.put_slice(before);
    if revision != Revision::ZERO {
        out.put_slice(format!("\"resourceVersion\":\"{revision}\",").as_bytes());
    }
    out.put_slice(after);
}

/// The object as clients see it.
pub fn read(entry: &Entry) -> Bytes {
    let mut out = BytesMut::new();
    write(entry.value(), entry.revision(), &mut out);
    out.freeze()
}

/// The object as a tree, for the few who need one.
pub fn tree(entry: &Entry) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(&read(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use storage::Key;

    #[test]
    fn an_object_comes_back_with_its_version_wherever_metadata_stands() {
        let objects = [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}),
            json!({"metadata": {"name": "a"}}),
            json!({"a\"metadata\":{": "\"metadata\":{", "metadata": {"name": "a", "labels": {"metadata": "x"}}, "z": [1]}),
            json!({"data": {"metadata": {"x": 1}}, "metadata": {"name": "ä\u{1}"}, "spec": null}),
        ];
        for object in objects {
            let stored = encode(&object);
            let entry = Entry::new(Key::from("k"), Revision(u64::MAX), stored);
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = json!(u64::MAX.to_string());
            assert_eq!(tree(&entry).unwrap(), expected);
        }
    }

    #[test]
    fn a_version_the_client_sent_is_not_stored() {
        let stored = encode(&json!({"metadata": {"name": "a", "resourceVersion": "7"}}));
        assert!(!stored.windows(15).any(|window| window == b"resourceVersion"));
    }

    #[test]
    fn damaged_bytes_are_empty_rather_than_a_panic() {
        for bytes in [&b""[..], b"abc", &[255, 255, 255, 255, b'{']] {
            let entry = Entry::new(Key::from("k"), Revision(1), Bytes::copy_from_slice(bytes));
            assert!(read(&entry).is_empty() && tree(&entry).is_err());
        }
    }
}
