//! The built-in resources, in the order discovery lists them.
//!
//! ```text
//! resources.json (hack/facts: what a kube-apiserver serves)        ──┐
//! strategies.rs  (ours: generations, selectable fields, updates)   ──┼──► built_in()
//! columns        (ours: the value of each table cell)              ──┘
//! ```
//!
//! A kind is added by adding data. The result is the same for every client and every logical cluster.

mod columns;
pub mod printer;
pub mod resource_info;
mod strategies;

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::catalog::printer::PrinterCell;
use crate::catalog::resource_info::{PrinterColumn, ResourceInfo, SelectableField, Subresource, Verb};
use crate::schema::Origin;
use crate::schema::builtin;

static RESOURCES: LazyLock<Vec<Arc<ResourceInfo>>> = LazyLock::new(load);

/// Returns every built-in resource: groups in order of priority, the preferred version of each first.
pub fn built_in() -> &'static [Arc<ResourceInfo>] {
    &RESOURCES
}

/// Returns the built-in resource with these path segments. The core group is `""`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Arc<ResourceInfo>> {
    built_in().iter().find(|row| &*row.group == group && &*row.version == version && &*row.plural == plural)
}

/// Returns the built-in resource with objects of this kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Arc<ResourceInfo>> {
    built_in().iter().find(|row| &*row.group == group && &*row.version == version && &*row.kind == kind)
}

/// Returns the columns of the `scale` subresource, which is an object of a kind of its own and has no [`ResourceInfo`].
pub fn scale_columns() -> &'static [PrinterColumn] {
    static COLUMNS: LazyLock<Vec<PrinterColumn>> = LazyLock::new(|| {
        let facts = r#"[
            ["Name", "string", "", 0], ["Desired", "integer", "", 0],
            ["Available", "integer", "", 0], ["Age", "string", "", 0]
        ]"#;
        let facts: Value = serde_json::from_str(facts).expect("the text above is JSON");
        items(&facts).map(|facts| column("scale", facts)).collect()
    });
    &COLUMNS
}

fn load() -> Vec<Arc<ResourceInfo>> {
    let table: Value = serde_json::from_str(include_str!("resources.json")).expect("hack/facts writes JSON");
    let mut resources = Vec::new();
    for group_version in items(&table) {
        let (group, version) = (text(&group_version["group"]), text(&group_version["version"]));
        for resource in items(&group_version["resources"]) {
            resources.push(Arc::new(resource_info(&group, &version, resource)));
        }
    }
    resources
}

fn resource_info(group: &Arc<str>, version: &Arc<str>, facts: &Value) -> ResourceInfo {
    let kind = text(&facts["kind"]);
    let plural = text(&facts["resource"]);
    let namespaced = facts["namespaced"] == true;
    let type_name = builtin::type_name(group, version, &kind).unwrap_or_default().into();
    let mut info = ResourceInfo {
        origin: Origin::BuiltIn,
        list_kind: format!("{kind}List").into(),
        singular: text(&facts["singular"]),
        short_names: texts(&facts["short"]),
        categories: texts(&facts["categories"]),
        verbs: verbs(&facts["verbs"]),
        subresources: items(&facts["subresources"]).map(subresource).collect(),
        columns: Vec::new(),
        selectable: Vec::new(),
        generation: Default::default(),
        create_on_update: false,
        update_needs_version: false,
        delete_answers_object: false,
        stored_as: facts.get("stored").map(|stored| (text(&stored["group"]), text(&stored["version"]))),
        storage_version_hash: facts["hash"].as_str().map(Arc::from),
        group: group.clone(),
        version: version.clone(),
        kind,
        plural,
        namespaced,
        type_name,
        schema: None,
        custom: None,
    };
    let key = info.qualified();
    info.columns = items(&facts["columns"]).map(|column| self::column(&key, column)).collect();
    info.generation = strategies::generation(&key);
    info.create_on_update = strategies::CREATE_ON_UPDATE.contains(&&*key);
    info.update_needs_version = strategies::UPDATE_NEEDS_VERSION.contains(&&*key);
    info.delete_answers_object = strategies::DELETE_ANSWERS_OBJECT.contains(&&*key);
    info.selectable = selectable(&key, namespaced);
    info
}

fn subresource(facts: &Value) -> Subresource {
    Subresource {
        name: text(&facts["name"]),
        kind: text(&facts["kind"]),
        foreign: facts.get("version").map(|version| (text(&facts["group"]), text(version))),
        verbs: verbs(&facts["verbs"]),
    }
}

/// Converts a column of `resources.json`: `[name, type, format, priority]`.
fn column(key: &str, facts: &Value) -> PrinterColumn {
    let name = text(&facts[0]);
    PrinterColumn {
        cell: columns::cell(key, &name).unwrap_or(PrinterCell::Blank),
        kind: text(&facts[1]),
        format: text(&facts[2]),
        description: "".into(),
        priority: facts[3].as_i64().map_or(0, |priority| priority as i32),
        name,
    }
}

/// Returns the selectable fields of a resource. `metadata.name` is always one. `metadata.namespace` is one for
/// namespaced kinds and, as in Kubernetes, for cluster-scoped kinds without selectable fields of their own.
fn selectable(key: &str, namespaced: bool) -> Vec<SelectableField> {
    let selectable = strategies::selectable(key);
    let mut all = vec![strategies::field("metadata.name")];
    if namespaced || selectable.is_empty() {
        all.push(strategies::field("metadata.namespace"));
    }
    all.extend(selectable);
    all
}

fn verbs(words: &Value) -> Vec<Verb> {
    texts(words).iter().map(|word| Verb::parse(word).expect("hack/facts writes verbs")).collect()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Arc<str> {
    value.as_str().expect("hack/facts writes a text here").into()
}

fn texts(list: &Value) -> Vec<Arc<str>> {
    items(list).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::resource_info::Generation;

    fn keys() -> Vec<String> {
        built_in().iter().map(|row| row.qualified()).collect()
    }

    #[test]
    fn every_rule_is_about_a_resource_that_exists() {
        let keys = keys();
        let unknown: Vec<_> = strategies::mentioned()
            .chain(columns::mentioned())
            .filter(|key| !keys.iter().any(|k| k == key))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn every_resource_has_a_type_and_every_column_a_cell() {
        let mut wrong = Vec::new();
        for row in built_in() {
            if builtin::schema(&row.type_name).is_none() {
                wrong.push(format!("{} {}: no type", row.api_version(), row.kind));
            }
            let blank = row.columns.iter().filter(|column| matches!(column.cell, PrinterCell::Blank));
            wrong.extend(blank.map(|column| format!("{}: nothing fills {}", row.qualified(), column.name)));
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn the_description_of_a_deployment_is_complete() {
        let row = find("apps", "v1", "deployments").unwrap();
        assert_eq!(
            (&*row.kind, &*row.list_kind, &*row.singular),
            ("Deployment", "DeploymentList", "deployment")
        );
        assert_eq!(row.short_names, ["deploy".into()]);
        assert_eq!(row.categories, ["all".into()]);
        assert_eq!(row.verbs, Verb::ALL);
        assert!(row.namespaced && row.has_status() && row.has_scale());
        let foreign = row.subresource("scale").unwrap().foreign.clone().unwrap();
        assert_eq!((&*foreign.0, &*foreign.1), ("autoscaling", "v1"));
        assert_eq!(&*row.type_name, "io.k8s.api.apps.v1.Deployment");
        let annotations =
            Generation::Within { first: 1, parts: vec!["/spec".into(), "/metadata/annotations".into()] };
        assert_eq!(row.generation, annotations);
    }

    #[test]
    fn some_objects_are_seen_through_two_resources() {
        let shared = built_in().iter().filter_map(|row| Some((row, row.stored_as.as_ref()?)));
        let shared: Vec<_> = shared
            .map(|(row, (group, version))| {
                assert!(find(group, version, &row.plural).is_some_and(|stored| stored.stored_as.is_none()));
                format!("{} of {} as {group}/{version}", row.plural, row.api_version())
            })
            .collect();
        let expected = [
            "events of events.k8s.io/v1 as /v1",
            "horizontalpodautoscalers of autoscaling/v1 as autoscaling/v2",
        ];
        assert_eq!(shared, expected);
    }

    #[test]
    fn groups_come_in_order_and_the_preferred_version_first() {
        let first = built_in().iter().find(|row| &*row.group == "autoscaling").unwrap();
        assert_eq!(&*first.version, "v2");
        assert_eq!(&*built_in()[0].group, "");
    }
}
