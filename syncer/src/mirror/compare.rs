//! Decides whether a downstream object still has the fields that were applied.
//!
//! A server changes the objects that it receives: it adds defaults, rewrites quantities, runs webhooks. A comparison of
//! values would find differences that no apply removes. But an API server records in managedFields which fields our
//! field manager owns, and removes a field from our entry when another manager changes or removes it. So as long as our
//! entry is the same as after the last apply, the values are the same too.
//!
//! After a restart the syncer does not know that entry, and compares values once. If they differ, it applies the
//! object, which changes nothing if the difference is only the server's, and then has an entry to compare with. In a
//! list that managedFields tracks item by item (`k:`, `v:`), other managers may have added items; any other list is one
//! value, and an additional item is a difference.

use api::meta::cover::{SharedLists, covers};
use api::names::FIELD_MANAGER;
use serde_json::Value;

use super::desired::DesiredObject;
use super::object::fingerprint;

/// The syncer's record of its last apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastApplied {
    desired: u64,
    /// The fingerprint of the fields that we owned after it. `None` if the server keeps no managedFields.
    fields: Option<u64>,
}

impl LastApplied {
    /// `downstream` is the server's response to the apply.
    pub fn new(desired: &DesiredObject, downstream: &Value) -> LastApplied {
        LastApplied { desired: desired.fingerprint, fields: owned_fingerprint(downstream) }
    }
}

/// Returns whether an apply would change nothing.
pub fn is_applied(downstream: &Value, desired: &DesiredObject, sent: Option<LastApplied>) -> bool {
    if !desired.was_sent(downstream) || !desired.names_leader_of(downstream) {
        return false;
    }
    match sent {
        Some(LastApplied { desired: applied, fields: Some(fields) }) if applied == desired.fingerprint => {
            owned_fingerprint(downstream) == Some(fields)
        }
        // Without managedFields: additional list items that the last apply did not remove would survive the next one
        // too.
        Some(LastApplied { desired: applied, fields: None }) if applied == desired.fingerprint => {
            covers(downstream, &desired.object, SharedLists::Any)
        }
        _ => covers(
            downstream,
            &desired.object,
            SharedLists::Keyed(&owned_fields(downstream).collect::<Vec<_>>()),
        ),
    }
}

/// Returns the fingerprint of the fields that our field manager owns.
fn owned_fingerprint(downstream: &Value) -> Option<u64> {
    let fields: Vec<Value> = owned_fields(downstream).cloned().collect();
    (!fields.is_empty()).then(|| fingerprint(&Value::Array(fields)))
}

/// Returns the fields that our field manager owns, with one entry for each version that it applied: `{"f:spec":
/// {"f:ports": {"k:{\"port\":80}": {…}}}}`.
fn owned_fields(downstream: &Value) -> impl Iterator<Item = &Value> {
    let entries = downstream["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owned_fields = entries.filter(|entry| {
        entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" && entry["subresource"].is_null()
    });
    owned_fields.map(|entry| &entry["fieldsV1"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn desired(data: Value) -> DesiredObject {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "uid": "u" }, "data": data });
        DesiredObject::of(&map, "~b")
    }

    fn downstream(desired: &DesiredObject, fields: Value) -> Value {
        let mut downstream = desired.object.clone();
        let theirs = json!({ "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:x": {} } });
        let our_entry = json!({ "manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z" });
        downstream["metadata"]["managedFields"] = json!([theirs, our_entry]);
        downstream
    }

    #[test]
    fn an_object_is_applied_while_we_own_the_same_fields() {
        let desired = desired(json!({ "cpu": "1000m" }));
        let mut found = downstream(&desired, json!({ "f:data": { "f:cpu": {} } }));
        // The server rewrote the quantity in its response to the apply.
        found["data"]["cpu"] = json!("1");
        let sent = Some(LastApplied::new(&desired, &found));
        assert!(is_applied(&found, &desired, sent));
        found["metadata"]["managedFields"][1]["time"] = json!("2026-01-02T00:00:00Z");
        found["data"]["theirs"] = json!("too");
        assert!(is_applied(&found, &desired, sent));
        // Another manager changed a field, and owns it now.
        found["metadata"]["managedFields"][1]["fieldsV1"] = json!({ "f:data": {} });
        assert!(!is_applied(&found, &desired, sent));
        found["metadata"]["managedFields"] = json!([]);
        assert!(!is_applied(&found, &desired, sent));
    }

    #[test]
    fn an_older_apply_does_not_count_as_the_desired_one() {
        let (before, now) = (desired(json!({ "a": "1", "b": "2" })), desired(json!({ "a": "1" })));
        let found = downstream(&before, json!({ "f:data": {} }));
        let sent = Some(LastApplied::new(&before, &found));
        assert!(is_applied(&found, &before, sent));
        // All desired values exist, but so does one that is no longer desired.
        assert!(!is_applied(&found, &now, sent));
        assert!(!is_applied(&found, &now, None));
    }

    #[test]
    fn after_a_restart_values_are_compared() {
        let template =
            json!({ "list": [{ "name": "a", "image": "x" }, { "name": "b" }], "empty": {}, "none": null });
        let desired = desired(template);
        let check = |data: Value, expected: bool| {
            let mut found = downstream(&desired, json!({}));
            found["data"] = data;
            assert_eq!(is_applied(&found, &desired, None), expected, "{found}");
        };
        check(json!({ "list": [{ "name": "a", "image": "x", "pull": "Always" }, { "name": "b" }] }), true);
        check(json!({ "list": [{ "name": "a", "image": "y" }, { "name": "b" }] }), false);
        check(json!({ "list": [{ "name": "a", "image": "x" }] }), false);
        check(json!({}), false);
    }

    /// A user added a rule to a NetworkPolicy that allows nothing, while no syncer ran. The rule stayed, because
    /// every list could have more items than were sent.
    #[test]
    fn after_a_restart_managed_fields_tell_which_lists_others_may_add_to() {
        let rules = |rules: Value| json!({ "ingress": rules });
        let containers = |items: Value| json!({ "containers": items });
        let web = json!({ "name": "web", "args": ["--a"], "env": [{ "name": "A" }] });
        let by_name = json!({ "f:containers": { "k:{\"name\":\"web\"}": {
            ".": {}, "f:name": {}, "f:args": {}, "f:env": { "k:{\"name\":\"A\"}": { ".": {}, "f:name": {} } },
        } } });
        let with = |field: &str, value: Value| {
            let mut web = web.clone();
            web[field] = value;
            containers(json!([web]))
        };
        let check = |sent: Value, fields: Value, found: Value, expected: bool| {
            let desired = desired(sent);
            let mut downstream = downstream(&desired, json!({ "f:data": fields }));
            downstream["data"] = found.clone();
            assert_eq!(is_applied(&downstream, &desired, None), expected, "{found}");
        };
        // The list is one value, owned by us or by another manager.
        let one = json!({ "f:ingress": {} });
        check(rules(json!([{ "a": 1 }])), one.clone(), rules(json!([{ "a": 1 }])), true);
        check(rules(json!([{ "a": 1 }])), one.clone(), rules(json!([{ "a": 1 }, {}])), false);
        check(rules(json!([{ "a": 1 }])), json!({}), rules(json!([{ "a": 1 }, {}])), false);
        check(rules(json!([])), one.clone(), rules(json!([{}])), false);
        check(rules(json!([])), one, json!({}), true);
        // The list is tracked item by item.
        let as_applied = || containers(json!([web]));
        let injected = containers(json!([{ "name": "injected" }, web]));
        check(as_applied(), by_name.clone(), as_applied(), true);
        check(as_applied(), by_name.clone(), injected, true);
        check(as_applied(), by_name.clone(), with("env", json!([{ "name": "A" }, { "name": "B" }])), true);
        check(as_applied(), by_name.clone(), with("args", json!(["--a", "--b"])), false);
        check(as_applied(), by_name, with("image", json!("theirs")), true);
        let set = json!({ "f:ingress": { "v:\"a\"": {} } });
        check(rules(json!(["a"])), set, rules(json!(["a", "b"])), true);
        // Without managedFields the syncer can only apply once.
        let desired = desired(rules(json!([])));
        let mut downstream = desired.object.clone();
        downstream["data"] = rules(json!([1]));
        assert!(!is_applied(&downstream, &desired, None));
        assert!(is_applied(&downstream, &desired, Some(LastApplied::new(&desired, &downstream))));
    }
}
