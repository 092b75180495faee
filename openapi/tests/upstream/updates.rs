use openapi::catalog::built_in;
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use serde_json::{Value, json};

use crate::discovery::root;
use crate::server::Server;

/// Compares the effects of an update and a deletion of one object of every kind (dry run) with our table of kinds.
pub(crate) fn differences(server: &Server) -> Vec<String> {
    let mut found = Vec::new();
    for row in built_in().iter().filter(|row| row.allows(Verb::List) && row.allows(Verb::Update)) {
        let list = server.get(&format!("{}/{}", root(row), row.plural), "application/json");
        let Some(object) = list["items"].as_array().and_then(|items| items.last()) else { continue };
        let mut check = |fact: &str, ours: bool, theirs: bool, answer: &Value| {
            if ours != theirs {
                found.push(format!(
                    "{}: {fact} is {ours} there {theirs}: {}",
                    row.qualified(),
                    answer["message"]
                ));
            }
        };
        let (_, answer) = write(server, row, "PUT", object, &without_version(row, object));
        let requires_version =
            answer["message"].as_str().is_some_and(|text| text.contains("must be specified for an update"));
        check("update_needs_version", row.update_needs_version, requires_version, &answer);

        let mut renamed = without_version(row, object);
        renamed["metadata"]["name"] = "another-name".into();
        let (status, answer) = write(server, row, "PUT", &renamed, &renamed);
        check("create_on_update", row.create_on_update, status != 404, &answer);

        let (status, answer) = write(server, row, "DELETE", object, &json!({}));
        // An object that waits for finalizers or orphans is returned as such, whatever its kind.
        let waits = !answer["metadata"]["deletionTimestamp"].is_null();
        if (status == 200 || status == 202) && !waits {
            check("delete_answers_object", row.delete_answers_object, answer["kind"] != "Status", &answer);
        }
    }
    found
}

fn write(server: &Server, row: &ResourceInfo, method: &str, object: &Value, body: &Value) -> (u16, Value) {
    let metadata = &object["metadata"];
    let namespace = match metadata["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let name = metadata["name"].as_str().unwrap();
    let path = format!("{}{namespace}/{}/{name}?dryRun=All", root(row), row.plural);
    let (status, answer) = server.send(method, &path, "application/json", &body.to_string());
    (status, serde_json::from_slice(&answer).unwrap_or_default())
}

fn without_version(row: &ResourceInfo, object: &Value) -> Value {
    let mut object = object.clone();
    object["kind"] = json!(&*row.kind);
    object["apiVersion"] = row.api_version().into();
    for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    object
}
