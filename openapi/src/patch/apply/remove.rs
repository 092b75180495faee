//! Removes fields from an object.

use serde_json::Value;

use super::field_set::{FieldSet, FieldSetNode};
use super::path_element::PathElement;
use super::schema_type::{SchemaAtom, SchemaType};

/// Removes the members of a set. A value that consisted only of members becomes null.
pub(super) fn remove(value: &mut Value, gone: &FieldSet<'_>, kind: SchemaType<'_>) {
    let keeps = match (kind.atom(value), &mut *value) {
        (SchemaAtom::Scalar, _) => true,
        (SchemaAtom::Map(fields), Value::Object(object)) if !fields.atomic => {
            object.retain(|name, value| match gone.get(&PathElement::Field(name)) {
                Some(node) if node.member => false,
                Some(FieldSetNode { children, .. }) => {
                    if let Some((kind, _)) = fields.field(name) {
                        remove(value, children, kind);
                    }
                    true
                }
                None => true,
            });
            !object.is_empty()
        }
        (SchemaAtom::List(items), Value::Array(list)) if !items.atomic() => {
            list.retain_mut(|item| {
                let found = items.element(item).ok().and_then(|element| gone.get(&element));
                match found {
                    Some(node) if node.member => false,
                    Some(FieldSetNode { children, .. }) => {
                        remove(item, children, items.items);
                        true
                    }
                    None => true,
                }
            });
            !list.is_empty()
        }
        _ => false,
    };
    if !keeps {
        *value = Value::Null;
    }
}
