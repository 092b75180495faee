//! Schemas of the built-in kinds. `build/main.rs` packs the definitions; here they are unpacked once, on first use, and
//! shared.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::schema::Origin;
use crate::schema::parse;
use crate::schema::{Schema, SchemaRef, Shape};

/// How often a recursive type is expanded; below that, anything is valid. Only the schemas inside custom resource
/// definitions are recursive, and validation rejects a schema long before it is this deep.
const RECURSION: usize = 32;

static DEFINITIONS: LazyLock<PackedDefinitions> = LazyLock::new(unpack);
static SCHEMAS: LazyLock<BTreeMap<Arc<str>, SchemaRef>> = LazyLock::new(schemas);

/// Returns the schema of the type with this name (`io.k8s.api.core.v1.PodSpec`).
pub fn schema(name: &str) -> Option<&'static SchemaRef> {
    SCHEMAS.get(name)
}

/// Returns the type name of a kind or list kind. The core group is `""`.
pub fn type_name(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    DEFINITIONS.kinds.get(&format!("{group}/{version}/{kind}")).map(String::as_str)
}

/// Returns the definition of a type as OpenAPI v3 text.
pub fn definition(name: &str) -> Option<&'static str> {
    DEFINITIONS.schemas.get(name).map(|json| json.get())
}

/// Returns the names of all types, sorted.
pub fn type_names() -> impl Iterator<Item = &'static str> {
    DEFINITIONS.schemas.keys().map(String::as_str)
}

#[derive(Deserialize)]
struct PackedDefinitions {
    kinds: HashMap<String, String>,
    schemas: BTreeMap<String, Box<RawValue>>,
}

fn unpack() -> PackedDefinitions {
    let packed = include_bytes!(concat!(env!("OUT_DIR"), "/definitions.json.lz4"));
    let text =
        lz4_flex::decompress_size_prepended(packed).expect("the build script compressed the definitions");
    serde_json::from_slice(&text).expect("the build script wrote valid definitions")
}

fn schemas() -> BTreeMap<Arc<str>, SchemaRef> {
    let mut reader = BuiltinReader::default();
    for name in type_names() {
        reader.named(name);
    }
    reader.done
}

/// Parses definitions, each after those it refers to.
#[derive(Default)]
struct BuiltinReader {
    done: BTreeMap<Arc<str>, SchemaRef>,
    /// Types being parsed, and the schema that a recursive reference to each currently resolves to.
    open: HashMap<Arc<str>, SchemaRef>,
    /// Types that were referred to while they were being parsed.
    recursive: Vec<Arc<str>>,
}

impl BuiltinReader {
    fn named(&mut self, name: &str) -> SchemaRef {
        if let Some(schema) = self.done.get(name) {
            return schema.clone();
        }
        if let Some((name, inner)) = self.open.get_key_value(name) {
            let (name, inner) = (name.clone(), inner.clone());
            self.recursive.push(name);
            return inner;
        }
        let name: Arc<str> = name.into();
        let mut schema = Arc::new(Schema { name: Some(name.clone()), ..Schema::default() });
        let Some(text) = definition(&name) else { return schema };
        let json: Value = serde_json::from_str(text).expect("the build script wrote valid definitions");
        for _ in 0..RECURSION {
            self.open.insert(name.clone(), schema);
            schema = Arc::new(self.read(&name, &json));
            self.open.remove(&name);
            if !self.recursive.contains(&name) {
                break;
            }
        }
        self.recursive.retain(|recursive| *recursive != name);
        self.done.insert(name, schema.clone());
        schema
    }

    fn read(&mut self, name: &Arc<str>, json: &Value) -> Schema {
        let mut schema = parse::schema(json, Origin::BuiltIn, &mut |to| self.named(to));
        schema.name = Some(name.clone());
        // A quantity may also be a number, with or without a fraction.
        if schema.shape == Shape::IntOrString && name.ends_with(".Quantity") {
            schema.format = Some("quantity".into());
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{FieldSchema, ListType};

    /// Follows field names and, for `*`, items and map values.
    fn field(kind: &str, path: &str) -> FieldSchema {
        let mut at = FieldSchema::of(schema(kind).unwrap_or_else(|| panic!("no type {kind}")).clone());
        for step in path.split('.') {
            at = match (&at.schema.shape, step) {
                (Shape::Object(object), name) => object.fields[name].clone(),
                (Shape::List(list), "*") => FieldSchema::of(list.items.clone()),
                (Shape::Map(map), "*") => FieldSchema::of(map.values.clone()),
                (shape, step) => panic!("{step} of {path} in {shape:?}"),
            };
        }
        at
    }

    #[test]
    fn a_deployment_is_described_down_to_its_containers() {
        let deployment = type_name("apps", "v1", "Deployment").unwrap();
        let containers = field(deployment, "spec.template.spec.containers");
        assert!(containers.patch_merge);
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        let Shape::List(list) = &containers.schema.shape else { panic!("a list") };
        assert_eq!(list.kind, ListType::Map { keys: vec!["name".into()] });

        let ports = field(deployment, "spec.template.spec.containers.*.ports");
        assert_eq!(
            ports.patch_merge_key.as_deref(),
            Some("containerPort"),
            "a patch finds ports by one field…"
        );
        let Shape::List(list) = &ports.schema.shape else { panic!("a list") };
        let keys = ListType::Map { keys: vec!["containerPort".into(), "protocol".into()] };
        assert_eq!(list.kind, keys, "…and an apply by two");
        let protocol = field(deployment, "spec.template.spec.containers.*.ports.*.protocol");
        assert_eq!(protocol.default, Some("TCP".into()));

        assert!(field(deployment, "spec.strategy").patch_retain_keys);
        let limit = field(deployment, "spec.template.spec.containers.*.resources.limits.*");
        assert_eq!(
            (limit.schema.shape.clone(), limit.schema.format.as_deref()),
            (Shape::IntOrString, Some("quantity"))
        );
        assert!(field(deployment, "spec.replicas").description.is_some());
    }

    #[test]
    fn types_with_one_name_are_one_type() {
        let pod_spec = |kind| field(type_name("apps", "v1", kind).unwrap(), "spec.template.spec").schema;
        assert!(Arc::ptr_eq(&pod_spec("Deployment"), &pod_spec("DaemonSet")));
    }

    #[test]
    fn a_recursive_type_is_resolved_at_every_level() {
        let props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let deep = ["properties.*"; 10].join(".") + ".format";
        assert_eq!(field(props, &deep).schema.shape, Shape::String);
    }

    #[test]
    fn metadata_may_be_absent() {
        let Shape::Object(pod) = &schema("io.k8s.api.core.v1.Pod").unwrap().shape else {
            panic!("an object")
        };
        assert!(pod.required.is_empty(), "{:?}", pod.required);
        assert!(!pod.preserve_unknown);
    }
}
