//! Access to objects of any kind.

use api::meta::metadata;
use api::names::{FIELD_MANAGER, MAILBOX, PLACED, SYNCER, TRUE};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

/// An object of any kind.
#[derive(Clone, Copy, Debug)]
pub struct AnyObject<'a>(pub &'a Value);

impl<'a> AnyObject<'a> {
    pub fn uid(self) -> &'a str {
        metadata::uid(self.0)
    }

    pub fn name(self) -> &'a str {
        metadata::name(self.0)
    }

    pub fn namespace(self) -> &'a str {
        metadata::namespace(self.0)
    }

    pub fn generation(self) -> i64 {
        metadata::generation(self.0)
    }

    pub fn annotation(self, name: &str) -> Option<&'a str> {
        metadata::annotation(self.0, name)
    }

    pub fn label(self, name: &str) -> Option<&'a str> {
        metadata::label(self.0, name)
    }

    /// Returns whether it has a deletion timestamp.
    pub fn is_deleting(self) -> bool {
        metadata::is_being_deleted(self.0)
    }

    pub fn is_placed(self) -> bool {
        self.label(PLACED) == Some(TRUE)
    }

    /// Returns the mailbox whose syncer applied this downstream object. The annotation alone is no proof: controllers
    /// copy labels and annotations, as from a Deployment to its ReplicaSets, and a user can write ours into a template.
    /// But nothing copies the managedFields entry of our apply.
    pub fn mailbox(self) -> Option<&'a str> {
        let is_ours = self.was_applied_by_us().unwrap_or_else(|| {
            let has_controller = self.owners().any(|owner| owner["controller"] == true);
            self.is_placed() || !has_controller
        });
        self.annotation(MAILBOX).filter(|_| is_ours)
    }

    /// Returns whether managedFields has an apply of our field manager. `None` if the server keeps no managedFields.
    fn was_applied_by_us(self) -> Option<bool> {
        let entries = self.0["metadata"]["managedFields"].as_array().filter(|entries| !entries.is_empty())?;
        let is_ours = |entry: &Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
        Some(entries.iter().any(is_ours))
    }

    /// Returns whether it has our finalizer.
    pub fn has_finalizer(self) -> bool {
        self.finalizers().any(|finalizer| finalizer == SYNCER)
    }

    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        metadata::finalizers(self.0)
    }

    pub fn owners(self) -> impl Iterator<Item = &'a Value> {
        self.0["metadata"]["ownerReferences"].as_array().into_iter().flatten()
    }
}

/// Returns a hash of a value that does not depend on the order of keys.
pub fn fingerprint(value: &Value) -> u64 {
    let mut hash = Xxh3::new();
    feed(&mut hash, value);
    hash.digest()
}

fn feed(hash: &mut Xxh3, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.keys().collect();
            names.sort_unstable();
            hash.update(b"{");
            for name in names {
                feed_text(hash, name);
                feed(hash, &fields[name]);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| feed(hash, item));
            hash.update(b"]");
        }
        Value::String(text) => feed_text(hash, text),
        // The texts of numbers, booleans and null all differ.
        other => hash.update(other.to_string().as_bytes()),
    }
}

/// Hashes the length first, so that two adjacent texts do not hash like two others with the same concatenation.
fn feed_text(hash: &mut Xxh3, text: &str) {
    hash.update(b"\"");
    hash.update(&text.len().to_le_bytes());
    hash.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The deployment controller copies annotations to ReplicaSets, and the syncer looked for their tombstones.
    #[test]
    fn an_object_with_a_controller_is_not_ours_because_of_copied_annotations() {
        let check = |labels: Value, owners: Value, expected: Option<&str>| {
            let metadata =
                json!({ "annotations": { MAILBOX: "~b" }, "labels": labels, "ownerReferences": owners });
            assert_eq!(AnyObject(&json!({ "metadata": metadata })).mailbox(), expected);
        };
        let (placed, made) = (json!({ PLACED: TRUE }), json!([{ "controller": true }]));
        check(placed.clone(), json!([]), Some("~b"));
        check(placed, made.clone(), Some("~b"));
        check(json!({}), json!([{ "controller": false }]), Some("~b"));
        check(json!({}), made, None);
    }

    /// EndpointSlices have the labels of their Service, and the claims of a StatefulSet have the labels of its claim
    /// template, in this case those of a placed object. Such a claim has no owner. The syncer held it as an object
    /// without a tombstone, and reported `Synced=False` for the whole physical cluster.
    #[test]
    fn copied_labels_do_not_make_an_object_ours_but_our_recorded_apply_does() {
        let check = |managers: &[(&str, &str)], expected: Option<&str>| {
            let entry =
                |(manager, operation): &(&str, &str)| json!({ "manager": manager, "operation": operation });
            let metadata = json!({
                "annotations": { MAILBOX: "~b" }, "labels": { PLACED: TRUE },
                "managedFields": managers.iter().map(entry).collect::<Vec<_>>(),
            });
            assert_eq!(AnyObject(&json!({ "metadata": metadata })).mailbox(), expected, "{managers:?}");
        };
        check(&[("kube-controller-manager", "Update")], None);
        check(&[("kube-controller-manager", "Update"), (FIELD_MANAGER, "Apply")], Some("~b"));
        check(&[(FIELD_MANAGER, "Update")], None);
        // A server without managedFields, or an object whose managedFields were removed.
        check(&[], Some("~b"));
    }

    #[test]
    fn a_fingerprint_depends_on_everything_but_the_order_of_keys() {
        let read = |text: &str| fingerprint(&serde_json::from_str(text).unwrap());
        assert_eq!(read(r#"{"a":1,"b":{"c":2,"d":3}}"#), read(r#"{"b":{"d":3,"c":2},"a":1}"#));
        let all = [
            json!({}),
            json!([]),
            json!(null),
            json!("null"),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({ "a": "b" }),
            json!(["a", "b"]),
            json!([["a"], "b"]),
            json!(1),
            json!("1"),
            json!(true),
        ];
        let mut fingerprints: Vec<_> = all.iter().map(fingerprint).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), all.len());
    }
}
