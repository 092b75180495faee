//! Makes resources, schemas and OpenAPI definitions from a custom resource definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::versions;
use api::meta::pointer;

use crate::catalog::printer::{ColumnType, PrinterCell};
use crate::catalog::resource_info::{
    CustomResourceInfo, Generation, PrinterColumn, ResourceInfo, ScalePaths, SelectableField, Subresource,
    Verb, api_version,
};
use crate::crd::openapi;
use crate::meta::jsonpath::JsonPath;
use crate::schema::OpenApiDefinitions;
use crate::schema::Origin;
use crate::schema::parse;
use crate::schema::{Schema, SchemaRef};

/// A custom kind, ready to be served. It is built from an accepted definition; equal definitions give equal kinds.
#[derive(Clone, Debug)]
pub struct CustomKind {
    /// One per served version, in the order of discovery.
    pub resources: Vec<Arc<ResourceInfo>>,
    /// The storage version, served or not.
    pub stored: Arc<ResourceInfo>,
    /// The OpenAPI definitions of all served versions.
    pub definitions: OpenApiDefinitions,
}

/// In the order discovery lists them for custom kinds.
const VERBS: [Verb; 8] = [
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Create,
    Verb::Update,
    Verb::Watch,
];

impl CustomKind {
    /// Builds the kind of a definition. A definition that was never accepted gives a result too, but not a useful one.
    pub fn of(definition: &Value) -> CustomKind {
        let spec = &definition["spec"];
        let mut versions: Vec<&Value> = items(&spec["versions"]).collect();
        let schemas = versions.iter().map(|version| (text(&version["name"]).into(), schema(version)));
        let schemas = Arc::new(schemas.collect());
        let maker =
            CustomKindBuilder { spec, names: names(definition), stored: stored_version(spec), schemas };
        versions.sort_by(|left, right| versions::order(text(&left["name"]), text(&right["name"])));
        let rows: Vec<_> =
            versions.into_iter().map(|version| (version, Arc::new(maker.resource_info(version)))).collect();
        let stored = rows.iter().find(|(version, _)| version["storage"] == true).map(|(_, row)| row.clone());
        let served = rows.into_iter().filter(|(version, _)| version["served"] == true);
        let (mut made, mut definitions) = (Vec::new(), OpenApiDefinitions::new());
        for (version, row) in served {
            definitions.extend(openapi::definitions(&row, version));
            made.push(row);
        }
        let stored = stored.unwrap_or_else(|| Arc::new(maker.resource_info(maker.stored)));
        CustomKind { resources: made, stored, definitions }
    }

    /// Returns the part of a definition that determines its kind: definitions with equal parts define the same kind.
    pub fn source(definition: &Value) -> Value {
        json!({ "spec": definition["spec"], "names": names(definition) })
    }
}

/// Returns the accepted names, or the requested names if none are accepted yet.
fn names(definition: &Value) -> &Value {
    let accepted = &definition["status"]["acceptedNames"];
    if text(&accepted["plural"]).is_empty() { &definition["spec"]["names"] } else { accepted }
}

fn stored_version(spec: &Value) -> &Value {
    items(&spec["versions"]).find(|version| version["storage"] == true).unwrap_or(&Value::Null)
}

/// Returns the schema of one version.
fn schema(version: &Value) -> SchemaRef {
    let no_references = |_: &str| Arc::new(Schema::default());
    let mut schema = parse::schema(source(version), Origin::Custom, &mut { no_references });
    if !matches!(schema.shape, crate::schema::Shape::Object(_)) {
        schema.shape = crate::schema::Shape::Object(Default::default());
    }
    parse::embed(&mut schema);
    Arc::new(schema)
}

fn source(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

struct CustomKindBuilder<'d> {
    spec: &'d Value,
    names: &'d Value,
    stored: &'d Value,
    schemas: Arc<BTreeMap<Arc<str>, SchemaRef>>,
}

impl CustomKindBuilder<'_> {
    fn resource_info(&self, version: &Value) -> ResourceInfo {
        let (group, name) = (text(&self.spec["group"]), text(&version["name"]));
        let kind: Arc<str> = text(&self.names["kind"]).into();
        let is_stored = version["storage"] == true;
        let status = version["subresources"].get("status").is_some();
        let namespaced = self.spec["scope"] == "Namespaced";
        ResourceInfo {
            origin: Origin::Custom,
            group: group.into(),
            version: name.into(),
            list_kind: text(&self.names["listKind"]).into(),
            plural: text(&self.names["plural"]).into(),
            singular: text(&self.names["singular"]).into(),
            namespaced,
            short_names: texts(&self.names["shortNames"]),
            categories: texts(&self.names["categories"]),
            verbs: VERBS.to_vec(),
            subresources: subresources(version, &kind),
            columns: columns(version),
            selectable: selectable(version, namespaced),
            generation: Generation::Outside {
                parts: if status {
                    vec!["metadata".into(), "status".into()]
                } else {
                    vec!["metadata".into()]
                },
            },
            create_on_update: false,
            update_needs_version: true,
            delete_answers_object: false,
            type_name: openapi::type_name(group, name, &kind).into(),
            schema: self.schemas.get(name).cloned(),
            custom: Some(Arc::new(CustomResourceInfo {
                warning: self.warning(version).map(Arc::from),
                scale: scale(version),
                versions: self.schemas.clone(),
                schema_hash: xxhash_rust::xxh3::xxh3_128(source(version).to_string().as_bytes()),
            })),
            stored_as: (!is_stored).then(|| (group.into(), text(&self.stored["name"]).into())),
            storage_version_hash: self.storage_version_hash().map(Arc::from),
            kind,
        }
    }

    /// Returns the hash of the storage version if that version is served.
    fn storage_version_hash(&self) -> Option<String> {
        if self.stored["served"] != true {
            return None;
        }
        let (group, version) = (text(&self.spec["group"]), text(&self.stored["name"]));
        let named = format!("{}/{}", api_version(group, version), text(&self.spec["names"]["kind"]));
        let hash = ring::digest::digest(&ring::digest::SHA256, named.as_bytes());
        use base64::Engine;
        Some(base64::engine::general_purpose::STANDARD.encode(&hash.as_ref()[..8]))
    }

    /// Returns the deprecation warning of a version: the definition's text, or a default.
    fn warning(&self, version: &Value) -> Option<String> {
        if version["deprecated"] != true {
            return None;
        }
        if let Some(warning) = version["deprecationWarning"].as_str() {
            return Some(warning.to_owned());
        }
        let (group, name) = (text(&self.spec["group"]), text(&version["name"]));
        let kind = text(&self.spec["names"]["kind"]);
        let usable = items(&self.spec["versions"])
            .filter(|other| other["served"] == true && other["deprecated"] != true);
        let newer =
            usable.map(|other| text(&other["name"])).filter(|other| versions::order(other, name).is_lt());
        let gone = format!("{} {kind} is deprecated", api_version(group, name));
        Some(match newer.min_by(|left, right| versions::order(left, right)) {
            Some(newest) => format!("{gone}; use {} {kind}", api_version(group, newest)),
            None => gone,
        })
    }
}

fn subresources(version: &Value, kind: &Arc<str>) -> Vec<Subresource> {
    let verbs = vec![Verb::Get, Verb::Patch, Verb::Update];
    let has = |name: &str| version["subresources"].get(name).is_some();
    let status = has("status").then(|| Subresource {
        name: "status".into(),
        kind: kind.clone(),
        foreign: None,
        verbs: verbs.clone(),
    });
    let scale = has("scale").then(|| Subresource {
        name: "scale".into(),
        kind: "Scale".into(),
        foreign: Some(("autoscaling".into(), "v1".into())),
        verbs: verbs.clone(),
    });
    status.into_iter().chain(scale).collect()
}

fn scale(version: &Value) -> Option<ScalePaths> {
    let scale = version["subresources"].get("scale")?;
    let at = |name: &str| pointer(text(&scale[name]));
    Some(ScalePaths {
        replicas: at("specReplicasPath"),
        replicas_now: at("statusReplicasPath"),
        selector: scale["labelSelectorPath"].as_str().filter(|path| !path.is_empty()).map(pointer),
    })
}

/// Converts a path such as `.spec.replicas` to a JSON pointer.
fn pointer(path: &str) -> Arc<str> {
    let steps = path.strip_prefix('.').unwrap_or(path).split('.');
    steps.map(|step| format!("/{}", pointer::escape(step))).collect::<String>().into()
}

/// Returns the name column, then the columns of the definition, or the age if it has none. The first column with an
/// invalid path or type ends the list.
fn columns(version: &Value) -> Vec<PrinterColumn> {
    let described = |field: &str| openapi::metadata_description(field).into();
    let column =
        |name: &str, kind: &str, format: &str, description: Arc<str>, cell: PrinterCell| PrinterColumn {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            description,
            priority: 0,
            cell,
        };
    let name = PrinterCell::Text("/metadata/name".into(), "".into());
    let mut columns = vec![column("Name", "string", "name", described("name"), name)];
    let listed: Vec<&Value> = items(&version["additionalPrinterColumns"]).collect();
    if listed.is_empty() {
        let age = JsonPath::parse(".metadata.creationTimestamp").expect("a path");
        let cell = PrinterCell::Path(Arc::new(age), ColumnType::Date);
        columns.push(column("Age", "date", "", described("creationTimestamp"), cell));
    }
    for listed in listed {
        let (path, kind) = (text(&listed["jsonPath"]), text(&listed["type"]));
        let (Ok(parsed), Some(printed)) = (JsonPath::parse(path), ColumnType::parse(kind)) else { break };
        let description = match text(&listed["description"]) {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            name => name.to_owned(),
        };
        let cell = PrinterCell::Path(Arc::new(parsed), printed);
        columns.push(PrinterColumn {
            priority: listed["priority"].as_i64().unwrap_or_default() as i32,
            ..column(text(&listed["name"]), kind, text(&listed["format"]), description.into(), cell)
        });
    }
    columns
}

fn selectable(version: &Value, namespaced: bool) -> Vec<SelectableField> {
    let field = |label: &str| SelectableField {
        label: label.into(),
        pointers: vec![pointer(label)],
        absent: "".into(),
    };
    let mut fields = vec![field("metadata.name")];
    if namespaced {
        fields.push(field("metadata.namespace"));
    }
    let declared = items(&version["selectableFields"]).map(|declared| text(&declared["jsonPath"]));
    fields.extend(declared.map(|path| field(path.strip_prefix('.').unwrap_or(path))));
    fields
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(list: &Value) -> Vec<Arc<str>> {
    items(list).filter_map(Value::as_str).map(Arc::from).collect()
}
