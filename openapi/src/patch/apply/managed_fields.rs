//! Field managers and the fields they own: `metadata.managedFields`, decoded and encoded.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::fields_v1;

/// Maximum number of separate entries for updaters, as in Kubernetes.
const UPDATERS_MAX: usize = 10;
/// The manager name of the entry into which older updaters are merged.
const ANCIENT: &str = "ancient-changes";
const FIELDS_TYPE: &str = "FieldsV1";

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// An entry of managedFields: a manager and the fields it owns.
#[derive(Clone, Debug)]
pub(super) struct ManagedFieldsEntry<'a> {
    pub(super) name: Cow<'a, str>,
    pub(super) operation: Operation,
    pub(super) api_version: Cow<'a, str>,
    pub(super) subresource: Cow<'a, str>,
    /// Empty if absent, and so sorted first.
    pub(super) time: Cow<'a, str>,
    pub(super) set: FieldSet<'a>,
}

impl ManagedFieldsEntry<'_> {
    /// Returns what identifies an entry. For an applier the API version is not part of it.
    fn identity(&self) -> (&str, Operation, &str, Option<&str>) {
        let version = (self.operation == Operation::Update).then_some(&*self.api_version);
        (&self.name, self.operation, &self.subresource, version)
    }

    /// Compares by the order of entries in the object.
    fn compare(&self, other: &ManagedFieldsEntry<'_>) -> Ordering {
        let key = |manager: &ManagedFieldsEntry<'_>| manager.operation;
        key(self)
            .cmp(&key(other))
            .then_with(|| self.time.cmp(&other.time))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    fn encode(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                entry.insert(name.to_owned(), value.into());
            }
        };
        put("manager", &self.name);
        put("operation", self.operation.as_str());
        put("apiVersion", &self.api_version);
        put("time", &self.time);
        put("fieldsType", FIELDS_TYPE);
        put("subresource", &self.subresource);
        entry.insert("fieldsV1".to_owned(), fields_v1::encode(&self.set));
        Value::Object(entry)
    }
}

/// All managers of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct ManagedFields<'a>(pub(super) Vec<ManagedFieldsEntry<'a>>);

impl<'a> ManagedFields<'a> {
    /// Decodes the managedFields of an object, or returns why they are invalid.
    pub(super) fn decode(entries: Option<&'a Value>) -> Result<ManagedFields<'a>, String> {
        let entries = entries.and_then(Value::as_array).into_iter().flatten().enumerate();
        let mut managers =
            entries.map(|(index, entry)| manager(index, entry)).collect::<Result<Vec<_>, _>>()?;
        // Of entries with the same identity, the last one counts.
        let mut later = HashSet::with_capacity(managers.len());
        let mut counts: Vec<bool> =
            managers.iter().rev().map(|manager| later.insert(manager.identity())).collect();
        managers.retain(|_| counts.pop().unwrap_or_default());
        Ok(ManagedFields(managers))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of `metadata.managedFields`; none if there are no entries.
    pub(super) fn encode(mut self) -> Option<Value> {
        self.0.sort_by(ManagedFieldsEntry::compare);
        (!self.is_empty()).then(|| Value::Array(self.0.iter().map(ManagedFieldsEntry::encode).collect()))
    }

    pub(super) fn find(&self, writer: &ManagedFieldsEntry<'_>) -> Option<usize> {
        self.0.iter().position(|manager| manager.identity() == writer.identity())
    }

    /// Removes entries whose API version does not exist any more.
    pub(super) fn forget(&mut self, knows: &dyn Fn(&str) -> bool) {
        self.0.retain(|manager| knows(&manager.api_version));
    }

    pub(super) fn drop_empty(&mut self) {
        self.0.retain(|manager| !manager.set.is_empty());
    }

    /// Merges the oldest entries of updaters if there are too many, separately for each API version.
    pub(super) fn cap(&mut self) {
        let updates = |manager: &ManagedFieldsEntry<'_>| manager.operation == Operation::Update;
        let mut count = self.0.iter().filter(|manager| updates(manager)).count();
        if count <= UPDATERS_MAX {
            return;
        }
        self.0.sort_by(|one, other| {
            let order = one.time.cmp(&other.time).then_with(|| one.name.cmp(&other.name));
            order.then_with(|| one.compare(other))
        });
        let mut managers_kept: Vec<ManagedFieldsEntry<'a>> = Vec::with_capacity(self.0.len());
        // For each API version, the index of its oldest updater and the sets to merge into that entry.
        let mut oldest: HashMap<Cow<'a, str>, (usize, Vec<FieldSet<'a>>)> = HashMap::new();
        for manager in std::mem::take(&mut self.0) {
            if !updates(&manager) {
                managers_kept.push(manager);
                continue;
            }
            match oldest.get_mut(&manager.api_version) {
                Some((index, sets)) if count > UPDATERS_MAX => {
                    sets.push(manager.set);
                    let bucket = &mut managers_kept[*index];
                    bucket.name = ANCIENT.into();
                    bucket.subresource = "".into();
                    bucket.time = manager.time;
                    count -= 1;
                }
                Some(_) => managers_kept.push(manager),
                None => {
                    oldest.insert(manager.api_version.clone(), (managers_kept.len(), Vec::new()));
                    managers_kept.push(manager);
                }
            }
        }
        for (index, sets) in oldest.into_values() {
            let own_set = std::mem::take(&mut managers_kept[index].set);
            managers_kept[index].set = FieldSet::union_all(std::iter::once(own_set).chain(sets));
        }
        self.0 = managers_kept;
    }
}

fn manager(index: usize, entry: &Value) -> Result<ManagedFieldsEntry<'_>, String> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".to_owned()),
    };
    if text("apiVersion").is_empty() {
        return Err("apiVersion must not be empty".to_owned());
    }
    match text("fieldsType") {
        FIELDS_TYPE => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
        other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}")),
    }
    let set = fields_v1::decode(&entry["fieldsV1"]).map_err(|_| "error decoding set".to_owned())?;
    Ok(ManagedFieldsEntry {
        name: text("manager").into(),
        operation,
        api_version: text("apiVersion").into(),
        subresource: text("subresource").into(),
        time: text("time").into(),
        set,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, field: &str) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": { format!("f:{field}"): {} },
        })
    }

    #[test]
    fn entries_are_kept_in_order_and_read_as_written() {
        let sorted = json!([
            entry("z", "Apply", "2026-01-02T00:00:00Z", "a"),
            entry("b", "Update", "2026-01-01T00:00:00Z", "b"),
            entry("a", "Update", "2026-01-02T00:00:00Z", "c"),
        ]);
        let mut reversed = sorted.clone();
        reversed.as_array_mut().unwrap().reverse();
        assert_eq!(ManagedFields::decode(Some(&reversed)).unwrap().encode().unwrap(), sorted);
        assert_eq!(ManagedFields::decode(None).unwrap().encode(), None);
    }

    #[test]
    fn of_equal_managers_the_last_entry_counts() {
        let entries = json!([
            entry("a", "Update", "", "one"),
            entry("b", "Update", "", "two"),
            entry("a", "Apply", "", "three"),
            entry("a", "Update", "", "four"),
        ]);
        let managers = ManagedFields::decode(Some(&entries)).unwrap();
        let fields: Vec<_> = managers.0.iter().map(|manager| fields_v1::encode(&manager.set)).collect();
        assert_eq!(fields, [json!({ "f:two": {} }), json!({ "f:three": {} }), json!({ "f:four": {} })]);
    }

    #[test]
    fn invalid_entries_are_refused() {
        for (field, value, expected) in [
            ("operation", json!("Steal"), "operation must be `Apply` or `Update`"),
            ("apiVersion", json!(""), "apiVersion must not be empty"),
            ("fieldsType", json!(null), "missing fieldsType in managed fields entry 0"),
            ("fieldsType", json!("V2"), "invalid fieldsType \"V2\" in managed fields entry 0"),
            ("fieldsV1", json!({ "x": {} }), "error decoding set"),
        ] {
            let mut entry = entry("a", "Apply", "", "a");
            entry[field] = value;
            assert_eq!(ManagedFields::decode(Some(&json!([entry]))).unwrap_err(), expected);
        }
    }

    #[test]
    fn of_many_updaters_the_oldest_become_one() {
        let entries: Vec<_> = (10..22)
            .map(|n| entry(&format!("m{n}"), "Update", &format!("2026-01-{n}T00:00:00Z"), &format!("x{n}")))
            .chain([entry("applier", "Apply", "2025-01-01T00:00:00Z", "y")])
            .collect();
        let entries = Value::from(entries);
        let mut managers = ManagedFields::decode(Some(&entries)).unwrap();
        managers.cap();
        let encoded = managers.encode().unwrap();
        let names: Vec<_> =
            encoded.as_array().unwrap().iter().map(|entry| entry["manager"].clone()).collect();
        let expected =
            ["applier", ANCIENT].into_iter().map(str::to_owned).chain((13..22).map(|n| format!("m{n}")));
        assert_eq!(names, expected.map(Value::from).collect::<Vec<_>>());
        assert_eq!(encoded[1]["fieldsV1"], json!({ "f:x10": {}, "f:x11": {}, "f:x12": {} }));
        assert_eq!(encoded[1]["time"], "2026-01-12T00:00:00Z");
    }
}
