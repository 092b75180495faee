//! Adapts owned fields to a schema that has changed since.
//!
//! A manager may own single fields of a value that a changed definition has made atomic, so that only the whole value
//! can be owned. The manager then owns the whole. A value that is no longer atomic needs no adaptation.

use serde_json::Value;

use super::field_set::FieldSet;
use super::path_element::PathElement;
use super::schema_type::{SchemaAtom, SchemaType};

pub(super) fn reconcile<'a>(set: FieldSet<'a>, kind: SchemaType<'_>) -> FieldSet<'a> {
    let mut all = FieldSet::default();
    for node in set.into_nodes() {
        if node.children.is_empty() {
            all.push(node.element, node.member, node.children);
            continue;
        }
        let children = match (&node.element, kind, kind.atom(&Value::Null)) {
            (PathElement::Field(name), SchemaType::Typed { .. }, SchemaAtom::Map(fields)) => {
                fields.field(name).map(|(kind, _)| kind)
            }
            (_, SchemaType::Typed { .. }, SchemaAtom::List(items)) => Some(items.items),
            _ => None,
        };
        match children {
            Some(kind @ SchemaType::Typed { .. }) if is_atomic(kind) => {
                all.push(node.element, true, FieldSet::default())
            }
            Some(kind) => all.push(node.element, node.member, reconcile(node.children, kind)),
            None => all.push(node.element, node.member, node.children),
        }
    }
    all
}

fn is_atomic(kind: SchemaType<'_>) -> bool {
    match kind.atom(&Value::Null) {
        SchemaAtom::Map(fields) => fields.atomic,
        SchemaAtom::List(items) => items.atomic(),
        SchemaAtom::Scalar => false,
    }
}
