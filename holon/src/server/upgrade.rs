//! Renames what the objects of an older version call otherwise.
//!
//! The rest of Holon knows one name for each annotation, field and reason. A store that an older version wrote is rewritten
//! once, before anything reads it; an entry of the store says that this was done. Servers that share an etcd are stopped
//! before the first new one starts, because an old server would write the old names again.

use anyhow::{Context, Result};
use api::names;
use apiserver::keys::{self, ObjectKey};
use apiserver::objects::stored;
use bytes::Bytes;
use memchr::memmem;
use serde_json::{Map, Value};
use storage::{Change, CommitError, Entry, Expect, Page, Range, Store};

/// The version of the names in a store. Increase it with every renamed name.
const VERSION: &str = "1";
/// How many objects are read at a time.
const PAGE: usize = 1000;

/// Annotations of objects in any logical cluster.
const ANNOTATIONS: &[(&str, &str)] = &[
    ("holon.dev/wish", names::PLACEMENT_HASH),
    ("holon.dev/spread", names::PROPAGATED_HASH),
    ("holon.dev/shown", names::PROJECTED_HASH),
    ("holon.dev/stands-for", names::SOURCE_GENERATION),
    ("holon.dev/below-uid", names::DOWNSTREAM_UID),
    ("holon.dev/locator-below", names::DOWNSTREAM_NAME),
    ("holon.dev/scaled-below", names::SCALED_DOWNSTREAM),
    ("holon.dev/seat-of", names::SYNCER_OF),
    ("holon.dev/dismissed", names::UNINSTALL),
];
/// Fields in the status of Holon's own kinds.
const FIELDS: &[(&str, &str)] =
    &[("disagreements", "differences"), ("opinions", "values"), ("mistakes", "errors")];
/// Values of `verdict`, `type` and `reason` in the status of Holon's own kinds.
const VALUES: &[(&str, &str)] = &[
    ("Admitted", "Eligible"),
    ("Summarized", "StatusAggregated"),
    ("NeverHeard", "NeverReported"),
    ("Silent", "HeartbeatExpired"),
];

/// Upgrades a store that an older version wrote. Does nothing if the store has the present names.
pub(super) async fn upgrade(store: &dyn Store) -> Result<()> {
    let done = store.get(&keys::data_version()).await.context("cannot read the version of the store")?.value;
    if done.as_ref().is_some_and(|entry| entry.value() == VERSION.as_bytes()) {
        return Ok(());
    }
    let (mut page, mut count) = (Page { limit: Some(PAGE), ..Page::default() }, 0);
    loop {
        let listing = store.list(Range::all(), page.clone()).await.context("cannot read the store")?.value;
        for entry in &listing.entries {
            if let Some(renamed) = renamed(entry) {
                count += usize::from(put(store, entry, renamed).await?);
            }
        }
        if !listing.more {
            break;
        }
        page.after = listing.entries.last().map(|entry| entry.key().clone());
    }
    if count > 0 {
        tracing::info!(objects = count, "renamed annotations and fields that an older version wrote");
    }
    let expect = done.map_or(Expect::Absent, |entry| Expect::Revision(entry.revision()));
    match store.commit(keys::data_version(), expect, Change::Put(VERSION.into())).await {
        // Another server of the same etcd was faster.
        Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error).context("cannot record the version of the store"),
    }
}

/// Replaces an object. Returns false if it changed meanwhile: then a server of this version wrote it. An object that is too
/// large with the longer names keeps the old ones: its tenant must not be able to keep the server from starting.
async fn put(store: &dyn Store, entry: &Entry, value: Bytes) -> Result<bool> {
    let written = store.commit(entry.key().clone(), Expect::Revision(entry.revision()), Change::Put(value));
    match written.await {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict { .. }) => Ok(false),
        Err(error @ CommitError::Refused { .. }) => {
            tracing::warn!(%error, key = ?entry.key(), "cannot rename the annotations of an object");
            Ok(false)
        }
        Err(error) => Err(error).with_context(|| format!("cannot upgrade {:?}", entry.key())),
    }
}

/// Returns an object with the present names, if it has old ones. An entry that is not an object stays as it is.
fn renamed(entry: &Entry) -> Option<Bytes> {
    let key = ObjectKey::of(entry.key())?;
    memmem::find(entry.value(), names::GROUP.as_bytes())?;
    let before = stored::tree(entry).ok()?;
    let mut object = before.clone();
    let metadata = object.get_mut("metadata")?;
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        rename_keys(annotations, ANNOTATIONS);
    }
    for manager in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        let owned = manager.pointer_mut("/fieldsV1/f:metadata/f:annotations").and_then(Value::as_object_mut);
        let of_fields = ANNOTATIONS.iter().map(|(old, new)| (format!("f:{old}"), format!("f:{new}")));
        let of_fields: Vec<(String, String)> = of_fields.collect();
        let of_fields: Vec<(&str, &str)> = of_fields.iter().map(|(old, new)| (&**old, &**new)).collect();
        owned.into_iter().for_each(|owned| rename_keys(owned, &of_fields));
    }
    if let Some(status) = object.get_mut("status").filter(|_| key.collection.group == names::GROUP) {
        rename_in_status(status);
    }
    (object != before).then(|| stored::encode_like(&object, entry))
}

/// Renames keys. A key that has the new name already keeps its value.
fn rename_keys(table: &mut Map<String, Value>, renamed: &[(&str, &str)]) {
    for (old, new) in renamed {
        if let Some(value) = table.remove(*old) {
            table.entry(*new).or_insert(value);
        }
    }
}

fn rename_in_status(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(rename_in_status),
        Value::Object(fields) => {
            rename_keys(fields, FIELDS);
            for (name, value) in fields {
                let new = VALUES.iter().find(|(old, _)| *value == **old).map(|(_, new)| *new);
                match new.filter(|_| matches!(&**name, "verdict" | "type" | "reason")) {
                    Some(new) => *value = new.into(),
                    None => rename_in_status(value),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use storage::memory::Memory;

    async fn read(store: &Memory, key: &str) -> Value {
        stored::tree(&store.get(&key.into()).await.unwrap().value.unwrap()).unwrap()
    }

    /// The names of annotations and verdicts became plainer. A Distribution with an old verdict could not be read, and
    /// its workload was neither updated nor deleted; without the annotation with the hash of its placement a workload
    /// would have been placed anew.
    #[tokio::test]
    async fn a_store_of_an_older_version_gets_the_present_names() {
        let store = Memory::default();
        let put = async |key: &str, value: Value| {
            store.commit(key.into(), Expect::Absent, Change::Put(stored::encode(&value))).await.unwrap();
        };
        let (record, pod, map) = (
            "holon.dev/distributions/~bbbbbbbbbbbbbbbb/shop/deployment-web",
            "core/pods/~bbbbbbbbbbbbbbbb/shop/web-1",
            "core/configmaps/~bbbbbbbbbbbbbbbb/shop/page",
        );
        let verdict = |word: &str| json!({ "cluster": "west", "verdict": word, "rule": "Capacity" });
        put(
            record,
            json!({ "metadata": { "annotations": { "holon.dev/wish": "h" } }, "spec": { "targets": [] },
            "status": { "verdicts": [verdict("Admitted"), verdict("Chosen")], "message": "Silent",
                        "conditions": [{ "type": "Summarized", "reason": "Silent" }],
                        "disagreements": [{ "path": "/a", "opinions": [] }] } }),
        )
        .await;
        put(
            pod,
            json!({ "metadata": { "annotations": { "holon.dev/below-uid": "u", "mine": "holon.dev/wish" },
            "managedFields": [{ "fieldsV1": { "f:metadata": { "f:annotations": { "f:holon.dev/below-uid": {} } } } }] },
            "status": { "reason": "Silent" } }),
        )
        .await;
        let text = json!({ "metadata": { "name": "page" }, "data": { "text": "holon.dev/wish" } });
        put(map, text.clone()).await;
        let unchanged = store.get(&map.into()).await.unwrap().value.unwrap().revision();
        let keys =
            store.commit("~keys/~bbbbbbbbbbbbbbbb".into(), Expect::Absent, Change::Put("holon.dev".into()));
        keys.await.unwrap();

        upgrade(&store).await.unwrap();
        let now = read(&store, record).await;
        assert_eq!(now["metadata"]["annotations"], json!({ names::PLACEMENT_HASH: "h" }));
        assert_eq!(now["status"]["verdicts"], json!([verdict("Eligible"), verdict("Chosen")]));
        assert_eq!(
            now["status"]["conditions"][0],
            json!({ "type": "StatusAggregated", "reason": "HeartbeatExpired" })
        );
        assert_eq!(now["status"]["differences"], json!([{ "path": "/a", "values": [] }]));
        assert_eq!(now["status"]["message"], "Silent");
        let now = read(&store, pod).await;
        assert_eq!(
            now["metadata"]["annotations"],
            json!({ names::DOWNSTREAM_UID: "u", "mine": "holon.dev/wish" })
        );
        let owned = &now["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"];
        assert_eq!(*owned, json!({ format!("f:{}", names::DOWNSTREAM_UID): {} }));
        assert_eq!(now["status"]["reason"], "Silent", "not a kind of Holon");
        let entry = store.get(&map.into()).await.unwrap().value.unwrap();
        assert_eq!(entry.revision(), unchanged, "an object without old names is not written");

        // Once is enough: afterwards a start reads one entry.
        let revision = store.get(&record.into()).await.unwrap().revision;
        upgrade(&store).await.unwrap();
        assert_eq!(store.get(&record.into()).await.unwrap().revision, revision);
    }

    /// The present names are longer. A tenant could have filled an object up to the limit.
    #[tokio::test]
    async fn an_object_at_the_size_limit_does_not_stop_the_upgrade() {
        let store = Memory::default();
        let object = |padding: usize| json!({ "metadata": { "annotations": { "holon.dev/shown": "x".repeat(padding) } } });
        let full = object(storage::VALUE_BYTES_MAX - stored::encode(&object(0)).len());
        let key = "core/configmaps/~bbbbbbbbbbbbbbbb/shop/full";
        store.commit(key.into(), Expect::Absent, Change::Put(stored::encode(&full))).await.unwrap();
        upgrade(&store).await.unwrap();
        assert!(read(&store, key).await["metadata"]["annotations"]["holon.dev/shown"].is_string());
    }
}
