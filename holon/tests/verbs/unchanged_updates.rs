//! Replacing objects without a change.

use openapi::catalog;
use openapi::codec;
use openapi::codec::Syntax;
use serde_json::{Value, json};
use testkit::Server;

use crate::common::{HOLON, repository};
use crate::wire::WireClient;

/// Returns the objects of the corpus that need no others: built-in kinds, without a namespace of their own.
fn objects() -> Vec<Value> {
    let files = std::fs::read_dir(repository().join("test/corpus")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let texts: Vec<String> = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let documents = texts.iter().flat_map(|text| text.split("\n---"));
    let read = documents.filter_map(|text| codec::decode(text.as_bytes(), Syntax::Yaml).ok());
    read.map(|read| read.value).filter(|object| object["metadata"].get("namespace").is_none()).collect()
}

/// The paths of an object of a built-in kind and of its collection, and whether an update must name a version.
struct ObjectPath {
    path: String,
    collection: String,
    needs_version: bool,
}

fn object_path(object: &Value) -> Option<ObjectPath> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = catalog::find_kind(group, version, object["kind"].as_str()?)?;
    let root = if group.is_empty() { "api" } else { "apis" };
    let namespace = if resource.namespaced { "namespaces/default/" } else { "" };
    let collection = format!("/{root}/{api_version}/{namespace}{}", resource.plural);
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str()?);
    Some(ObjectPath { path, collection, needs_version: resource.update_needs_version })
}

/// C-12. Controllers write the desired state over and over; if each write counted as a change, it would wake all
/// watches.
#[test]
fn replacing_an_object_by_itself_changes_nothing() {
    let server = Server::start(HOLON);
    let client = WireClient::new(&server);
    let mut compared = 0;
    for mut object in objects() {
        let Some(object_path) = object_path(&object) else { continue };
        // Some refer to objects that do not exist, or have the name of another one.
        if client.ask("POST", &object_path.collection, &object).code != 201 {
            continue;
        }
        // An empty map of labels equals no labels.
        if object["metadata"]["labels"].is_null() {
            object["metadata"]["labels"] = json!({});
        }
        replace(&client, &object_path, &object);
        let version = replace(&client, &object_path, &object);
        assert_eq!(
            replace(&client, &object_path, &object),
            version,
            "{} changes each time",
            object_path.path
        );
        compared += 1;
    }
    assert!(compared > 60, "only {compared} objects");
}

/// Replaces an object and returns its version. If its manifest cannot replace it, as with a Job, uses the object in the
/// server's response instead.
fn replace(client: &WireClient, object_path: &ObjectPath, object: &Value) -> Value {
    let mut object = object.clone();
    let current = client.get(&object_path.path).json();
    if object_path.needs_version {
        object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    }
    let answer = client.ask("PUT", &object_path.path, &object);
    let answer = if answer.code == 422 { client.ask("PUT", &object_path.path, &current) } else { answer };
    assert_eq!(answer.code, 200, "{}: {}", object_path.path, answer.text());
    answer.json()["metadata"]["resourceVersion"].clone()
}
