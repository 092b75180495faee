//! The items of a list before an update.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::node::SchemaNode;
use crate::schema::ListType;

/// The old items of an associative list by their keys. Items of other lists have no old value.
pub(super) struct OldValue<'v> {
    items: HashMap<String, &'v Value>,
    keys: &'v [Arc<str>],
}

impl<'v> OldValue<'v> {
    pub(super) fn of(node: SchemaNode<'v>, old: Option<&'v Value>) -> OldValue<'v> {
        let keys = match node.list_kind() {
            Some(ListType::Map { keys }) => keys.as_slice(),
            _ => &[],
        };
        let old = old.and_then(Value::as_array).into_iter().flatten();
        let items = old.filter(|_| !keys.is_empty()).map(|item| (key(item, keys), item)).collect();
        OldValue { items, keys }
    }

    pub(super) fn item(&self, item: &Value) -> Option<&'v Value> {
        if self.items.is_empty() { None } else { self.items.get(&key(item, self.keys)).copied() }
    }
}

fn key(item: &Value, keys: &[Arc<str>]) -> String {
    keys.iter().map(|key| item.get(&**key).unwrap_or(&Value::Null).to_string() + "\n").collect()
}
