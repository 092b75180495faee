//! Owners under a schema that has changed since.
//!
//! Somebody may own single fields of what has become one thing in the meantime, because a definition says now that a
//! list or an object is owned as a whole. They own the whole then. The other way round nothing has to be done.

use serde_json::Value;

use super::element::Element;
use super::set::Set;
use super::types::{Atom, Type};

pub(super) fn reconcile<'a>(set: Set<'a>, kind: Type<'_>) -> Set<'a> {
    let mut all = Set::default();
    for node in set.into_nodes() {
        if node.below.is_empty() {
            all.push(node.element, node.member, node.below);
            continue;
        }
        let below = match (&node.element, kind, kind.atom(&Value::Null)) {
            (Element::Field(name), Type::Known { .. }, Atom::Map(fields)) => {
                fields.field(name).map(|(kind, _)| kind)
            }
            (_, Type::Known { .. }, Atom::List(items)) => Some(items.items),
            _ => None,
        };
        match below {
            Some(kind @ Type::Known { .. }) if is_whole(kind) => all.push(node.element, true, Set::default()),
            Some(kind) => all.push(node.element, node.member, reconcile(node.below, kind)),
            None => all.push(node.element, node.member, node.below),
        }
    }
    all
}

fn is_whole(kind: Type<'_>) -> bool {
    match kind.atom(&Value::Null) {
        Atom::Map(fields) => fields.atomic,
        Atom::List(items) => items.atomic(),
        Atom::Scalar => false,
    }
}
