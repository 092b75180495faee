//! Removes the fields that the splitter does not read before objects are cached.
//!
//! There may be a million logical clusters, each with its namespaces; of both the splitter reads a few fields only.
//! Other objects are kept without managed fields, which are a third of most objects and would be parsed at every
//! reconcile. Services keep them: they distinguish the node ports that a user set from those the server allocated.

use std::collections::BTreeMap;

use api::names::{LOCATOR, LOGICAL_CLUSTER, MAILBOX_OF, PLACEMENT, TARGETS, VIA};
use controller::informer::{Key, Scope};
use controller::kind::ResourceKind;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Annotations of logical clusters and namespaces that the splitter reads.
const ANNOTATIONS: &[&str] = &[LOGICAL_CLUSTER, PLACEMENT, TARGETS, LOCATOR, VIA];

/// How a kind is watched over all logical clusters.
pub(crate) fn scope(kind: &ResourceKind) -> Scope {
    let all = Scope { across: true, trim: Some(without_managed_fields), ..Scope::default() };
    match (kind.group.as_str(), kind.name.as_str()) {
        ("holon.dev", "LogicalCluster") => Scope { trim: Some(logical_cluster), ..all },
        ("", "Namespace") => Scope { trim: Some(namespace), ..all },
        ("", "Service") => Scope { trim: None, ..all },
        // Every namespace has these, and they are never propagated.
        ("", "ConfigMap") => {
            Scope { keep: Some(Box::new(|key: &Key| key.name != "kube-root-ca.crt")), ..all }
        }
        ("", "ServiceAccount") => Scope { keep: Some(Box::new(|key: &Key| key.name != "default")), ..all },
        _ => all,
    }
}

/// Cuts the managed fields out of the text, which costs less than parsing it. None if there are none.
fn without_managed_fields(text: &RawValue) -> Option<Box<RawValue>> {
    type Fields<'a> = BTreeMap<&'a str, &'a RawValue>;
    let mut whole: Fields = serde_json::from_str(text.get()).ok()?;
    let mut metadata: Fields = serde_json::from_str(whole.get("metadata")?.get()).ok()?;
    metadata.remove("managedFields")?;
    let metadata = to_raw_value(&metadata).ok()?;
    whole.insert("metadata", &metadata);
    to_raw_value(&whole).ok()
}

fn logical_cluster(text: &RawValue) -> Option<Box<RawValue>> {
    retain_fields(text, |label| label == MAILBOX_OF, &["id"])
}

fn namespace(text: &RawValue) -> Option<Box<RawValue>> {
    retain_fields(text, |_| true, &["phase"])
}

fn retain_fields(text: &RawValue, label: fn(&str) -> bool, status: &[&str]) -> Option<Box<RawValue>> {
    let mut object: Value = serde_json::from_str(text.get()).ok()?;
    let metadata = object["metadata"].as_object_mut()?;
    metadata.retain(|name, _| {
        ["name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp"].contains(&&**name)
    });
    if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
        labels.retain(|name, _| label(name));
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.retain(|name, _| ANNOTATIONS.contains(&&**name));
    }
    let whole = object.as_object_mut()?;
    whole.retain(|name, _| name == "metadata" || name == "status");
    if let Some(Value::Object(fields)) = whole.get_mut("status") {
        fields.retain(|name, _| status.contains(&&**name));
    }
    to_raw_value(&object).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_managed_fields_are_removed() {
        let whole = json!({
            "kind": "Deployment", "metadata": { "name": "web", "labels": { "a\"b": "c" } },
            "spec": { "replicas": 3, "text": "managedFields" },
        });
        let text = |object: &Value| to_raw_value(object).unwrap();
        let mut owned = whole.clone();
        owned["metadata"]["managedFields"] = json!([{ "manager": "kubectl", "fieldsV1": { "f:spec": {} } }]);
        let cut = without_managed_fields(&text(&owned)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(cut.get()).unwrap(), whole);
        assert!(
            without_managed_fields(&text(&whole)).is_none(),
            "an object without managed fields is unchanged"
        );
        assert!(without_managed_fields(&text(&json!({ "kind": "odd" }))).is_none());
    }
}
