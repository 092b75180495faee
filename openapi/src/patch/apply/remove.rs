//! An object without some of its fields.

use serde_json::Value;

use super::element::Element;
use super::set::{Node, Set};
use super::types::{Atom, Type};

/// Removes the members of a set. What they were all of becomes null, as if nobody had ever said anything about it.
pub(super) fn remove(value: &mut Value, gone: &Set<'_>, kind: Type<'_>) {
    let keeps = match (kind.atom(value), &mut *value) {
        (Atom::Scalar, _) => true,
        (Atom::Map(fields), Value::Object(object)) if !fields.atomic => {
            object.retain(|name, value| match gone.get(&Element::Field(name)) {
                Some(node) if node.member => false,
                Some(Node { below, .. }) => {
                    if let Some((kind, _)) = fields.field(name) {
                        remove(value, below, kind);
                    }
                    true
                }
                None => true,
            });
            !object.is_empty()
        }
        (Atom::List(items), Value::Array(list)) if !items.atomic() => {
            list.retain_mut(|item| {
                let found = items.element(item).ok().and_then(|element| gone.get(&element));
                match found {
                    Some(node) if node.member => false,
                    Some(Node { below, .. }) => {
                        remove(item, below, items.items);
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
