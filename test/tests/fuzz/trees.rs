//! Mutations of JSON that respect its tree structure.
//!
//! A parsed tree cannot represent everything its text can: numbers out of range, duplicate keys, half a surrogate pair.
//! So a mutation inserts a placeholder, which is replaced in the serialized text.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use crate::mutate::pick;
use crate::words;

const PLACEHOLDER: &str = "@@placeholder@@";

/// Returns the body with one change somewhere in its tree. `None` if it is not JSON.
pub(crate) fn mutated(body: &[u8], random: &mut StdRng) -> Option<Vec<u8>> {
    let mut tree: Value = serde_json::from_slice(body).ok()?;
    let nodes = count(&tree);
    let mut at = random.random_range(0..nodes);
    let text = change(node(&mut tree, &mut at)?, random);
    let serialized = tree.to_string().replace(&format!("\"{PLACEHOLDER}\""), &text);
    Some(serialized.into_bytes())
}

fn count(tree: &Value) -> usize {
    1 + match tree {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Returns the node after `at` others, in the order of the text.
fn node<'a>(tree: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(tree);
    }
    *at -= 1;
    match tree {
        Value::Array(items) => items.iter_mut().find_map(|item| node(item, at)),
        Value::Object(fields) => fields.values_mut().find_map(|value| node(value, at)),
        _ => None,
    }
}

/// Changes a node, and returns the text for the placeholder in it.
fn change(node: &mut Value, random: &mut StdRng) -> String {
    let placeholder = || Value::from(PLACEHOLDER);
    match random.random_range(0..8) {
        0 => {
            let depth = random.random_range(1..300);
            *node = placeholder();
            return format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        }
        1 => {
            *node = placeholder();
            return format!(
                "\"{}\"",
                pick(&["a", "ä", "💩", "/", "\\n", "."], random).repeat(random.random_range(1..5_000))
            );
        }
        2 | 3 => put(node, pick(words::FIELDS, random), placeholder()),
        4 => remove(node, random),
        5 => {
            let copy = node.clone();
            *node = json!([copy, copy, { "x": copy }]);
        }
        _ => *node = placeholder(),
    }
    pick(words::LITERALS, random).to_owned()
}

fn put(node: &mut Value, field: &str, value: Value) {
    match node {
        Value::Object(fields) => drop(fields.insert(field.to_owned(), value)),
        Value::Array(items) => items.push(value),
        other => *other = Value::Object(Map::from_iter([(field.to_owned(), value)])),
    }
}

fn remove(node: &mut Value, random: &mut StdRng) {
    match node {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(random.random_range(0..fields.len())).cloned();
            fields.remove(&name.unwrap_or_default());
        }
        Value::Array(items) if !items.is_empty() => drop(items.remove(random.random_range(0..items.len()))),
        other => *other = Value::Null,
    }
}
