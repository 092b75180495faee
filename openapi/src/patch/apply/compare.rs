//! What a new version of an object adds, changes and removes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{PathElement, same};
use super::schema_type::{Fields, Items, SchemaAtom, SchemaType};

/// No field is in two of these.
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

    /// The same, of what a filter leaves.
    pub(super) fn filtered(self, keep: impl Fn(FieldSet<'a>) -> FieldSet<'a>) -> Changes<'a> {
        Changes { added: keep(self.added), modified: keep(self.modified), removed: keep(self.removed) }
    }

    /// Adds what happened to one field, and below it.
    fn push(&mut self, element: PathElement<'a>, own: Own, below: Changes<'a>) {
        // Most fields did not change, and cost nothing here.
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

/// What happened to a value as such, apart from what is in it.
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

    /// For what is looked at as a whole.
    fn whole(self) -> Own {
        match self {
            Pair::Both(old, new) if same(old, new) => Own::Same,
            Pair::Both(..) => Own::Modified,
            _ => self.presence(),
        }
    }

    /// For what is looked at part by part.
    fn presence(self) -> Own {
        match self {
            Pair::Old(_) => Own::Removed,
            Pair::New(_) => Own::Added,
            Pair::Both(..) => Own::Same,
        }
    }
}

/// What `new` changes of `old`, both of this type.
pub(super) fn changes<'a>(old: &'a Value, new: &'a Value, kind: SchemaType<'a>) -> Changes<'a> {
    let mut changes = Changes::default();
    visit(Pair::Both(old, new), kind, &mut changes);
    changes
}

fn visit<'a>(pair: Pair<'a>, kind: SchemaType<'a>, below: &mut Changes<'a>) -> Own {
    let atom = match pair {
        Pair::Old(value) | Pair::New(value) => kind.atom(value),
        Pair::Both(old, new) => match (kind.atom(old), kind.atom(new)) {
            // What was one thing and is another: both are looked at, each by itself.
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

/// An empty object or list is a value like any other, so that it can be told from one that is missing.
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

/// Both are in the order of their names.
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
        // Most of an object does not change, and need not be looked up in the schema.
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
        // Items that cannot be told apart are one field together.
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
