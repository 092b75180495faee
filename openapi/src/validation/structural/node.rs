//! A common view of schemas and conditions.

use std::sync::Arc;

use crate::schema::constraints::{Constraints, JsonType};
use crate::schema::{ListType, Schema, Shape};

/// A schema or a condition by which a value is validated.
#[derive(Clone, Copy)]
pub(super) struct SchemaNode<'s> {
    pub(super) rules: Option<&'s Constraints>,
    pub(super) format: Option<&'s str>,
    pub(super) nullable: bool,
    /// None for a condition, whose fields and items are in its rules.
    shape: Option<&'s Shape>,
}

impl<'s> SchemaNode<'s> {
    pub(super) fn of(schema: &'s Schema) -> SchemaNode<'s> {
        SchemaNode {
            rules: schema.rules.as_deref(),
            format: schema.format.as_deref(),
            nullable: schema.nullable,
            shape: Some(&schema.shape),
        }
    }

    pub(super) fn condition(rules: &'s Constraints) -> SchemaNode<'s> {
        SchemaNode { rules: Some(rules), format: rules.format.as_deref(), nullable: false, shape: None }
    }

    /// Returns the valid types; empty if any type is valid.
    pub(super) fn types(&self) -> &'s [JsonType] {
        let Some(shape) = self.shape else {
            return self.rules.map(|rules| rules.types.as_slice()).unwrap_or_default();
        };
        match shape {
            _ if self.rules.is_some_and(|rules| rules.untyped) => &[],
            Shape::Any => &[],
            Shape::Boolean => &[JsonType::Boolean],
            Shape::Integer => &[JsonType::Integer],
            Shape::Number => &[JsonType::Number],
            Shape::String => &[JsonType::String],
            Shape::IntOrString => &[JsonType::Integer, JsonType::String],
            Shape::Object(_) | Shape::Map(_) => &[JsonType::Object],
            Shape::List(_) => &[JsonType::Array],
        }
    }

    pub(super) fn items(&self) -> Option<SchemaNode<'s>> {
        match self.shape {
            Some(Shape::List(list)) => Some(SchemaNode::of(&list.items)),
            Some(_) => None,
            None => self.rules?.items.as_deref().map(SchemaNode::condition),
        }
    }

    pub(super) fn list_kind(&self) -> Option<&'s ListType> {
        match self.shape {
            Some(Shape::List(list)) => Some(&list.kind),
            _ => None,
        }
    }

    /// Returns the node of a field. For the metadata of an object it has only the constraints of the definition.
    pub(super) fn field(&self, name: &str) -> Option<SchemaNode<'s>> {
        match self.shape {
            Some(Shape::Object(object)) if object.embedded && name == "metadata" => {
                self.rules?.metadata.as_deref().map(SchemaNode::of)
            }
            Some(Shape::Object(object)) => object.fields.get(name).map(|field| SchemaNode::of(&field.schema)),
            Some(Shape::Map(map)) => Some(SchemaNode::of(&map.values)),
            Some(_) => None,
            None => self.rules?.fields.get(name).map(SchemaNode::condition),
        }
    }

    /// Reports whether the schema names this field.
    pub(super) fn names(&self, name: &str) -> bool {
        matches!(self.shape, Some(Shape::Object(object)) if object.fields.contains_key(name))
    }

    pub(super) fn required(&self) -> &'s [Arc<str>] {
        match self.shape {
            Some(Shape::Object(object)) => &object.required,
            Some(_) => self.rules.map(|rules| rules.required.as_slice()).unwrap_or_default(),
            None => self.rules.map(|rules| rules.required.as_slice()).unwrap_or_default(),
        }
    }

    /// Reports whether the node is a map. Errors of its values have a path even at the top.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.shape, Some(Shape::Map(_)))
    }
}
