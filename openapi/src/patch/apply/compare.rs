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
    fn push(&mut self, element: PathElement<'a>, own: Own, below: Changes<'a>) {
        // Most fields did not change and cost nothing here.
        for (all, below, member) in [
            (&mut self.added, below.added, own == Own::Added),
            (&mut self.modified, below.modified, own == Own::Modified),
            (&mut self.removed, below.removed, own == Own::Removed),
        ] {
            if member || !below.is_empty() {
                all.push(element.clone(), member, below);
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
enum Own {
    Same,
    Added,
    Modified,
    Removed,
}

/// Two versions of a value; one of them may be missing.
#[derive(Clone, Copy)]
enum Pair<'a> {
    Old(&'a Value),
    New(&'a Value),
    Both(&'a Value, &'a Value),
}

impl<'a> Pair<'a> {
    fn before(self) -> Option<&'a Value> {
        match self {
            Pair::Old(old) | Pair::Both(old, _) => Some(old),
            Pair::New(_) => None,
        }
    }

    fn after(self) -> Option<&'a Value> {
        match self {
            Pair::New(new) | Pair::Both(_, new) => Some(new),
            Pair::Old(_) => None,
        }
    }

    /// Returns the change of a value that is compared as a whole.
    fn whole(self) -> Own {
        match self {
            Pair::Both(old, new) if same(old, new) => Own::Same,
            Pair::Both(..) => Own::Modified,
            _ => self.presence(),
        }
    }

    /// Returns the change of a value that is compared field by field.
    fn presence(self) -> Own {
        match self {
            Pair::Old(_) => Own::Removed,
            Pair::New(_) => Own::Added,
            Pair::Both(..) => Own::Same,
        }
    }
}

/// Returns the changes from `old` to `new`, both of this type.
pub(super) fn changes<'a>(old: &'a Value, new: &'a Value, kind: SchemaType<'a>) -> Changes<'a> {
    let mut changes = Changes::default();
    visit(Pair::Both(old, new), kind, &mut changes);
    changes
}

fn visit<'a>(pair: Pair<'a>, kind: SchemaType<'a>, below: &mut Changes<'a>) -> Own {
    let atom = match pair {
        Pair::Old(value) | Pair::New(value) => kind.atom(value),
        Pair::Both(old, new) => match (kind.atom(old), kind.atom(new)) {
            // The value changed between list, map and scalar: each version is visited on its own.
            (before, after) if std::mem::discriminant(&before) != std::mem::discriminant(&after) => {
                let own = parts(pair, before, below);
                let own_after = parts(pair, after, below);
                below.sort();
                return if own == Own::Same { own_after } else { own };
            }
            (_, after) => after,
        },
    };
    parts(pair, atom, below)
}

/// Compares two values part by part. An empty object or list is a member, to distinguish it from an absent one.
fn parts<'a>(pair: Pair<'a>, atom: SchemaAtom<'a>, below: &mut Changes<'a>) -> Own {
    match atom {
        SchemaAtom::Map(fields) if !fields.atomic => {
            let object =
                |value: Option<&'a Value>| value.and_then(Value::as_object).filter(|map| !map.is_empty());
            let (old, new) = (object(pair.before()), object(pair.after()));
            if old.is_some() || new.is_some() {
                objects(fields, old, new, below);
                return pair.presence();
            }
        }
        SchemaAtom::List(items) if !items.atomic() => {
            let list = |value: Option<&'a Value>| {
                value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
            };
            let (old, new) = (list(pair.before()), list(pair.after()));
            if !old.is_empty() || !new.is_empty() {
                lists(items, old, new, below);
                return pair.presence();
            }
        }
        _ => {}
    }
    pair.whole()
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
            (Some((name, old)), Some((_, new))) => (name, Pair::Both(old, new)),
            (Some((name, old)), None) => (name, Pair::Old(old)),
            (None, Some((name, new))) => (name, Pair::New(new)),
            (None, None) => return,
        };
        // Most fields of an object do not change and need no lookup in the schema.
        if let Pair::Both(old, new) = pair
            && old == new
        {
            continue;
        }
        if let Some((kind, _)) = fields.field(name) {
            let mut below = Changes::default();
            let own = visit(pair, kind, &mut below);
            changes.push(PathElement::Field(name), own, below);
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
        let mut below = Changes::default();
        let mut visit = |pair| visit(pair, items.items, &mut below);
        // Items with the same key are one field together.
        let own = match (&old[..], &new[..]) {
            ([old], [new]) => visit(Pair::Both(old, new)),
            ([old], []) => visit(Pair::Old(old)),
            ([], [new]) => visit(Pair::New(new)),
            ([_, _, ..], [_, _, ..]) if old == new => Own::Same,
            ([_, _, ..], [_, _, ..]) => Own::Modified,
            (_, [_, _, ..]) => {
                old.first().map(|old| visit(Pair::Old(old)));
                Own::Added
            }
            _ => {
                new.first().map(|new| visit(Pair::New(new)));
                Own::Removed
            }
        };
        changes.push(element, own, below);
    }
}
