//! Compares two versions of an object: which fields were added, modified and removed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{PathElement, same};
use super::schema_type::{Fields, Items, SchemaAtom, SchemaType};

/// The differences of two versions. The three sets are disjoint.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes<'a> {
    pub(super) added: FieldSet<'a>,
    pub(super) modified: FieldSet<'a>,
    pub(super) removed: FieldSet<'a>,
}

impl<'a> Changes<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Applies a filter to all three sets.
    pub(super) fn filtered(self, keep: impl Fn(FieldSet<'a>) -> FieldSet<'a>) -> Changes<'a> {
        Changes { added: keep(self.added), modified: keep(self.modified), removed: keep(self.removed) }
    }

    /// Adds the changes of one field and of those below it.
    fn push(&mut self, element: PathElement<'a>, own_change: OwnChange, children: Changes<'a>) {
        // Most fields did not change and cost nothing here.
        for (all, children, member) in [
            (&mut self.added, children.added, own_change == OwnChange::Added),
            (&mut self.modified, children.modified, own_change == OwnChange::Modified),
            (&mut self.removed, children.removed, own_change == OwnChange::Removed),
        ] {
            if member || !children.is_empty() {
                all.push(element.clone(), member, children);
            }
        }
    }

    fn sort(&mut self) {
        self.added.sort();
        self.modified.sort();
        self.removed.sort();
    }
}

/// The change of a value itself, apart from the fields in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnChange {
    Same,
    Added,
    Modified,
    Removed,
}

/// Two versions of a value; one of them may be missing.
#[derive(Clone, Copy)]
enum ValuePair<'a> {
    Old(&'a Value),
    New(&'a Value),
    Both(&'a Value, &'a Value),
}

impl<'a> ValuePair<'a> {
    fn before(self) -> Option<&'a Value> {
        match self {
            ValuePair::Old(old) | ValuePair::Both(old, _) => Some(old),
            ValuePair::New(_) => None,
        }
    }

    fn after(self) -> Option<&'a Value> {
        match self {
            ValuePair::New(new) | ValuePair::Both(_, new) => Some(new),
            ValuePair::Old(_) => None,
        }
    }

    /// Returns the change of a value that is compared as a whole.
    fn atomic_change(self) -> OwnChange {
        match self {
            ValuePair::Both(old, new) if same(old, new) => OwnChange::Same,
            ValuePair::Both(..) => OwnChange::Modified,
            _ => self.presence(),
        }
    }

    /// Returns the change of a value that is compared field by field.
    fn presence(self) -> OwnChange {
        match self {
            ValuePair::Old(_) => OwnChange::Removed,
            ValuePair::New(_) => OwnChange::Added,
            ValuePair::Both(..) => OwnChange::Same,
        }
    }
}

/// Returns the changes from `old` to `new`, both of this type.
pub(super) fn changes<'a>(old: &'a Value, new: &'a Value, kind: SchemaType<'a>) -> Changes<'a> {
    let mut changes = Changes::default();
    visit(ValuePair::Both(old, new), kind, &mut changes);
    changes
}

fn visit<'a>(pair: ValuePair<'a>, kind: SchemaType<'a>, children: &mut Changes<'a>) -> OwnChange {
    let atom = match pair {
        ValuePair::Old(value) | ValuePair::New(value) => kind.atom(value),
        ValuePair::Both(old, new) => match (kind.atom(old), kind.atom(new)) {
            // The value changed between list, map and scalar: each version is visited on its own.
            (before, after) if std::mem::discriminant(&before) != std::mem::discriminant(&after) => {
                let own_change = visit_atom(pair, before, children);
                let change_after = visit_atom(pair, after, children);
                children.sort();
                return if own_change == OwnChange::Same { change_after } else { own_change };
            }
            (_, after) => after,
        },
    };
    visit_atom(pair, atom, children)
}

/// Compares two values part by part. An empty object or list is a member, to distinguish it from an absent one.
fn visit_atom<'a>(pair: ValuePair<'a>, atom: SchemaAtom<'a>, children: &mut Changes<'a>) -> OwnChange {
    match atom {
        SchemaAtom::Map(fields) if !fields.atomic => {
            let object =
                |value: Option<&'a Value>| value.and_then(Value::as_object).filter(|map| !map.is_empty());
            let (old, new) = (object(pair.before()), object(pair.after()));
            if old.is_some() || new.is_some() {
                objects(fields, old, new, children);
                return pair.presence();
            }
        }
        SchemaAtom::List(items) if !items.atomic() => {
            let list = |value: Option<&'a Value>| {
                value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
            };
            let (old, new) = (list(pair.before()), list(pair.after()));
            if !old.is_empty() || !new.is_empty() {
                lists(items, old, new, children);
                return pair.presence();
            }
        }
        _ => {}
    }
    pair.atomic_change()
}

/// Compares two objects. Both iterate in the order of their keys.
fn objects<'a>(
    fields: Fields<'a>,
    old: Option<&'a Map<String, Value>>,
    new: Option<&'a Map<String, Value>>,
    changes: &mut Changes<'a>,
) {
    let (mut old, mut new) = (old.into_iter().flatten().peekable(), new.into_iter().flatten().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some((one, _)), Some((other, _))) => one.cmp(other),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return,
        };
        let (before, after) = (old.next_if(|_| order.is_le()), new.next_if(|_| order.is_ge()));
        let (name, pair) = match (before, after) {
            (Some((name, old)), Some((_, new))) => (name, ValuePair::Both(old, new)),
            (Some((name, old)), None) => (name, ValuePair::Old(old)),
            (None, Some((name, new))) => (name, ValuePair::New(new)),
            (None, None) => return,
        };
        // Most fields of an object do not change and need no lookup in the schema.
        if let ValuePair::Both(old, new) = pair
            && old == new
        {
            continue;
        }
        if let Some((kind, _)) = fields.field(name) {
            let mut children = Changes::default();
            let own_change = visit(pair, kind, &mut children);
            changes.push(PathElement::Field(name), own_change, children);
        }
    }
}

fn lists<'a>(items: Items<'a>, old: &'a [Value], new: &'a [Value], changes: &mut Changes<'a>) {
    if old == new {
        return;
    }
    let mut found: BTreeMap<PathElement<'a>, [Vec<&'a Value>; 2]> = BTreeMap::new();
    for (side, list) in [old, new].into_iter().enumerate() {
        for item in list {
            if let Ok(element) = items.element(item) {
                found.entry(element).or_default()[side].push(item);
            }
        }
    }
    for (element, [old, new]) in found {
        let mut children = Changes::default();
        let mut visit = |pair| visit(pair, items.items, &mut children);
        // Items with the same key are one field together.
        let own_change = match (&old[..], &new[..]) {
            ([old], [new]) => visit(ValuePair::Both(old, new)),
            ([old], []) => visit(ValuePair::Old(old)),
            ([], [new]) => visit(ValuePair::New(new)),
            ([_, _, ..], [_, _, ..]) if old == new => OwnChange::Same,
            ([_, _, ..], [_, _, ..]) => OwnChange::Modified,
            (_, [_, _, ..]) => {
                old.first().map(|old| visit(ValuePair::Old(old)));
                OwnChange::Added
            }
            _ => {
                new.first().map(|new| visit(ValuePair::New(new)));
                OwnChange::Removed
            }
        };
        changes.push(element, own_change, children);
    }
}
