//! Merges an applied object into the live object.
//!
//! The merge removes nothing: it sets the applied fields and keeps all others. Items of an associative list or a set
//! take the order of the applied list; items that are only in the live list keep their place between them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::path_element::PathElement;
use super::schema_type::{Fields, Items, SchemaAtom, SchemaType};

/// Sets the fields of `config` in `live`.
pub(super) fn merge(live: &mut Value, config: &Value, kind: SchemaType<'_>) {
    match (kind.atom(config), config) {
        (SchemaAtom::Map(fields), _) if !fields.atomic => objects(live, config, fields),
        (SchemaAtom::List(items), _) if !items.atomic() => lists(live, config, items),
        _ => *live = config.clone(),
    }
}

/// Merges an object. An empty object or a null leaves live fields unchanged.
fn objects(live: &mut Value, config: &Value, fields: Fields<'_>) {
    let Value::Object(live_fields) = live else {
        *live = config.clone();
        return;
    };
    let Some(applied_fields) = config.as_object().filter(|applied_fields| !applied_fields.is_empty()) else {
        if live_fields.is_empty() {
            *live = config.clone();
        }
        return;
    };
    for (name, value) in applied_fields {
        match (live_fields.get_mut(name), fields.field(name)) {
            (Some(live), Some((kind, _))) => merge(live, value, kind),
            _ => drop(live_fields.insert(name.clone(), value.clone())),
        }
    }
}

fn lists(live: &mut Value, config: &Value, items: Items<'_>) {
    let Value::Array(live_items) = live else {
        *live = config.clone();
        return;
    };
    let Some(applied_items) = config.as_array().filter(|applied_items| !applied_items.is_empty()) else {
        if live_items.is_empty() {
            *live = config.clone();
        }
        return;
    };
    let mut order = Order::of(items, live_items, applied_items);
    let live_items = std::mem::take(live_items);
    *live = Value::Array(order.merge(items, live_items, applied_items));
}

/// How live items and applied items correspond.
struct Order {
    /// For each live item, the index of the applied item with the same key.
    applied: Vec<Option<usize>>,
    /// For each applied item, the index of the first live item with the same key.
    live: Vec<Option<usize>>,
    /// For each applied item, whether several live items have its key. Such items are replaced, not merged.
    repeated: Vec<bool>,
    /// The applied items that are also live and not yet placed, in reverse order.
    shared: Vec<usize>,
}

impl Order {
    fn of(items: Items<'_>, live_items: &[Value], applied_items: &[Value]) -> Order {
        let indexes: BTreeMap<PathElement<'_>, usize> = applied_items
            .iter()
            .enumerate()
            .filter_map(|(index, item)| Some((items.element(item).ok()?, index)))
            .collect();
        let mut order = Order {
            applied: Vec::with_capacity(live_items.len()),
            live: vec![None; applied_items.len()],
            repeated: vec![false; applied_items.len()],
            shared: Vec::new(),
        };
        for (index, item) in live_items.iter().enumerate() {
            let applied = items.element(item).ok().and_then(|element| indexes.get(&element).copied());
            order.applied.push(applied);
            if let Some(applied) = applied {
                order.repeated[applied] = order.live[applied].is_some();
                order.live[applied].get_or_insert(index);
            }
        }
        order.shared = (0..applied_items.len()).rev().filter(|index| order.live[*index].is_some()).collect();
        order
    }

    fn merge(&mut self, items: Items<'_>, live_items: Vec<Value>, applied_items: &[Value]) -> Vec<Value> {
        let mut live_items: Vec<Option<Value>> = live_items.into_iter().map(Some).collect();
        let mut merged = Vec::with_capacity(live_items.len().max(applied_items.len()));
        let mut done = vec![false; applied_items.len()];
        let (mut left, mut right) = (0, 0);
        while left < live_items.len() || right < applied_items.len() {
            if let (Some(applied), true) =
                (self.applied.get(left).copied().flatten(), right < applied_items.len())
            {
                // Of the items in both lists, those follow in the applied order.
                if applied != right && self.shared.last().is_some_and(|next| *next != applied) {
                    left += 1;
                    continue;
                }
            }
            match self.applied.get(left) {
                Some(None) => {
                    merged.extend(live_items[left].take());
                    left += 1;
                    continue;
                }
                Some(Some(applied)) if *applied == right || done[*applied] => left += 1,
                _ => {}
            }
            if right < applied_items.len() {
                let found = self.live[right].filter(|_| !self.repeated[right]);
                merged.push(match found.and_then(|index| live_items[index].take()) {
                    Some(mut live) => {
                        merge(&mut live, &applied_items[right], items.items);
                        live
                    }
                    None => applied_items[right].clone(),
                });
                done[right] = true;
                self.shared.pop_if(|next| *next == right);
                right += 1;
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::schema::{ListSchema, ListType, Schema, Shape};

    fn set_of_strings() -> Schema {
        let items = Arc::new(Schema { shape: Shape::String, ..Schema::default() });
        Schema { shape: Shape::List(ListSchema { items, kind: ListType::Set }), ..Schema::default() }
    }

    /// Kubernetes' order, as its tests document it: that of the applied list, with other items after their live
    /// neighbour.
    #[test]
    fn items_have_the_order_of_the_applied_list() {
        let schema = set_of_strings();
        for (live, config, expected) in [
            ("a b c", "a b c", "a b c"),
            ("a b c", "c b a", "c b a"),
            ("a b", "b", "a b"),
            ("a b c", "x", "a b c x"),
            ("a b c d", "d a", "b c d a"),
            ("a x b y", "b a", "x b y a"),
            ("1 2 3", "3 4 1", "2 3 4 1"),
            ("", "a b", "a b"),
            ("a b", "", "a b"),
            ("a a b", "b a", "b a"),
        ] {
            let list = |text: &str| Value::from(text.split_whitespace().collect::<Vec<_>>());
            let mut merged = list(live);
            merge(&mut merged, &list(config), SchemaType::of(&schema));
            assert_eq!(merged, list(expected), "{config} over {live}");
        }
    }

    #[test]
    fn null_sets_a_value_and_leaves_a_structure_alone() {
        let mut live = json!({ "a": 1, "b": { "c": 1 }, "d": [1], "e": {} });
        merge(&mut live, &json!({ "a": null, "b": null, "d": null, "e": null }), SchemaType::Deduced);
        assert_eq!(live, json!({ "a": null, "b": { "c": 1 }, "d": null, "e": null }));
    }
}
