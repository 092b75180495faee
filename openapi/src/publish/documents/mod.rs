//! OpenAPI documents, with which kubectl validates, explains and chooses patch types.
//!
//! ```text
//! resources ──► paths ──┬──► v3, one document per group and version    definitions: built-in (text), custom (text)
//!                       └──► v2, one for all: JSON, gnostic protobuf
//! ```
//!
//! A document contains the definitions to which its paths refer, directly or through other definitions, so all
//! references resolve. Definitions stay texts and are copied; only v2 parses them, because it has to convert them.

mod custom;
mod gnostic;
mod parameters;
mod paths;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::schema::OpenApiDefinitions;

use crate::catalog::resource_info::{ResourceInfo, Verb};
use crate::meta::hash;
use crate::schema::builtin;

pub use v2::{v2, v2_protobuf};

/// The media type of [`v2_protobuf`].
pub const GNOSTIC: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const PREFIX: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// A finished document.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenApiDocument {
    pub body: String,
    /// The hash of the body, for entity tags and for the URLs in the [`index`].
    pub hash: String,
}

impl OpenApiDocument {
    fn of(body: String) -> OpenApiDocument {
        OpenApiDocument { hash: hash::content(body.as_bytes()), body }
    }
}

/// Returns the document at `/openapi/v3`, which lists the others. `documents` are pairs of a path such as
/// `apis/apps/v1` and a hash. The URLs are the same in every logical cluster: a client adds the prefix of its logical
/// cluster.
pub fn index<'a>(documents: impl IntoIterator<Item = (&'a str, &'a str)>) -> Value {
    let paths: serde_json::Map<String, Value> = documents
        .into_iter()
        .map(|(path, hash)| {
            (path.to_owned(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}") }))
        })
        .collect();
    json!({ "paths": paths })
}

/// Returns the path of a group and version in the [`index`]: `api/v1`, `apis/apps/v1`.
pub fn path(group: &str, version: &str) -> String {
    match group {
        "" => format!("api/{version}"),
        group => format!("apis/{group}/{version}"),
    }
}

/// Returns the OpenAPI v3 document of one group and version, if `rows` contain it.
pub fn v3(
    rows: &[Arc<ResourceInfo>],
    custom: &OpenApiDefinitions,
    group: &str,
    version: &str,
) -> Option<OpenApiDocument> {
    let of: Vec<&ResourceInfo> = rows
        .iter()
        .map(|resource| &**resource)
        .filter(|resource| &*resource.group == group && &*resource.version == version)
        .collect();
    if of.is_empty() {
        return None;
    }
    let paths: serde_json::Map<String, Value> =
        paths::of_version(&of, group, version).into_iter().map(paths::DocumentPath::v3).collect();
    let paths = Value::Object(paths).to_string();
    let schemas: Vec<String> = closure(&(paths.clone() + watch_event(&of)), custom)
        .into_iter()
        .map(|(name, definition)| {
            format!("{}:{}", json!(name), with_kinds(&name, &definition, &[(group, version)]))
        })
        .collect();
    let security = json!({ "BearerToken": bearer_token() });
    let body = format!(
        "{{\"openapi\":\"3.0.0\",\"info\":{},\"paths\":{paths},\"components\":{{\"schemas\":{{{}}},\"securitySchemes\":{security}}}}}",
        information(),
        schemas.join(","),
    );
    Some(OpenApiDocument::of(body))
}

/// Returns a reference to the type of watch events, which no path contains; empty if no resource can be watched.
fn watch_event(rows: &[&ResourceInfo]) -> &'static str {
    match rows.iter().any(|resource| resource.allows(Verb::Watch)) {
        true => r##""$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent""##,
        false => "",
    }
}

fn information() -> Value {
    json!({ "title": "Kubernetes", "version": "1.36" })
}

fn bearer_token() -> Value {
    json!({ "type": "apiKey", "name": "authorization", "in": "header", "description": "Bearer Token authentication" })
}

/// Returns the definitions to which a text refers, directly or through other definitions.
fn closure(text: &str, custom: &OpenApiDefinitions) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut found: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    let mut open: Vec<Arc<str>> = references(text).into_iter().map(Arc::from).collect();
    while let Some(name) = open.pop() {
        if found.contains_key(&name) {
            continue;
        }
        // A type without a definition may contain anything, but the reference must resolve.
        let definition = match custom.get(&name) {
            Some(definition) => definition.clone(),
            None => builtin::definition(&name).unwrap_or(r#"{"type":"object"}"#).into(),
        };
        open.extend(references(&definition).into_iter().map(Arc::from));
        found.insert(name, definition);
    }
    found
}

/// Returns the names of the types to which a compact JSON text refers. In a string the quotes would be escaped, so a
/// description is never mistaken for a reference.
fn references(text: &str) -> BTreeSet<&str> {
    const MARK: &str = "\"$ref\":\"#/components/schemas/";
    text.match_indices(MARK).filter_map(|(at, _)| text[at + MARK.len()..].split('"').next()).collect()
}

/// Adds the groups and versions to the definition of a type that all of them have.
fn with_kinds(name: &str, definition: &str, of: &[(&str, &str)]) -> String {
    let Some(kind) = name.strip_prefix(META).and_then(|name| name.strip_prefix('.')) else {
        return definition.to_owned();
    };
    if !matches!(kind, "DeleteOptions" | "WatchEvent") {
        return definition.to_owned();
    }
    let group_versions: BTreeSet<(&str, &str)> = of.iter().copied().chain([("", "v1")]).collect();
    let kinds: Vec<Value> = group_versions
        .into_iter()
        .map(|(group, version)| json!({ "group": group, "version": version, "kind": kind }))
        .collect();
    format!("{{\"x-kubernetes-group-version-kind\":{},{}", Value::from(kinds), &definition[1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::built_in;

    fn read(group: &str, version: &str) -> Value {
        let document = v3(built_in(), &OpenApiDefinitions::new(), group, version).unwrap();
        serde_json::from_str(&document.body).unwrap()
    }

    #[test]
    fn documents_describe_patches_as_kubectl_expects() {
        let patch =
            &read("apps", "v1")["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let kind = json!({ "group": "apps", "version": "v1", "kind": "Deployment" });
        assert_eq!(patch["x-kubernetes-group-version-kind"], kind);
        let parameters: Vec<_> =
            patch["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert!(parameters.iter().any(|name| **name == "fieldValidation"), "{parameters:?}");
        let content = patch["requestBody"]["content"].as_object().unwrap();
        assert!(content.contains_key("application/strategic-merge-patch+json"), "{content:?}");
    }

    #[test]
    fn every_reference_resolves() {
        let mut versions: Vec<_> =
            built_in().iter().map(|resource| (&resource.group, &resource.version)).collect();
        versions.dedup();
        for (group, version) in versions {
            let document = v3(built_in(), &OpenApiDefinitions::new(), group, version).unwrap();
            let json: Value = serde_json::from_str(&document.body).unwrap();
            for name in references(&document.body) {
                let definition = &json["components"]["schemas"][name];
                assert!(definition["description"].is_string(), "{group}/{version}: {name} is {definition}");
            }
        }
    }

    #[test]
    fn a_custom_kind_is_published_without_strategic_merge_and_protobuf() {
        let mut resource = (**crate::catalog::find("apps", "v1", "deployments").unwrap()).clone();
        resource.origin = crate::schema::Origin::Custom;
        (resource.group, resource.kind, resource.plural) =
            ("shop.example".into(), "Widget".into(), "widgets".into());
        resource.type_name = "example.shop.v1.Widget".into();
        let custom: OpenApiDefinitions = [
            (
                Arc::from("example.shop.v1.Widget"),
                Arc::from(r#"{"type":"object","description":"A widget."}"#),
            ),
            (
                Arc::from("example.shop.v1.WidgetList"),
                Arc::from(r#"{"type":"object","description":"Widgets."}"#),
            ),
        ]
        .into();
        let document = v3(&[Arc::new(resource)], &custom, "shop.example", "v1").unwrap();
        let json: Value = serde_json::from_str(&document.body).unwrap();
        let widget = json["paths"]["/apis/shop.example/v1/namespaces/{namespace}/widgets/{name}"].to_string();
        assert!(widget.contains("merge-patch+json"), "{widget}");
        assert!(!widget.contains("strategic-merge-patch"), "strategic merge needs merge keys");
        assert!(!widget.contains("vnd.kubernetes.protobuf"), "custom kinds have no protobuf");
        assert!(document.body.contains("A widget."));
    }

    #[test]
    fn the_hash_is_of_the_content_and_is_in_the_index() {
        let one = v3(built_in(), &OpenApiDefinitions::new(), "batch", "v1").unwrap();
        let other = v3(built_in(), &OpenApiDefinitions::new(), "apps", "v1").unwrap();
        assert_ne!(one.hash, other.hash);
        let index = index([("apis/batch/v1", &*one.hash)]);
        let address = format!("/openapi/v3/apis/batch/v1?hash={}", one.hash);
        assert_eq!(index["paths"]["apis/batch/v1"]["serverRelativeURL"], address);
        assert_eq!(v3(built_in(), &OpenApiDefinitions::new(), "batch", "v9"), None);
    }
}
