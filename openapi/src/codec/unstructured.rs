//! Decodes a body as an object of a custom kind.
//!
//! Unknown fields are pruned, meaningless nulls are removed, and the metadata of the object and of embedded objects is
//! decoded as ObjectMeta. Decoding a built-in kind does all of that by itself.

use serde_json::{Map, Value, json};

use crate::codec::typed::{Decoded, Mismatch, StrictDecodingError, decode_tree, json_type_name};
use crate::defaulting::apply_kind_defaults;
use crate::schema::prune::prune;
use crate::schema::{ObjectSchema, Schema, SchemaRef, Shape};
use api::meta::field::FieldError;

/// Decodes a tree as a custom object. Strict decoding errors are in the order of Kubernetes.
pub(crate) fn decode_unstructured(mut tree: Value, schema: &Schema) -> Result<Decoded, Mismatch> {
    let Value::Object(fields) = &mut tree else {
        return Err(Mismatch("json: cannot unmarshal a non-object value into an object".to_owned()));
    };
    for name in ["kind", "apiVersion"] {
        if fields.get(name).is_some_and(|value| !value.is_string()) {
            return Err(Mismatch(format!(
                "json: cannot unmarshal {} into Go struct field .{name} of type string",
                json_type_name(&fields[name])
            )));
        }
    }
    let mut unknown = Vec::new();
    if let Shape::Object(object) = &schema.shape {
        metadata(fields, object, "", &mut unknown)?;
    }
    unknown.extend(prune(&mut tree, schema));
    drop_nulls(&mut tree, schema);
    let mut inside = Vec::new();
    if let (Shape::Object(object), Value::Object(fields)) = (&schema.shape, &mut tree) {
        for (name, value) in fields.iter_mut().filter(|(name, _)| *name != "metadata") {
            if let Some(field) = object.fields.get(name.as_str()) {
                embedded(value, &field.schema, name, &mut inside)
                    .map_err(|error| Mismatch(error.to_string()))?;
            }
        }
    }
    inside.sort_unstable();
    unknown.extend(inside);
    Ok(Decoded {
        value: tree,
        strict_errors: unknown.into_iter().map(StrictDecodingError::UnknownField).collect(),
    })
}

/// Decodes the metadata of an object as ObjectMeta and writes it as Kubernetes would.
fn metadata(
    fields: &mut Map<String, Value>,
    object: &ObjectSchema,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), Mismatch> {
    let (Some(metadata), Some(field)) = (fields.get_mut("metadata"), object.fields.get("metadata")) else {
        return Ok(());
    };
    if metadata.is_null() {
        fields.remove("metadata");
        return Ok(());
    }
    let decoded = decode_tree(metadata.clone(), &field.schema)?;
    unknown.extend(decoded.strict_errors.iter().filter_map(|strict_error| match strict_error {
        StrictDecodingError::UnknownField(name) => Some(format!("{path}metadata.{name}")),
        _ => None,
    }));
    let mut partial_object = json!({ "metadata": decoded.value });
    apply_kind_defaults("meta.k8s.io/v1", "PartialObjectMetadata", &mut partial_object);
    *metadata = partial_object["metadata"].take();
    if let Value::Object(metadata) = metadata {
        metadata.retain(|_, value| !value.is_null());
    }
    Ok(())
}

/// Decodes embedded objects.
fn embedded(
    value: &mut Value,
    schema: &SchemaRef,
    path: &str,
    unknown: &mut Vec<String>,
) -> Result<(), FieldError> {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            if object.embedded {
                for name in ["apiVersion", "kind"] {
                    if let Some(value) = fields.get(name).filter(|value| !value.is_string()) {
                        return Err(FieldError::invalid(
                            format!("{path}.{name}"),
                            value.clone(),
                            "must be a string",
                        ));
                    }
                }
                let before = fields.get("metadata").cloned().unwrap_or_default();
                metadata(fields, object, &format!("{path}."), unknown).map_err(|mismatch| {
                    FieldError::invalid(format!("{path}.metadata"), before, mismatch.to_string())
                })?;
            }
            for (name, value) in fields.iter_mut() {
                let is_embedded_metadata = object.embedded && name == "metadata";
                if let Some(field) = object.fields.get(name.as_str()).filter(|_| !is_embedded_metadata) {
                    embedded(value, &field.schema, &format!("{path}.{name}"), unknown)?;
                }
            }
            Ok(())
        }
        (Shape::Map(map), Value::Object(fields)) => fields
            .iter_mut()
            .try_for_each(|(name, value)| embedded(value, &map.values, &format!("{path}[{name}]"), unknown)),
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().enumerate().try_for_each(|(index, value)| {
                embedded(value, &list.items, &format!("{path}[{index}]"), unknown)
            })
        }
        _ => Ok(()),
    }
}

/// Removes nulls from fields that are not nullable, unless a default will replace them later.
fn drop_nulls(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => fields.retain(|name, value| {
            let is_embedded_metadata = object.embedded && name == "metadata";
            let field = object.fields.get(name.as_str()).filter(|_| !is_embedded_metadata);
            field.is_none_or(|field| stays(value, &field.schema))
        }),
        (Shape::Map(map), Value::Object(fields)) => fields.retain(|_, value| stays(value, &map.values)),
        (Shape::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| drop_nulls(item, &list.items));
        }
        _ => {}
    }
}

fn stays(value: &mut Value, schema: &Schema) -> bool {
    if value.is_null() {
        return schema.nullable || schema.default.is_some();
    }
    drop_nulls(value, schema);
    true
}
