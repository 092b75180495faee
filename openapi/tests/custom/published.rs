//! The published documents about custom kinds, compared with those of a real server.

use std::sync::Arc;

use openapi::catalog::resource_info::ResourceInfo;
use openapi::crd::CustomKind;
use openapi::publish::discovery::ApiRoot;
use openapi::publish::tables;
use openapi::publish::tables::IncludeObject;
use openapi::publish::{discovery, documents};
use openapi::schema::OpenApiDefinitions;
use openapi::{catalog, conversion, defaulting};
use serde_json::Value;

use crate::bases;
use crate::ours;
use crate::record::Record;

fn rows(record: &Record) -> (Vec<Arc<ResourceInfo>>, OpenApiDefinitions) {
    let kinds = ["samples", "pairs"].map(|name| CustomKind::of(&record.stored[name]));
    let rows = kinds.iter().flat_map(|kind| kind.resources.clone()).collect();
    let definitions = kinds.into_iter().flat_map(|kind| kind.definitions).collect();
    (rows, definitions)
}

fn definitions_of_the_test(definitions: &Value) -> Value {
    let named = definitions.as_object().into_iter().flatten();
    named
        .filter(|(name, _)| name.starts_with("com.example"))
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

#[test]
fn documents_equal_those_of_a_real_server() {
    let record = Record::read();
    let (rows, definitions) = rows(&record);
    let v2: Value = serde_json::from_str(&documents::v2(&rows, &definitions).body).expect("JSON");
    assert_same("/openapi/v2", &definitions_of_the_test(&v2["definitions"]), &record);
    for version in ["v1", "v1beta1"] {
        let v3 =
            documents::v3(&rows, &definitions, "test.example.com", version).expect("the version is served");
        let v3: Value = serde_json::from_str(&v3.body).expect("JSON");
        let path = format!("/openapi/v3/apis/test.example.com/{version}");
        assert_same(&path, &definitions_of_the_test(&v3["components"]["schemas"]), &record);
    }
}

fn assert_same(path: &str, ours: &Value, record: &Record) {
    let theirs = &record.served[path];
    for (name, theirs) in theirs.as_object().expect("definitions by name") {
        assert_eq!(&ours[name], theirs, "{name} of {path}");
    }
    assert_eq!(ours.as_object().map(|them| them.len()), theirs.as_object().map(|them| them.len()), "{path}");
}

#[test]
fn discovery_equals_that_of_a_real_server() {
    let record = Record::read();
    let (rows, _) = rows(&record);
    let group = discovery::group(&rows, "test.example.com").expect("the version is served");
    assert_eq!(group, record.served["/apis/test.example.com"]);
    let by_name = |list: &mut Value, name: &str| {
        list.as_array_mut().expect("a list").sort_by_key(|resource| resource[name].to_string());
    };
    let mut ours = discovery::aggregated(&rows, ApiRoot::Groups)["items"][0].take();
    let mut theirs = record.served["aggregated"].clone();
    theirs["metadata"].as_object_mut().expect("metadata").remove("creationTimestamp");
    for group in [&mut ours, &mut theirs] {
        for version in group["versions"].as_array_mut().expect("versions") {
            by_name(&mut version["resources"], "resource");
        }
    }
    assert_eq!(ours, theirs);
    for version in ["v1", "v1beta1"] {
        let mut ours =
            discovery::resource_list(&rows, "test.example.com", version).expect("the version is served");
        let mut theirs = record.served[&format!("/apis/test.example.com/{version}")].clone();
        // The order of kinds is not defined.
        for list in [&mut ours, &mut theirs] {
            by_name(&mut list["resources"], "name");
        }
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_definition_is_defaulted_as_by_a_real_server() {
    let record = Record::read();
    let row = catalog::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("built in");
    for (name, definition) in bases().definitions {
        let theirs = &record.stored[&name];
        let mut ours = definition.clone();
        defaulting::apply_defaults(row, &mut ours);
        defaulting::prepare_create(row, &mut ours, jiff::Timestamp::now());
        assert_eq!(ours["spec"], theirs["spec"]);
        assert_eq!(ours["status"]["storedVersions"], theirs["status"]["storedVersions"]);
        assert_eq!(ours["status"]["conditions"], Value::Null);
        let mut second = theirs.clone();
        defaulting::apply_defaults(row, &mut second);
        assert_eq!(&second, theirs);
    }
}

/// Cells are computed from the object in each row, and compared with the cells in the row. Of ages only their presence
/// is compared, because they change.
#[test]
fn tables_equal_those_of_a_real_server() {
    let record = Record::read();
    for (kind, version) in [("samples", "v1"), ("pairs", "v1")] {
        let rows = CustomKind::of(&record.stored[kind]).resources;
        let row = rows.iter().find(|row| &*row.version == version).expect("the version is served");
        let theirs = &record.served[kind];
        assert_eq!(Value::from(tables::definitions(&row.columns)), theirs["columnDefinitions"]);
        let their_rows = theirs["rows"].as_array().expect("rows");
        assert_eq!(their_rows.len(), 2, "{their_rows:?}");
        for their_row in their_rows {
            let object = &their_row["object"];
            let ours = tables::row(&row.columns, object, IncludeObject::Nothing, jiff::Timestamp::now());
            for (index, column) in row.columns.iter().enumerate() {
                let (ours, theirs) = (&ours["cells"][index], &their_row["cells"][index]);
                match &*column.kind {
                    "date" => assert_eq!(ours.is_string(), theirs.is_string(), "{} of {object}", column.name),
                    _ => assert_eq!(ours, theirs, "{} of {object}", column.name),
                }
            }
        }
    }
}

#[test]
fn objects_written_in_one_version_are_read_in_another() {
    let record = Record::read();
    for (name, path) in [
        ("pair", "/apis/test.example.com/v1beta1/pairs/pair"),
        ("oldPair", "/apis/test.example.com/v1/pairs/oldpair"),
    ] {
        let (written, theirs) = (&record.stored[name], &record.served[path]);
        let (writer, reader) = (ours::row(written, &record, ""), ours::row(theirs, &record, ""));
        let stored = conversion::to_stored(&writer, written.clone());
        assert_eq!(
            stored["apiVersion"], "test.example.com/v1beta1",
            "the stored object is the converted one"
        );
        assert_eq!(&conversion::from_stored(&reader, stored.clone()), theirs, "{path}");
        assert!(!reader.reads_as_stored("test.example.com/v1beta1", 0));
        // Read in its stored version under the schema with which it was stored, an object is unchanged.
        let kind = CustomKind::of(&record.stored["pairs"]);
        let hash = kind.stored.custom.as_ref().expect("the object comes from a definition").schema_hash;
        assert!(kind.stored.reads_as_stored("test.example.com/v1beta1", hash));
        let mut second = conversion::from_stored(&kind.stored, stored);
        assert!(!openapi::conversion::custom::from_stored(&kind.stored, &mut second));
    }
}
