//! One cached object.

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::view::Scope;
use crate::history::SharedObject;
use crate::key::Key;
use crate::kind::ResourceKind;

/// An object as the server sent it, or in the bytes of its store.
#[derive(Debug)]
pub struct CachedObject {
    pub key: Key,
    pub uid: String,
    pub version: String,
    json: ObjectJson,
}

#[derive(Debug)]
enum ObjectJson {
    Whole(Box<RawValue>),
    /// Without the resource version, which belongs to this position.
    Shared(Bytes, usize),
}

impl CachedObject {
    /// The whole object. Sets `kind` and `apiVersion`, which items of a list lack.
    pub fn read(&self, kind: &ResourceKind) -> Value {
        self.read_with(kind, MetadataFields::All)
    }

    /// The object without its managed fields, which are skipped and not decoded.
    pub fn read_without_managed_fields(&self, kind: &ResourceKind) -> Value {
        self.read_with(kind, MetadataFields::WithoutManagedFields)
    }

    fn read_with(&self, kind: &ResourceKind, fields: MetadataFields) -> Value {
        let (json, version) = match &self.json {
            ObjectJson::Whole(text) => (text.get().as_bytes(), None),
            ObjectJson::Shared(json, _) => (&json[..], Some(&*self.version)),
        };
        let seed = ObjectSeed { fields, version };
        let mut tree = seed.deserialize(&mut serde_json::Deserializer::from_slice(json)).unwrap_or_default();
        if tree["kind"].is_null() {
            tree["kind"] = kind.name.clone().into();
            tree["apiVersion"] = kind.api_version().into();
        }
        tree
    }

    /// Only the fields of `T`. None if they cannot be decoded.
    pub fn parse<T: DeserializeOwned>(&self) -> Option<T> {
        self.try_parse().ok()
    }

    /// Only the fields of `T`.
    pub fn try_parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.json {
            ObjectJson::Whole(text) => serde_json::from_str(text.get()),
            ObjectJson::Shared(json, at) => {
                let (before, after) = json.split_at(*at);
                let version = format!("\"resourceVersion\":\"{}\",", self.version);
                serde_json::from_slice(&[before, version.as_bytes(), after].concat())
            }
        }
    }
}

impl From<SharedObject> for CachedObject {
    fn from(object: SharedObject) -> CachedObject {
        let SharedObject { key, uid, revision, json, version_at } = object;
        let version_at = version_at.min(json.len());
        CachedObject { key, uid, version: revision.to_string(), json: ObjectJson::Shared(json, version_at) }
    }
}

#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    annotations: Option<Home>,
}

/// The one annotation that is read: [`api::names::LOGICAL_CLUSTER`].
#[derive(Deserialize)]
struct Home {
    #[serde(rename = "holon.dev/logical-cluster")]
    cluster: Option<String>,
}

/// An item of a list, or the object of an event.
pub(super) fn of_text(text: &RawValue, scope: &Scope) -> Result<CachedObject, serde_json::Error> {
    let Head { metadata } = serde_json::from_str(text.get())?;
    let home = metadata.annotations.and_then(|annotations| annotations.cluster);
    // In a view of one logical cluster a user may have written the annotation, so it is ignored.
    let cluster = home.filter(|_| scope.across).and_then(|id| id.parse().ok());
    let key = Key { cluster, namespace: metadata.namespace, name: metadata.name };
    let json = ObjectJson::Whole(text.to_owned());
    Ok(CachedObject { key, uid: metadata.uid, version: metadata.resource_version, json })
}

/// The fields of the metadata that are decoded.
#[derive(Clone, Copy, PartialEq)]
enum MetadataFields {
    All,
    WithoutManagedFields,
}

/// Decodes an object, and sets its resource version.
#[derive(Clone, Copy)]
struct ObjectSeed<'a> {
    fields: MetadataFields,
    version: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for ObjectSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ObjectSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = match name.as_str() {
                "metadata" => map.next_value_seed(MetadataSeed(self))?,
                _ => map.next_value()?,
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

struct MetadataSeed<'a>(ObjectSeed<'a>);

impl<'de> DeserializeSeed<'de> for MetadataSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MetadataSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the metadata of an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut metadata = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "managedFields" && self.0.fields == MetadataFields::WithoutManagedFields {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            metadata.insert(name, map.next_value()?);
        }
        if let Some(version) = self.0.version {
            metadata.insert("resourceVersion".to_owned(), version.into());
        }
        Ok(Value::Object(metadata))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    /// The object in both forms: as text with its version, and in the bytes of a store without it.
    fn both(object: &Value, revision: u64) -> [CachedObject; 2] {
        let json = object.to_string();
        let version_at = json.find("\"metadata\":{").map_or(0, |at| at + "\"metadata\":{".len());
        let key = Key::new("shop", "web");
        let shared =
            SharedObject { key, uid: "u".into(), revision, json: json.into_bytes().into(), version_at };
        let mut whole = object.clone();
        whole["metadata"]["resourceVersion"] = revision.to_string().into();
        let text = to_raw_value(&whole).unwrap();
        [shared.into(), of_text(&text, &Scope::default()).unwrap()]
    }

    #[test]
    fn shared_and_received_objects_read_the_same() {
        let kind = ResourceKind::new("apps", "v1", "deployments", "Deployment", true);
        let object = json!({
            "metadata": { "managedFields": [{ "fieldsV1": { "f:spec": {} } }], "name": "web", "namespace": "shop" },
            "spec": { "metadata": { "managedFields": "kept" }, "replicas": 3 },
        });
        for cached in both(&object, 7) {
            let mut expected = object.clone();
            expected["metadata"]["resourceVersion"] = "7".into();
            expected["kind"] = "Deployment".into();
            expected["apiVersion"] = "apps/v1".into();
            assert_eq!(cached.read(&kind), expected);
            expected["metadata"].as_object_mut().unwrap().remove("managedFields");
            assert_eq!(cached.read_without_managed_fields(&kind), expected);
            assert_eq!(cached.parse::<Value>().unwrap()["metadata"]["resourceVersion"], "7");
        }
    }
}
