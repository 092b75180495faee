//! Objects as rows of a Table, which `kubectl get` prints.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalog::resource_info::PrinterColumn;

/// The object in a row, besides its cells (`?includeObject=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IncludeObject {
    Nothing,
    /// Only the metadata, which is enough to identify the object.
    #[default]
    Metadata,
    Object,
}

impl IncludeObject {
    /// Parses the query parameter; the empty value means metadata.
    pub fn parse(word: &str) -> Option<IncludeObject> {
        match word {
            "None" => Some(IncludeObject::Nothing),
            "" | "Metadata" => Some(IncludeObject::Metadata),
            "Object" => Some(IncludeObject::Object),
            _ => None,
        }
    }
}

/// Whether a Table contains its column definitions. In a watch only the first event does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnDefinitions {
    Shown,
    Omitted,
}

/// Returns a Table of objects. `metadata` is that of the list (`resourceVersion`, `continue`, `remainingItemCount`); a
/// Table of a single object has the `resourceVersion` of that object.
pub fn table<'a>(
    columns: &[PrinterColumn],
    heading: ColumnDefinitions,
    metadata: Value,
    objects: impl IntoIterator<Item = &'a Value>,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let definitions = (heading == ColumnDefinitions::Shown).then(|| definitions(columns));
    let rows: Vec<Value> = objects.into_iter().map(|object| row(columns, object, include, now)).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// Returns a Table of one object, for a get or one event of a watch.
pub fn single_object_table(
    columns: &[PrinterColumn],
    heading: ColumnDefinitions,
    object: &Value,
    include: IncludeObject,
    now: Timestamp,
) -> Value {
    let metadata = match object["metadata"].get("resourceVersion") {
        Some(version) => json!({ "resourceVersion": version }),
        None => json!({}),
    };
    table(columns, heading, metadata, [object], include, now)
}

/// Returns the column definitions of a Table.
pub fn definitions(columns: &[PrinterColumn]) -> Vec<Value> {
    columns.iter().map(definition).collect()
}

fn definition(column: &PrinterColumn) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

/// Returns the row of one object.
pub fn row(columns: &[PrinterColumn], object: &Value, include: IncludeObject, now: Timestamp) -> Value {
    let cells: Vec<Value> = columns.iter().map(|column| column.cell.fill(object, now)).collect();
    let object = match include {
        IncludeObject::Nothing => Value::Null,
        IncludeObject::Metadata => partial_object_metadata(object),
        IncludeObject::Object => object.clone(),
    };
    json!({ "cells": cells, "object": object })
}

/// Returns the object reduced to its metadata.
pub fn partial_object_metadata(object: &Value) -> Value {
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
        let table = single_object_table(
            &row.columns,
            ColumnDefinitions::Shown,
            &deployment(),
            IncludeObject::default(),
            now(),
        );
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
    fn a_row_has_the_requested_form_of_the_object() {
        let row = catalog::find("apps", "v1", "deployments").unwrap();
        let object = |include| {
            let table =
                single_object_table(&row.columns, ColumnDefinitions::Omitted, &deployment(), include, now());
            assert_eq!(table["columnDefinitions"], Value::Null);
            table["rows"][0]["object"].clone()
        };
        assert_eq!(object(IncludeObject::Nothing), Value::Null);
        assert_eq!(object(IncludeObject::Metadata)["kind"], "PartialObjectMetadata");
        assert_eq!(object(IncludeObject::Metadata)["spec"], Value::Null);
        assert_eq!(object(IncludeObject::Object), deployment());
    }

    #[test]
    fn include_object_is_parsed() {
        let words = ["None", "Metadata", "", "Object", "everything"].map(IncludeObject::parse);
        let expected = [
            Some(IncludeObject::Nothing),
            Some(IncludeObject::Metadata),
            Some(IncludeObject::Metadata),
            Some(IncludeObject::Object),
            None,
        ];
        assert_eq!(words, expected);
    }
}
