//! Objects as the rows of a table: what `kubectl get` shows.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::resource_info::Column;

/// What a row carries beside its cells (`?includeObject=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Include {
    Nothing,
    /// Who the object is; enough to act on it.
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// The words of the query; the empty one means metadata.
    pub fn parse(word: &str) -> Option<Include> {
        match word {
            "None" => Some(Include::Nothing),
            "" | "Metadata" => Some(Include::Metadata),
            "Object" => Some(Include::Object),
            _ => None,
        }
    }
}

/// Whether a table says what its columns are. Only the first of a watch does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heading {
    Shown,
    Omitted,
}

/// A table of objects. `metadata` is that of the list (`resourceVersion`, `continue`, `remainingItemCount`); a table of a
/// single object has the `resourceVersion` of that object.
pub fn table<'a>(
    columns: &[Column],
    heading: Heading,
    metadata: Value,
    objects: impl IntoIterator<Item = &'a Value>,
    include: Include,
    now: Timestamp,
) -> Value {
    let definitions = (heading == Heading::Shown).then(|| definitions(columns));
    let rows: Vec<Value> = objects.into_iter().map(|object| row(columns, object, include, now)).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// A table of one object, as `get` and each event of a watch have it.
pub fn single(
    columns: &[Column],
    heading: Heading,
    object: &Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let metadata = match object["metadata"].get("resourceVersion") {
        Some(version) => json!({ "resourceVersion": version }),
        None => json!({}),
    };
    table(columns, heading, metadata, [object], include, now)
}

/// What a table says about its columns.
pub fn definitions(columns: &[Column]) -> Vec<Value> {
    columns.iter().map(definition).collect()
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// One object in a table.
pub fn row(columns: &[Column], object: &Value, include: Include, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell.fill(object, now)).collect();
    let object = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(object),
        Include::Object => object.clone(),
    };
    json!({ "cells": cells, "object": object })
}

/// The object without anything but its metadata.
pub fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn now() -> Timestamp {
        "2026-11-16T01:00:00Z".parse().unwrap()
    }

    fn deployment() -> Value {
        json!({
            "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": { "name": "web", "resourceVersion": "7", "creationTimestamp": "2026-11-16T00:59:00Z" },
            "spec": {
                "replicas": 3,
                "selector": { "matchLabels": { "app": "web" } },
                "template": { "spec": { "containers": [{ "name": "c", "image": "i:1" }] } },
            },
            "status": { "readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2 },
        })
    }

    #[test]
    fn a_deployment_is_one_line() {
        let row = catalog::find("apps", "v1", "deployments").unwrap();
        let table = single(&row.columns, Heading::Shown, &deployment(), Include::default(), now());
        assert_eq!(table["metadata"], json!({ "resourceVersion": "7" }));
        assert_eq!(table["rows"][0]["cells"], json!(["web", "2/3", 3, 2, "60s", "c", "i:1", "app=web"]));
        let names: Vec<_> = table["columnDefinitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["name"].clone())
            .collect();
        assert_eq!(names[..5], ["Name", "Ready", "Up-to-date", "Available", "Age"]);
        assert_eq!(table["columnDefinitions"][5]["priority"], 1, "wide only");
    }

    #[test]
    fn a_row_carries_as_much_of_the_object_as_was_asked_for() {
        let row = catalog::find("apps", "v1", "deployments").unwrap();
        let object = |include| {
            let table = single(&row.columns, Heading::Omitted, &deployment(), include, now());
            assert_eq!(table["columnDefinitions"], Value::Null);
            table["rows"][0]["object"].clone()
        };
        assert_eq!(object(Include::Nothing), Value::Null);
        assert_eq!(object(Include::Metadata)["kind"], "PartialObjectMetadata");
        assert_eq!(object(Include::Metadata)["spec"], Value::Null);
        assert_eq!(object(Include::Object), deployment());
    }

    #[test]
    fn the_words_of_the_query_are_known() {
        let words = ["None", "Metadata", "", "Object", "everything"].map(Include::parse);
        let expected = [
            Some(Include::Nothing),
            Some(Include::Metadata),
            Some(Include::Metadata),
            Some(Include::Object),
            None,
        ];
        assert_eq!(words, expected);
    }
}
