//! Whether the object below still holds what was sent.
//!
//! What a server makes of what it is sent is its own affair: it fills in defaults, writes a quantity otherwise, lets
//! webhooks change a field. So comparing values with what was sent finds differences that no write removes, and writes for
//! ever. But every API server keeps book of who owns which field, and takes from us each one that somebody else changes
//! or removes. As long as the fields it says are ours stay the same after an apply, so do their values.
//!
//! After a restart we do not remember which fields were ours. Then values are compared, once: where they do not tell, one
//! apply, which changes nothing if nothing differs, gives us something to remember. What others may have added meanwhile is
//! what the book tells: in a list of which it has our items one by one the others are theirs; any other list is one value,
//! and one item more is another value.

use api::meta::cover::{SharedLists, covers};
use api::names::FIELD_MANAGER;
use serde_json::Value;

use super::object::fingerprint;
use super::wanted::Wanted;

/// What to remember of an apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    wanted: u64,
    /// Of the fields that were ours then. None where the server keeps no book.
    fields: Option<u64>,
}

impl Sent {
    /// `below` is what the server made of it.
    pub fn new(wanted: &Wanted, below: &Value) -> Sent {
        Sent { wanted: wanted.fingerprint, fields: owned(below) }
    }
}

/// Whether an apply would change nothing.
pub fn holds(below: &Value, wanted: &Wanted, sent: Option<Sent>) -> bool {
    if !wanted.was_sent(below) || !wanted.leads(below) {
        return false;
    }
    match sent {
        Some(Sent { wanted: then, fields: Some(fields) }) if then == wanted.fingerprint => {
            owned(below) == Some(fields)
        }
        // There is no book: what an apply does not change will not change with the next one.
        Some(Sent { wanted: then, fields: None }) if then == wanted.fingerprint => {
            covers(below, &wanted.object, SharedLists::Any)
        }
        _ => covers(below, &wanted.object, SharedLists::Keyed(&ours(below).collect::<Vec<_>>())),
    }
}

/// The fingerprint of the fields the server says we own.
fn owned(below: &Value) -> Option<u64> {
    let fields: Vec<Value> = ours(below).cloned().collect();
    (!fields.is_empty()).then(|| fingerprint(&Value::Array(fields)))
}

/// What the server's book says is ours: `{"f:spec": {"f:ports": {"k:{\"port\":80}": {…}}}}`. An entry for each version we have
/// written in.
fn ours(below: &Value) -> impl Iterator<Item = &Value> {
    let entries = below["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours = entries.filter(|entry| {
        entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply" && entry["subresource"].is_null()
    });
    ours.map(|entry| &entry["fieldsV1"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(data: Value) -> Wanted {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "m", "uid": "u" }, "data": data });
        Wanted::of(&map, "~b")
    }

    fn below(wanted: &Wanted, fields: Value) -> Value {
        let mut below = wanted.object.clone();
        let theirs = json!({ "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:x": {} } });
        let ours = json!({ "manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields, "time": "2026-01-01T00:00:00Z" });
        below["metadata"]["managedFields"] = json!([theirs, ours]);
        below
    }

    #[test]
    fn fields_we_own_stay_as_we_sent_them() {
        let wanted = wanted(json!({ "cpu": "1000m" }));
        let mut found = below(&wanted, json!({ "f:data": { "f:cpu": {} } }));
        // The server wrote it its own way; that is what came of the apply, so it is no difference.
        found["data"]["cpu"] = json!("1");
        let sent = Some(Sent::new(&wanted, &found));
        assert!(holds(&found, &wanted, sent));
        found["metadata"]["managedFields"][1]["time"] = json!("2026-01-02T00:00:00Z");
        found["data"]["theirs"] = json!("too");
        assert!(holds(&found, &wanted, sent));
        // Somebody else changed a field: it is theirs now.
        found["metadata"]["managedFields"][1]["fieldsV1"] = json!({ "f:data": {} });
        assert!(!holds(&found, &wanted, sent));
        found["metadata"]["managedFields"] = json!([]);
        assert!(!holds(&found, &wanted, sent));
    }

    #[test]
    fn what_was_sent_before_is_not_what_is_wanted_now() {
        let (before, now) = (wanted(json!({ "a": "1", "b": "2" })), wanted(json!({ "a": "1" })));
        let found = below(&before, json!({ "f:data": {} }));
        let sent = Some(Sent::new(&before, &found));
        assert!(holds(&found, &before, sent));
        // Everything that is wanted is there; what is wanted no longer is there too.
        assert!(!holds(&found, &now, sent));
        assert!(!holds(&found, &now, None));
    }

    #[test]
    fn without_a_memory_values_are_compared() {
        let template =
            json!({ "list": [{ "name": "a", "image": "x" }, { "name": "b" }], "empty": {}, "none": null });
        let wanted = wanted(template);
        let check = |data: Value, expected: bool| {
            let mut found = below(&wanted, json!({}));
            found["data"] = data;
            assert_eq!(holds(&found, &wanted, None), expected, "{found}");
        };
        check(json!({ "list": [{ "name": "a", "image": "x", "pull": "Always" }, { "name": "b" }] }), true);
        check(json!({ "list": [{ "name": "a", "image": "y" }, { "name": "b" }] }), false);
        check(json!({ "list": [{ "name": "a", "image": "x" }] }), false);
        check(json!({}), false);
    }

    /// Somebody added a rule to a NetworkPolicy that lets nobody in, while no syncer ran. It stayed: in any list there could be
    /// more than was sent.
    #[test]
    fn without_a_memory_the_book_says_where_others_may_add_items() {
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
            let wanted = wanted(sent);
            let mut below = below(&wanted, json!({ "f:data": fields }));
            below["data"] = found.clone();
            assert_eq!(holds(&below, &wanted, None), expected, "{found}");
        };
        // One value, which is ours or was taken from us.
        let one = json!({ "f:ingress": {} });
        check(rules(json!([{ "a": 1 }])), one.clone(), rules(json!([{ "a": 1 }])), true);
        check(rules(json!([{ "a": 1 }])), one.clone(), rules(json!([{ "a": 1 }, {}])), false);
        check(rules(json!([{ "a": 1 }])), json!({}), rules(json!([{ "a": 1 }, {}])), false);
        check(rules(json!([])), one.clone(), rules(json!([{}])), false);
        check(rules(json!([])), one, json!({}), true);
        // Item by item.
        let ours = || containers(json!([web]));
        let injected = containers(json!([{ "name": "injected" }, web]));
        check(ours(), by_name.clone(), ours(), true);
        check(ours(), by_name.clone(), injected, true);
        check(ours(), by_name.clone(), with("env", json!([{ "name": "A" }, { "name": "B" }])), true);
        check(ours(), by_name.clone(), with("args", json!(["--a", "--b"])), false);
        check(ours(), by_name, with("image", json!("theirs")), true);
        let set = json!({ "f:ingress": { "v:\"a\"": {} } });
        check(rules(json!(["a"])), set, rules(json!(["a", "b"])), true);
        // Where no book is kept, one apply is all that can be done.
        let wanted = wanted(rules(json!([])));
        let mut below = wanted.object.clone();
        below["data"] = rules(json!([1]));
        assert!(!holds(&below, &wanted, None));
        assert!(holds(&below, &wanted, Some(Sent::new(&wanted, &below))));
    }
}
