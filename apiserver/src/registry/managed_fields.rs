//! Managed fields: which manager owns which field of an object, updated with every write.
//!
//! ```text
//!   create, update, patch   decoded, defaulted ─► the manager owns the fields it changed ───────────┐
//!   apply                   merged with the live object ─► the manager owns the fields it applied ──┴─► managedFields
//! ```
//!
//! [`openapi::patch::apply`] computes the managed fields from two versions of an object; this module supplies the field
//! manager and the subresource. The computation comes before a request is restricted to the fields it may change and
//! before the server sets fields of its own, so no manager owns fields that the server sets.

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
/// Depth of `metadata.managedFields` in an object.
const ABOVE: usize = 2;

/// The managed fields of an object that is about to be written.
#[derive(Clone, Debug)]
pub(crate) enum ManagedFields {
    /// The manager owns the fields it changes. `sent` are those of the client. `empty` are the
    /// top-level fields that it sent as empty lists: a sent empty field is owned, an omitted one is not, although both
    /// are stored alike.
    Sent { sent: Option<Value>, empty: Vec<String> },
    /// The managed fields are computed already.
    Known(Option<Value>),
}

impl ManagedFields {
    /// Removes the managed fields from a sent object and returns them.
    pub(crate) fn take(object: &mut Value) -> ManagedFields {
        remove_cluster_annotation(object);
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        let fields = object.as_object().into_iter().flatten();
        let empty = fields.filter(|(_, value)| is_empty(value)).map(|(name, _)| name.clone()).collect();
        ManagedFields::Sent { sent: metadata_of(object).and_then(|metadata| metadata.remove(FIELD)), empty }
    }

    /// Returns the managed fields of a new object. `new` has its defaults.
    pub(crate) fn of_new(self, call: &Call, new: &Value) -> Option<Value> {
        match self {
            ManagedFields::Known(managed) => managed,
            unknown => unknown.after(call, &defaulting::empty_object(&call.resource), new),
        }
    }

    /// Returns the managed fields of `new`, which replaces `old`. `new` has its defaults.
    pub(crate) fn after(self, call: &Call, old: &Value, new: &Value) -> Option<Value> {
        match self {
            ManagedFields::Known(managed) => managed,
            ManagedFields::Sent { sent, empty } => {
                let mut defaulted = defaulting::for_managed_fields(&call.resource, new);
                for name in empty.iter().filter(|name| new.get(name).is_some_and(Value::is_null)) {
                    defaulted.to_mut()[name] = Value::Array(Vec::new());
                }
                let (manager, blank) = (manager(call), Value::Null);
                writing(call, &manager, &blank, |writer| writer.updated(old, &defaulted, sent.as_ref()))
                    .flatten()
            }
        }
    }
}

/// Removes the annotation with the object's logical cluster. Clients that read all logical clusters get it with each
/// object. No manager owns it, and sending it back changes nothing.
pub(crate) fn remove_cluster_annotation(object: &mut Value) {
    let Some(metadata) = metadata_of(object) else { return };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations")
        && annotations.remove(LOGICAL_CLUSTER).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
}

/// Sets the managed fields of an object, or removes them if they would exceed the depth limit.
pub(crate) fn put(object: &mut Value, managed: Option<Value>) {
    let Some(metadata) = metadata_of(object) else { return };
    match managed.filter(|managed| height(managed) + ABOVE <= MAX_DEPTH) {
        Some(managed) => drop(metadata.insert(FIELD.to_owned(), managed)),
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

/// Applies `config` to `live` (server-side apply).
pub(crate) fn applied(call: &Call, live: &Value, config: &Value, blank: &Value) -> Result<Applied, Status> {
    let force = call.query.flag("force");
    let manager = call.query.text("fieldManager");
    let applied = writing(call, manager, blank, |writer| writer.applied(live, config, force));
    applied.ok_or_else(Status::unknown_patch_type)?.map_err(|error| error.status())
}

/// Runs `run` with the field manager of a request. Returns None if the kind has no schema.
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
        knows: &|version| api_version == version || is_known_version(call, version),
    }))
}

/// Reports whether this version of the kind exists. Every version in the group of a custom kind counts.
pub(crate) fn is_known_version(call: &Call, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match call.resource.origin {
        Origin::BuiltIn => catalog::find(group, version, &call.resource.plural).is_some(),
        Origin::Custom => *group == *call.resource.group,
    }
}

/// Returns the field manager of a request: `fieldManager` of the query, or else the program name of the user agent.
fn manager(call: &Call) -> String {
    match call.query.text("fieldManager") {
        "" => {
            let agent = call.headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
            sanitized_name(agent.unwrap_or_default().split('/').next().unwrap_or_default())
        }
        manager => manager.to_owned(),
    }
}

/// Returns the printable characters of a name, up to the maximum length.
fn sanitized_name(agent: &str) -> String {
    let mut name = String::new();
    for c in agent.chars().filter(|c| !c.is_control() && (!c.is_whitespace() || *c == ' ')) {
        if name.len() + c.len_utf8() > MANAGER_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// Keeps the old managed fields if they differ only in their times and the objects do not differ otherwise: an update
/// that changes nothing does not change a time.
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
    fn manager_names_keep_only_printable_characters_up_to_the_limit() {
        assert_eq!(sanitized_name("kubectl\t1 a"), "kubectl1 a");
        assert_eq!(sanitized_name(&"ä".repeat(100)).len(), MANAGER_BYTES_MAX);
    }

    #[test]
    fn the_cluster_annotation_is_removed() {
        let mut object = json!({ "metadata": { "annotations": { LOGICAL_CLUSTER: "x" } } });
        remove_cluster_annotation(&mut object);
        assert_eq!(object, json!({ "metadata": {} }));
        let mut object = json!({ "metadata": { "annotations": { LOGICAL_CLUSTER: "x", "a": "b" } } });
        remove_cluster_annotation(&mut object);
        assert_eq!(object, json!({ "metadata": { "annotations": { "a": "b" } } }));
    }

    /// Such an object could be stored, but never decoded again.
    #[test]
    fn managed_fields_are_never_too_deep_to_decode() {
        let deep = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({ "f:a": inner }));
        for (levels, is_kept) in [(100, true), (MAX_DEPTH, false)] {
            let mut object = json!({ "metadata": {} });
            put(&mut object, Some(json!([{ "fieldsV1": deep(levels) }])));
            assert_eq!(object["metadata"].get(FIELD).is_some(), is_kept, "{levels}");
        }
    }

    #[test]
    fn the_time_of_managed_fields_changes_only_with_the_fields() {
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
