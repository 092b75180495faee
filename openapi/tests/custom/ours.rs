//! Our responses.

use std::sync::Arc;

use api::meta::field::FieldError;
use jiff::Timestamp;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::codec;
use openapi::codec::{FieldValidation, Syntax};
use openapi::crd::CustomKind;
use openapi::meta::status::Status;
use openapi::validation::definition;
use openapi::{catalog, conversion, defaulting, validation};
use serde_json::{Value, json};

use crate::bases;
use crate::case::{Case, Verb};
use crate::record::{CaseResponse, Record};

pub(crate) fn definition(case: &Case, record: &Record) -> CaseResponse {
    let row = catalog::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("built in");
    let answer = match case.verb {
        Verb::Create => create(row, case.edited(&bases().definitions[&case.base])),
        verb => update(row, verb, &record.stored[&case.base], case),
    };
    // The resulting objects are compared elsewhere: see `published`.
    CaseResponse { object: Value::Null, ..answer }
}

pub(crate) fn object(case: &Case, record: &Record) -> CaseResponse {
    let base = &bases().objects[&case.base];
    let row = row(base, record, "samples");
    match case.verb {
        Verb::Create => create(&row, case.edited(base)),
        verb => update(&row, verb, &record.stored[&case.base], case),
    }
}

/// Returns the response to an update of an object that its changed definition no longer allows.
pub(crate) fn ratcheting(case: &Case, record: &Record) -> CaseResponse {
    let base = &bases().objects[&case.base];
    update(&row(base, record, "tight"), case.verb, &record.stored[&case.base], case)
}

/// Returns the kind and version of an object, from its recorded definition.
pub(crate) fn row(object: &Value, record: &Record, samples: &str) -> Arc<ResourceInfo> {
    let definition = if object["kind"] == "Sample" { samples } else { "pairs" };
    let rows = CustomKind::of(&record.stored[definition]).resources;
    let found = rows.into_iter().find(|row| object["apiVersion"] == row.api_version());
    found.unwrap_or_else(|| panic!("no row for {}", object["apiVersion"]))
}

fn create(row: &ResourceInfo, sent: Value) -> CaseResponse {
    let (mut object, warnings) = match read(row, &sent) {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    if row.namespaced {
        object["metadata"]["namespace"] = json!("default");
    }
    defaulting::apply_defaults(row, &mut object);
    defaulting::prepare_create(row, &mut object, Timestamp::UNIX_EPOCH);
    let warnings = [warnings, more(row, None, &object)].concat();
    settled(row, &validation::validate_create(row, &object), object, warnings)
}

fn update(row: &ResourceInfo, verb: Verb, old: &Value, case: &Case) -> CaseResponse {
    let (mut object, warnings) = match read(row, &case.edited(old)) {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    defaulting::apply_defaults(row, &mut object);
    let errors = match verb {
        Verb::Status => {
            defaulting::prepare_status(row, old, &mut object, Timestamp::UNIX_EPOCH);
            object["metadata"] = old["metadata"].clone();
            validation::validate_status(row, old, &object)
        }
        _ => {
            defaulting::prepare_update(row, old, &mut object, Timestamp::UNIX_EPOCH);
            validation::validate_update(row, old, &object)
        }
    };
    let warnings =
        if verb == Verb::Status { warnings } else { [warnings, more(row, Some(old), &object)].concat() };
    settled(row, &errors, object, warnings)
}

fn read(row: &ResourceInfo, sent: &Value) -> Result<(Value, Vec<String>), CaseResponse> {
    let body = sent.to_string().into_bytes();
    let schema = row.schema().expect("every row has one");
    let kind = (&*row.kind, &*row.version);
    let decoded = codec::decode_as(&body, Syntax::Json, schema).map_err(|error| CaseResponse {
        message: error.message(kind, &body, Syntax::Json),
        ..CaseResponse::default()
    })?;
    let mut warnings: Vec<String> =
        row.custom.iter().filter_map(|custom| custom.warning.as_deref()).map(str::to_owned).collect();
    warnings.extend(FieldValidation::Warn.enforce(&decoded.strict_errors).expect("warnings only"));
    Ok((decoded.value, warnings))
}

/// Returns the warnings about a definition, without those about CEL rules: upstream evaluates these and does not warn.
fn more(row: &ResourceInfo, old: Option<&Value>, new: &Value) -> Vec<String> {
    if &*row.plural != "customresourcedefinitions" {
        return Vec::new();
    }
    let warnings = definition::definition_warnings(old, new).into_iter();
    warnings.filter(|warning| !warning.starts_with("x-kubernetes-validations")).collect()
}

fn settled(row: &ResourceInfo, errors: &[FieldError], object: Value, warnings: Vec<String>) -> CaseResponse {
    if errors.is_empty() {
        // The response is the stored object, read back.
        let object = conversion::from_stored(row, conversion::to_stored(row, object));
        return CaseResponse::accepted(object, warnings);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let status = Status::invalid(row.group_kind(), name, errors);
    // A rejected definition causes no warnings; those about an object come from decoding it.
    let warnings = if row.custom.is_some() { warnings } else { Vec::new() };
    CaseResponse {
        warnings,
        ..CaseResponse::refused(&serde_json::to_value(&status).expect("a status is JSON"))
    }
}
