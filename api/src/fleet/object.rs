//! The common part of all of Holon's kinds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::{GROUP, VERSION};

/// An object of one of Holon's kinds, as a server returns it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetObject<Spec, Status> {
    pub metadata: Metadata,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The names of a kind in the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resource {
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
}

impl Resource {
    pub fn api_version(&self) -> String {
        format!("{GROUP}/{VERSION}")
    }
}

/// The used fields of an object's metadata, and all others, so that writing the object back loses nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Metadata {
    /// Reports whether the object was deleted and waits for finalizers.
    pub fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp.is_some()
    }
}

/// A condition of a status.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    #[serde(default)]
    pub message: String,
    pub last_transition_time: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// Returns a condition. It keeps its transition time if it had this status `before`; otherwise the time is `now`.
    pub fn since(before: &[Condition], reported: (&str, &str, &str, &str), now: &str) -> Condition {
        let (kind, status, reason, message) = reported;
        let old = before.iter().find(|old| old.r#type == kind && old.status == status);
        let since = old.map_or(now, |old| &old.last_transition_time);
        let [r#type, status, reason, message, last_transition_time] =
            [kind, status, reason, message, since].map(str::to_owned);
        Condition { r#type, status, reason, message, last_transition_time, observed_generation: None }
    }
}

/// Identifies the object in a user's logical cluster that an object in a mailbox or on a physical cluster was made
/// from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Locator {
    /// The id of the logical cluster.
    pub logical_cluster: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unread_fields_survive_a_round_trip() {
        let text = json!({
            "metadata": { "name": "east", "labels": { "region": "eu" }, "managedFields": [{ "manager": "kubectl" }] },
            "spec": { "schedulable": true },
        });
        let object: FleetObject<Value, Value> = serde_json::from_value(text.clone()).unwrap();
        assert_eq!((object.metadata.name.as_str(), object.status.is_none()), ("east", true));
        assert_eq!(serde_json::to_value(object).unwrap(), text);
    }
}
