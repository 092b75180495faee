use std::collections::{BTreeMap, BTreeSet};

use openapi::catalog::built_in;
use openapi::publish::documents;
use openapi::schema::OpenApiDefinitions;
use serde_json::Value;

use crate::server::Server;

const JSON: &str = "application/json";

/// Returns every pair of documents: a path, ours, theirs.
fn pairs(server: &Server) -> Vec<(String, Value, Value)> {
    let versions: BTreeSet<_> = built_in().iter().map(|row| (&*row.group, &*row.version)).collect();
    let index = server.get("/openapi/v3", JSON);
    versions
        .into_iter()
        .map(|(group, version)| {
            let path = documents::path(group, version);
            let ours = documents::v3(built_in(), &OpenApiDefinitions::new(), group, version).unwrap();
            let theirs = server.get(index["paths"][&path]["serverRelativeURL"].as_str().unwrap(), JSON);
            (path, serde_json::from_str(&ours.body).unwrap(), theirs)
        })
        .collect()
}

/// Compares properties, extensions, defaults, enumerations and required fields. Not compared:
/// - descriptions of lists and parameters, which are ours, and the enumeration of values that a server appends to a
///   description (the values themselves are compared);
/// - the order of required fields;
/// - `WatchEvent`, which the crate with our descriptions describes differently.
pub(crate) fn types_differ(server: &Server) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (path, ours, theirs) in pairs(server) {
        compare_types(&path, &ours["components"]["schemas"], &theirs["components"]["schemas"], &mut found);
        for key in ["info", "openapi"] {
            if ours[key] != theirs[key] {
                found.insert(format!("{path}: {key} is {} there {}", ours[key], theirs[key]));
            }
        }
    }
    found.into_iter().collect()
}

pub(crate) fn v2_differs(server: &Server) -> Vec<String> {
    let ours: Value =
        serde_json::from_str(&documents::v2(built_in(), &OpenApiDefinitions::new()).body).unwrap();
    let theirs = server.get("/openapi/v2", JSON);
    let mut found = BTreeSet::new();
    compare_types("v2", &ours["definitions"], &theirs["definitions"], &mut found);
    for key in ["swagger", "info", "security", "securityDefinitions"] {
        if ours[key] != theirs[key] {
            found.insert(format!("v2: {key} is {} there {}", ours[key], theirs[key]));
        }
    }
    found.into_iter().collect()
}

/// Types that only paths outside of API groups use, which we do not describe.
const UNUSED: [&str; 4] = ["APIGroup", "APIGroupList", "APIVersions", "GroupVersionForDiscovery"];

fn compare_types(document: &str, ours: &Value, theirs: &Value, found: &mut BTreeSet<String>) {
    let names =
        |schemas: &Value| -> BTreeSet<String> { schemas.as_object().unwrap().keys().cloned().collect() };
    for name in names(ours).symmetric_difference(&names(theirs)) {
        let short = name.rsplit('.').next().unwrap();
        if !UNUSED.contains(&short) && !matches!(short, "ServerAddressByClientCIDR" | "Info") {
            found.insert(format!("{document}: {name} is only in one"));
        }
    }
    for name in names(ours).intersection(&names(theirs)) {
        if name.ends_with(".WatchEvent") {
            continue;
        }
        let (mut one, mut other) = (comparable(&ours[name], name), comparable(&theirs[name], name));
        // In v2, versions that are not served have it too.
        if document == "v2" && name.ends_with(".DeleteOptions") {
            one["x-kubernetes-group-version-kind"] = Value::Null;
            other["x-kubernetes-group-version-kind"] = Value::Null;
        }
        if one == other {
            continue;
        }
        let mut paths = Vec::new();
        differing("", &one, &other, &mut paths);
        found.extend(paths.into_iter().map(|path| format!("{name}{path}")));
    }
}

/// Returns a definition without the parts that are not compared.
fn comparable(definition: &Value, name: &str) -> Value {
    let mut definition = definition.clone();
    if name.ends_with("List") {
        definition["description"] = Value::Null;
        for field in ["items", "metadata"] {
            if let Some(Value::Object(property)) = definition["properties"].get_mut(field) {
                property.remove("description");
            }
        }
    }
    strip(&mut definition);
    definition
}

fn strip(json: &mut Value) {
    match json {
        Value::Object(entries) => {
            if let Some(Value::String(text)) = entries.get_mut("description")
                && let Some(at) = text.find("\n\nPossible enum values:")
            {
                text.truncate(text[..at].trim_end().len());
            }
            if let Some(Value::Array(required)) = entries.get_mut("required") {
                required.sort_by_key(|field| field.to_string());
            }
            entries.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn differing(path: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
            for key in keys {
                differing(&format!("{path}/{key}"), &one[key], &other[key], found);
            }
        }
        (one, other) if one != other => found.push(format!("{path}: {one} there {other}")),
        _ => {}
    }
}

/// Compares paths and their operations: action, kind, id, parameters, types of bodies and responses. Not compared:
/// - descriptions, which are ours;
/// - `/watch/` paths, which are deprecated and not served;
/// - `shardSelector`, an alpha feature that is off by default;
/// - HEAD and OPTIONS of proxies, which discovery does not list;
/// - whether a parameter belongs to the path or to its only operation.
pub(crate) fn paths_differ(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for (document, ours, theirs) in pairs(server) {
        let (ours, theirs) = (operations(&ours), operations(&theirs));
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let (one, other) = (ours.get(key), theirs.get(key));
            let facts: BTreeSet<_> =
                [one, other].into_iter().flatten().flat_map(|facts| facts.keys()).collect();
            for fact in facts {
                let (one, other) =
                    (one.and_then(|facts| facts.get(fact)), other.and_then(|facts| facts.get(fact)));
                if one != other {
                    found.push(format!("{document}: {key}, {fact}: {one:?} there {other:?}"));
                }
            }
        }
    }
    found
}

type OperationFacts = BTreeMap<String, String>;

fn operations(document: &Value) -> BTreeMap<String, OperationFacts> {
    let mut all = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if path.contains("/watch/") {
            continue;
        }
        for (method, operation) in item.as_object().unwrap() {
            if matches!(method.as_str(), "parameters" | "head" | "options") {
                continue;
            }
            all.insert(format!("{method} {path}"), summary(operation, &item["parameters"]));
        }
    }
    all
}

/// Returns the compared parts of an operation.
fn summary(operation: &Value, shared: &Value) -> OperationFacts {
    let mut facts = OperationFacts::new();
    for key in ["operationId", "tags", "x-kubernetes-action", "x-kubernetes-group-version-kind"] {
        facts.insert(key.to_owned(), operation[key].to_string());
    }
    for parameter in [&operation["parameters"], shared].into_iter().flat_map(|list| list.as_array()).flatten()
    {
        let schema_and_required = format!("{} {}", parameter["schema"]["type"], parameter["required"]);
        facts.insert(format!("parameter {} in {}", parameter["name"], parameter["in"]), schema_and_required);
    }
    facts.remove("parameter \"shardSelector\" in \"query\"");
    let body = &operation["requestBody"];
    let mut types = |of: &str, content: &Value| {
        for (media, schema) in content.as_object().into_iter().flatten() {
            facts.insert(format!("{of} {media}"), schema["schema"].to_string());
        }
    };
    types(&format!("body {}", body["required"]), &body["content"]);
    for (code, answer) in operation["responses"].as_object().unwrap() {
        types(&format!("answer {code}"), &answer["content"]);
    }
    facts
}
