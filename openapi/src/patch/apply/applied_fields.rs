//! The set of fields that an object contains.
//!
//! The manager that applies the object owns these: scalars, atomic values, items of lists and entries of maps. A field
//! that only leads to other fields has no owner, unless it is empty.

use serde_json::Value;

use super::field_set::FieldSet;
use super::path_element::PathElement;
use super::schema_type::{Fields, Items, SchemaAtom, SchemaType};

/// Returns the fields that an object of this type contains.
pub(super) fn fields<'a>(value: &'a Value, kind: SchemaType<'a>) -> FieldSet<'a> {
    let mut set = FieldSet::default();
    visit(value, kind, &mut set);
    set
}

/// Collects the fields below a value. Returns whether the value itself is a leaf.
fn visit<'a>(value: &'a Value, kind: SchemaType<'a>, children: &mut FieldSet<'a>) -> bool {
    match (kind.atom(value), value) {
        (SchemaAtom::Scalar, _) => return true,
        (SchemaAtom::Map(fields), _) if fields.atomic => return true,
        (SchemaAtom::List(items), _) if items.atomic() => return true,
        (SchemaAtom::Map(fields), Value::Object(object)) => {
            for (name, value) in object {
                entry(fields, name, value, children);
            }
        }
        (SchemaAtom::List(items), Value::Array(list)) => each(items, list, children),
        _ => {}
    }
    false
}

fn entry<'a>(fields: Fields<'a>, name: &'a str, value: &'a Value, set: &mut FieldSet<'a>) {
    let Some((kind, named)) = fields.field(name) else { return };
    let mut children = FieldSet::default();
    let leaf = visit(value, kind, &mut children);
    let hollow = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    set.push(PathElement::Field(name), leaf || hollow || !named, children);
}

/// Collects the items of a list. Items with the same key are one member, without the fields below them.
fn each<'a>(items: Items<'a>, list: &'a [Value], set: &mut FieldSet<'a>) {
    let mut found: Vec<(PathElement<'a>, &'a Value)> =
        list.iter().filter_map(|item| Some((items.element(item).ok()?, item))).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut found = found.into_iter().peekable();
    while let Some((element, item)) = found.next() {
        let mut children = FieldSet::default();
        let mut alone = true;
        while found.next_if(|(next, _)| *next == element).is_some() {
            alone = false;
        }
        if alone {
            visit(item, items.items, &mut children);
        }
        set.push(element, true, children);
    }
}

/// Adds the fields on the path to each member as members, if the schema names them. So the owner of a field also keeps
/// the fields that lead to it from being pruned.
pub(super) fn with_ancestors<'a>(mut set: FieldSet<'a>, kind: SchemaType<'_>) -> FieldSet<'a> {
    mark_ancestors(&mut set, kind);
    set
}

fn mark_ancestors(set: &mut FieldSet<'_>, kind: SchemaType<'_>) {
    let atom = named_atom(kind);
    for node in set.nodes_mut().iter_mut().filter(|node| !node.children.is_empty()) {
        match (&node.element, atom) {
            (PathElement::Field(name), SchemaAtom::Map(fields)) => {
                let Some((kind, named)) = fields.field(name) else { continue };
                node.member |= named;
                mark_ancestors(&mut node.children, kind);
            }
            (PathElement::Key(_), SchemaAtom::List(items)) => mark_ancestors(&mut node.children, items.items),
            _ => {}
        }
    }
}

/// Returns the structure of a type regardless of a value.
fn named_atom(kind: SchemaType<'_>) -> SchemaAtom<'_> {
    kind.atom(&Value::Null)
}
