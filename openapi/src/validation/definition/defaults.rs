//! Validation of the defaults of a schema: they must fit the schema itself.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Origin;
use crate::schema::parse;
use crate::schema::prune::prune;
use crate::schema::{Schema, Shape};
use api::meta::field::FieldError;

use super::FAULTS_MAX;
use crate::validation::structural;
use crate::validation::structural::embedded;

pub(super) fn validate(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut read = parse::schema(schema, Origin::Custom, &mut |_| Arc::new(Schema::default()));
    parse::embed(&mut read);
    node(&read, path, &mut found);
    found
}

/// Checks a schema and everything in it. Maps contain no defaults.
fn node(schema: &Schema, path: &str, found: &mut Vec<FieldError>) {
    if found.len() >= FAULTS_MAX {
        return;
    }
    if let Some(default) = &schema.default {
        one(schema, default, &format!("{path}.default"), found);
    }
    match &schema.shape {
        Shape::List(list) => node(&list.items, &format!("{path}.items"), found),
        Shape::Object(object) => {
            for (name, field) in &object.fields {
                let inner = match object.embedded && &**name == "metadata" {
                    true => schema.rules.as_ref().and_then(|rules| rules.metadata.as_ref()),
                    false => Some(&field.schema),
                };
                inner
                    .into_iter()
                    .for_each(|schema| node(schema, &format!("{path}.properties[{name}]"), found));
            }
        }
        _ => {}
    }
}

fn one(schema: &Schema, default: &Value, path: &str, found: &mut Vec<FieldError>) {
    let mut pruned = default.clone();
    prune(&mut pruned, schema);
    if pruned != *default {
        found.push(FieldError::invalid(path, default.clone(), "must not have unknown fields"));
    }
    let before = found.len();
    embedded::validate(default, schema, path, true, found);
    if found.len() == before {
        found.extend(structural::against(schema, default, None, path));
    }
}
