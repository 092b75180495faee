//! Validation of custom resource definitions, with the texts of a Kubernetes API server.
//!
//! ```text
//! spec ── names, versions, conversion
//!   └─ per version ── columns, subresources, selectable fields
//!        └─ schema ── structural: can it prune?   defaults: do they fit it?   openapi: what is not supported
//! ```
//!
//! The internal form of a definition in Kubernetes has one schema, one list of columns and one of subresources if all
//! versions agree on them. Error texts name fields of that form: for a definition with one version,
//! `spec.validation.openAPIV3Schema`. Errors here do the same ([`SharedProperties`]).

mod approval;
mod budget;
mod columns;
mod conversion;
mod defaults;
mod names;
mod openapi;
mod props;
mod schema;
mod stored;
mod structural;

use std::collections::HashSet;

use serde_json::Value;

use api::meta::field::FieldError;
use api::meta::names::{dns1035_label, dns1123_subdomain};

use crate::validation::structural::formats;

const IMMUTABLE: &str = "field is immutable";
/// Maximum number of errors for one definition. Further ones would not be read, and each path may be as long as the
/// definition.
const FAULTS_MAX: usize = 100;
/// Maximum number of versions of one kind. Each is a resource to serve, with columns and documents of its own.
const VERSIONS_MAX: usize = 100;

/// Returns the errors of a new definition, apart from those of its metadata.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let name = text(&definition["metadata"]["name"]);
    let spec = &definition["spec"];
    let required = format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"]));
    if !name.is_empty() && name != required {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        found.push(FieldError::invalid("metadata.name", name, detail));
    }
    validate_spec(spec, &mut found);
    validate_rest(None, definition, &mut found);
    found
}

/// Returns the errors of an updated definition: those of a new one, and changes to immutable fields.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    let (before, after) = (&old["spec"], &new["spec"]);
    validate_spec(after, &mut found);
    let fixed: &[&str] = match is_established(old) {
        true => &["/scope", "/names/kind", "/group", "/names/plural"],
        false => &["/group", "/names/plural"],
    };
    for pointer in fixed {
        let (was, is) = (before.pointer(pointer), after.pointer(pointer));
        if was != is {
            let field = format!("spec{}", pointer.replace('/', "."));
            found.push(FieldError::invalid(field, is.cloned().unwrap_or_default(), IMMUTABLE));
        }
    }
    validate_rest(Some(old), new, &mut found);
    found
}

/// Returns the errors of an updated status of a definition.
pub fn validate_status(_old: &Value, new: &Value) -> Vec<FieldError> {
    let mut found = Vec::new();
    names::validate(&new["status"]["acceptedNames"], "status.acceptedNames", &mut found);
    found
}

/// Returns warnings about a definition: new formats that are not validated, and CEL rules that are only stored.
pub fn definition_warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let old_formats = old.map(unknown_formats).unwrap_or_default();
    let new_formats = unknown_formats(new).into_iter().filter(|format| !old_formats.contains(format));
    let mut warnings: Vec<String> =
        new_formats.map(|format| format!("unrecognized format {}", api::meta::go::quote(&format))).collect();
    if schemas(new)
        .any(|schema| props::any(schema, &|node| !node.list("x-kubernetes-validations").is_empty()))
    {
        warnings
            .push("x-kubernetes-validations: rules are stored and published, but not evaluated".to_owned());
    }
    warnings
}

fn unknown_formats(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for schema in schemas(definition) {
        props::each(schema, &mut |node| {
            let format = node.text("format");
            let is_known = match node.kind() {
                "" | "string" => formats::is_known(format),
                "integer" => matches!(format, "int32" | "int64"),
                "number" => matches!(format, "float" | "double"),
                _ => false,
            };
            if !format.is_empty() && !is_known {
                found.push(format.to_owned());
            }
        });
    }
    found
}

fn schemas(definition: &Value) -> impl Iterator<Item = &Value> {
    items(&definition["spec"]["versions"]).map(|version| &version["schema"]["openAPIV3Schema"])
}

fn is_established(definition: &Value) -> bool {
    let conditions = items(&definition["status"]["conditions"]);
    conditions.into_iter().any(|one| one["type"] == "Established" && one["status"] == "True")
}

/// Which properties all versions have in common, and are therefore validated once.
struct SharedProperties {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

impl SharedProperties {
    fn of(versions: &[Value]) -> SharedProperties {
        let same = |field: &str| {
            let nothing = |value: Option<&Value>| {
                value.is_none_or(|value| value.is_null() || value.as_array().is_some_and(Vec::is_empty))
            };
            versions.windows(2).all(|two| {
                let (left, right) = (two[0].get(field), two[1].get(field));
                left == right || nothing(left) && nothing(right)
            })
        };
        SharedProperties {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

fn validate_spec(spec: &Value, found: &mut Vec<FieldError>) {
    validate_group(text(&spec["group"]), found);
    match text(&spec["scope"]) {
        "" => found.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => found.push(FieldError::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.len() > VERSIONS_MAX {
        return found.push(FieldError::too_many("spec.versions", versions.len(), VERSIONS_MAX));
    }
    let shared = SharedProperties::of(versions);
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            found.push(FieldError::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    let has_default = |schema: &Value| props::any(schema, &|node| node.has("default"));
    if spec["preserveUnknownFields"] == true
        && versions.iter().any(|version| has_default(&version["schema"]["openAPIV3Schema"]))
    {
        let detail = "must be false in order to use defaults in the schema";
        found.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
    let mut cost = budget::Budget::default();
    for (index, version) in versions.iter().enumerate() {
        validate_version(version, &shared, &format!("spec.versions[{index}]"), &mut cost, found);
    }
    validate_version_list(versions, found);
    for field in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][field]).is_empty() {
            found.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    names::validate(&spec["names"], "spec.names", found);
    if let Some(first) = versions.first() {
        validate_shared(first, versions, &shared, &mut cost, found);
    }
    conversion::validate(&spec["conversion"], versions.len(), found);
    found.truncate(FAULTS_MAX);
}

fn validate_group(group: &str, found: &mut Vec<FieldError>) {
    let faults = dns1123_subdomain(group);
    if group.is_empty() {
        found.push(FieldError::required("spec.group", ""));
    } else if !faults.is_empty() {
        found.push(FieldError::invalid("spec.group", group, faults.join(",")));
    } else if !group.contains('.') {
        found.push(FieldError::invalid("spec.group", group, "should be a domain with at least one dot"));
    }
}

/// Validates the properties of one version that are not shared.
fn validate_version(
    version: &Value,
    shared: &SharedProperties,
    path: &str,
    cost: &mut budget::Budget,
    found: &mut Vec<FieldError>,
) {
    let name = text(&version["name"]);
    let faults = dns1035_label(name);
    if !faults.is_empty() {
        found.push(FieldError::invalid(format!("{path}.name"), name, faults.join(",")));
    }
    validate_warning(version, path, found);
    let schema = &version["schema"]["openAPIV3Schema"];
    let has_status = version["subresources"].get("status").is_some();
    if !shared.schema {
        schema::validate(schema, has_status, &format!("{path}.schema"), cost, found);
    }
    if !shared.subresources {
        columns::validate_subresources(&version["subresources"], &format!("{path}.subresources"), found);
    }
    if !shared.columns {
        columns::validate(version, &format!("{path}.additionalPrinterColumns"), found);
    }
    if !shared.selectable && items(&version["selectableFields"]).next().is_some() {
        let path = format!("{path}.selectableFields");
        if shared.schema || schema.is_null() {
            let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
            found.push(FieldError::invalid(path, "", detail));
        } else {
            columns::validate_selectable(version, schema, &path, found);
        }
    }
}

/// Validates the properties that all versions share.
fn validate_shared(
    first: &Value,
    versions: &[Value],
    shared: &SharedProperties,
    cost: &mut budget::Budget,
    found: &mut Vec<FieldError>,
) {
    let schema = &first["schema"]["openAPIV3Schema"];
    let any_status = versions.iter().any(|version| version["subresources"].get("status").is_some());
    if shared.schema {
        schema::validate(schema, any_status, "spec.validation", cost, found);
    }
    if shared.subresources {
        columns::validate_subresources(&first["subresources"], "spec.subresources", found);
    }
    if shared.columns {
        columns::validate(first, "spec.additionalPrinterColumns", found);
    }
    if shared.selectable && items(&first["selectableFields"]).next().is_some() {
        match shared.schema && !schema.is_null() {
            true => columns::validate_selectable(first, schema, "spec.selectableFields", found),
            false => {
                let detail = "may only be set when validations.schema is included";
                found.push(FieldError::invalid("spec.selectableFields", "", detail));
            }
        }
    }
}

fn validate_warning(version: &Value, path: &str, found: &mut Vec<FieldError>) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let path = format!("{path}.deprecationWarning");
    let mut report = |detail: String| found.push(FieldError::invalid(path.clone(), warning, detail));
    if version["deprecated"] != true {
        return report("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > 256 {
        report("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        report("must not be an empty string".to_owned());
    }
    let odd = warning.char_indices().find(|(_, c)| *c != ' ' && (c.is_control() || c.is_whitespace()));
    if let Some((at, _)) = odd {
        report(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn validate_version_list(versions: &[Value], found: &mut Vec<FieldError>) {
    let all = || Value::from(versions.to_vec());
    let mut seen = HashSet::new();
    if !versions.iter().all(|version| seen.insert(text(&version["name"]))) {
        found.push(FieldError::invalid("spec.versions", all(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        found.push(FieldError::invalid("spec.versions", all(), detail));
    }
    // The internal form in Kubernetes also has the name of the first version.
    if let Some(name) = versions.first().map(|first| text(&first["name"])).filter(|name| !name.is_empty()) {
        let faults = dns1035_label(name);
        if !faults.is_empty() {
            found.push(FieldError::invalid("spec.version", name, faults.join(",")));
        }
    }
}

/// Validates the status in the same write, and properties of the whole definition.
fn validate_rest(old: Option<&Value>, new: &Value, found: &mut Vec<FieldError>) {
    names::validate(&new["status"]["acceptedNames"], "status.acceptedNames", found);
    stored::validate(new, found);
    approval::validate(old, new, found);
    let preserves = |definition: &Value| definition["spec"]["preserveUnknownFields"] == true;
    if preserves(new) && !old.is_some_and(preserves) {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        found.push(FieldError::invalid("spec.preserveUnknownFields", true, detail));
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(versions: Vec<Value>) -> Vec<FieldError> {
        let mut found = Vec::new();
        let names = json!({ "plural": "as", "singular": "a", "kind": "A", "listKind": "AList" });
        let spec = json!({ "group": "a.b", "scope": "Cluster", "names": names, "versions": versions });
        validate_spec(&spec, &mut found);
        found
    }

    fn version(name: &str, schema: Value) -> Value {
        json!({ "name": name, "served": true, "storage": name == "v1", "schema": { "openAPIV3Schema": schema } })
    }

    #[test]
    fn a_kind_has_a_hundred_versions_at_most() {
        let many = |count: usize| {
            faults(
                (1..=count).map(|index| version(&format!("v{index}"), json!({ "type": "object" }))).collect(),
            )
        };
        assert_eq!(many(100), []);
        assert_eq!(many(101), [FieldError::too_many("spec.versions", 101, 100)]);
    }

    #[test]
    fn invalid_list_keys_are_reported_once() {
        let keys: Vec<String> = (0..50_000).map(|index| format!("k{index}")).collect();
        let list = json!({
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": keys,
            "items": { "type": "object", "properties": { "a": { "type": "string" } } },
        });
        let schema = json!({ "type": "object", "properties": { "spec": list } });
        let found = faults(vec![version("v1", schema)]);
        assert_eq!(found.len(), 1, "{}", found.len());
        assert!(found[0].detail.contains("names of item properties"));
    }

    #[test]
    fn at_most_a_hundred_faults_are_reported() {
        let fields: serde_json::Map<String, Value> =
            (0..10_000).map(|index| (format!("f{index}"), json!({ "type": "odd" }))).collect();
        let found = faults(vec![version("v1", json!({ "type": "object", "properties": fields }))]);
        assert_eq!(found.len(), FAULTS_MAX);
    }
}
