//! Managed fields: which manager owns which field of an object, updated with every write.
//!
//! ```text
//!   create, update, patch   decoded, defaulted ─► the manager owns the fields it changed ─┐
//!   apply                   merged with the live object; the manager owns the fields it applied ─┴─► metadata.managedFields
//! ```
//!
//! What follows from two versions of an object is decided in [`openapi::patch::apply`]; here is the manager's name, and the
//! subresource. It is decided before a request is restricted to the fields it may change and before the server
//! adds any, so that no manager owns fields that the server sets.

use api::names::LOGICAL_CLUSTER;
use http::header::USER_AGENT;
use openapi::codec::MAX_DEPTH;
use openapi::meta::status::Status;
use openapi::patch::apply::{Applied, FieldManager, ResetFields};
use openapi::schema::Origin;
use openapi::{catalog, defaulting};
use serde_json::{Map, Value};

use crate::objects::metadata;
use crate::registry::call::Call;
use crate::request::options::MANAGER_BYTES_MAX;

const FIELD: &str = "managedFields";
/// How deep in an object they are.
const ABOVE: usize = 2;

/// The managed fields of an object that is about to be written.
#[derive(Clone, Debug)]
pub(crate) enum ManagedFields {
    /// The manager owns the fields it changes. The client may send managed fields of others; and a field that it sends
    /// empty is not the same as a field that it omits, though both are stored alike.
    Asking { said: Option<Value>, empty: Vec<String> },
    /// They have been computed already.
    Known(Option<Value>),
}

impl ManagedFields {
    /// Takes what the client says out of what it sent.
    pub(crate) fn said(object: &mut Value) -> ManagedFields {
        forget_home(object);
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let fields = object.as_object().into_iter().flatten();
        let empty = fields.filter(|(_, value)| is_empty(value)).map(|(name, _)| name.clone()).collect();
        ManagedFields::Asking { said: metadata_of(object).and_then(|metadata| metadata.remove(FIELD)), empty }
    }

    /// Those of `new`, which is filled, and made from nothing.
    pub(crate) fn of_new(self, call: &Call, new: &Value) -> Option<Value> {
        match self {
            ManagedFields::Known(owners) => owners,
            asking => asking.after(call, &defaulting::empty_object(&call.resource), new),
        }
    }

    /// Those of `new`, which is filled, and takes the place of `old`.
    pub(crate) fn after(self, call: &Call, old: &Value, new: &Value) -> Option<Value> {
        match self {
            ManagedFields::Known(owners) => owners,
            ManagedFields::Asking { said, empty } => {
                let mut seen = defaulting::for_managed_fields(&call.resource, new);
                for name in empty.iter().filter(|name| new.get(name).is_some_and(Value::is_null)) {
                    seen.to_mut()[name] = Value::Array(Vec::new());
                }
                let (manager, blank) = (manager(call), Value::Null);
                writing(call, &manager, &blank, |writer| writer.updated(old, &seen, said.as_ref())).flatten()
            }
        }
    }
}

/// A client that reads all logical clusters gets an annotation with each object's logical cluster. No manager owns it, and a client that writes the object
/// back has not changed it.
pub(crate) fn forget_home(object: &mut Value) {
    let Some(metadata) = metadata_of(object) else { return };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
        && annotations.remove(LOGICAL_CLUSTER).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
}

/// Sets the managed fields of an object. An object so deep that its managed fields would exceed the depth limit has none.
pub(crate) fn put(object: &mut Value, owners: Option<Value>) {
    let Some(metadata) = metadata_of(object) else { return };
    match owners.filter(|owners| height(owners) + ABOVE <= MAX_DEPTH) {
        Some(owners) => drop(metadata.insert(FIELD.to_owned(), owners)),
        None => drop(metadata.remove(FIELD)),
    }
}

fn height(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(height).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

fn metadata_of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

/// What `live` becomes when `config` is applied to it.
pub(crate) fn applied(call: &Call, live: &Value, config: &Value, blank: &Value) -> Result<Applied, Status> {
    let force = call.query.flag("force");
    let manager = call.query.text("fieldManager");
    let applied = writing(call, manager, blank, |writer| writer.applied(live, config, force));
    applied.ok_or_else(Status::unknown_patch_type)?.map_err(|error| error.status())
}

/// Runs with the field manager of a request. None if the kind has no schema.
fn writing<R>(
    call: &Call,
    manager: &str,
    blank: &Value,
    run: impl FnOnce(&FieldManager<'_>) -> R,
) -> Option<R> {
    let resource = &call.resource;
    let api_version = resource.api_version();
    Some(run(&FieldManager {
        manager,
        api_version: &api_version,
        subresource: call.subresource.as_deref().unwrap_or_default(),
        schema: resource.schema()?,
        blank,
        reset: ResetFields::of(resource, call.subresource.as_deref()),
        now: &metadata::now(),
        knows: &|version| api_version == version || knows(call, version),
    }))
}

/// Whether there is, or may be, such a version of the kind.
pub(crate) fn knows(call: &Call, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match call.resource.origin {
        Origin::BuiltIn => catalog::find(group, version, &call.resource.plural).is_some(),
        Origin::Custom => *group == *call.resource.group,
    }
}

/// Who asks, as they call themselves: in so many words, or else by the name of their program.
fn manager(call: &Call) -> String {
    match call.query.text("fieldManager") {
        "" => {
            let agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
            named(agent.unwrap_or_default().split('/').next().unwrap_or_default())
        }
        manager => manager.to_owned(),
    }
}

/// As much of a name as may be stored.
fn named(agent: &str) -> String {
    let mut name = String::new();
    for c in agent.chars().filter(|c| !c.is_control() && (!c.is_whitespace() || *c == ' ')) {
        if name.len() + c.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// Time does not pass for who changes nothing: if owners differ in their times alone, and the objects not at all, the
/// old times stand.
pub(crate) fn settle(old: &Value, new: &mut Value) {
    let entries = |object: &Value| object["metadata"].get(FIELD).cloned().unwrap_or_default();
    if differ_in_time(&old["metadata"][FIELD], &new["metadata"][FIELD]) && same_otherwise(old, new) {
        put(new, Some(entries(old)));
    }
}

fn differ_in_time(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else { return false };
    let same = |(one, other): (&Value, &Value)| same_but(one, other, &["time"]);
    old != new && old.len() == new.len() && old.iter().zip(new).all(same)
}

fn same_otherwise(old: &Value, new: &Value) -> bool {
    same_but(old, new, &["metadata"])
        && same_but(&old["metadata"], &new["metadata"], &[FIELD, "resourceVersion"])
}

fn same_but(one: &Value, other: &Value, ignored: &[&str]) -> bool {
    let fields = |object| {
        let fields = Value::as_object(object).into_iter().flatten();
        fields.filter(|(name, _)| !ignored.contains(&name.as_str()))
    };
    fields(one).eq(fields(other))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_is_what_can_be_shown_of_it() {
        assert_eq!(named("kubectl\t1 a"), "kubectl1 a");
        assert_eq!(named(&"ä".repeat(100)).len(), MANAGER_BYTES_MAX);
    }

    #[test]
    fn where_an_object_lives_is_not_part_of_it() {
        let mut object = json!({ "metadata": { "annotations": { LOGICAL_CLUSTER: "x" } } });
        forget_home(&mut object);
        assert_eq!(object, json!({ "metadata": {} }));
        let mut object = json!({ "metadata": { "annotations": { LOGICAL_CLUSTER: "x", "a": "b" } } });
        forget_home(&mut object);
        assert_eq!(object, json!({ "metadata": { "annotations": { "a": "b" } } }));
    }

    /// Such an object could be stored, and never be read again.
    #[test]
    fn owners_are_never_too_deep_to_read() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }));
        for (levels, kept) in [(100, true), (MAX_DEPTH, false)] {
            let mut object = json!({ "metadata": {} });
            put(&mut object, Some(json!([{ "fieldsV1": deep(levels) }])));
            assert_eq!(object["metadata"].get(FIELD).is_some(), kept, "{levels}");
        }
    }

    #[test]
    fn time_passes_only_with_change() {
        let object = |time: &str, field: &str, data: &str| {
            let entry = json!({ "manager": "m", "time": time, "fieldsV1": { field: {} } });
            json!({ "metadata": { "resourceVersion": "1", "managedFields": [entry] }, "data": data })
        };
        let old = object("1", "f:a", "x");
        for (new, stands) in [
            (object("2", "f:a", "x"), true),
            (object("2", "f:b", "x"), false),
            (object("2", "f:a", "y"), false),
        ] {
            let mut settled = new.clone();
            settle(&old, &mut settled);
            assert_eq!(settled["metadata"]["managedFields"][0]["time"], if stands { "1" } else { "2" });
        }
    }
}
