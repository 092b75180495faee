//! Fields that differ between the mailbox objects of one object.

use api::meta::pointer;
use serde_json::Value;

/// Fields to set in the mailbox object of a target.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TargetPatch(pub Vec<(String, Value)>);

impl TargetPatch {
    pub(crate) fn set(mut self, pointer: &str, value: impl Into<Value>) -> TargetPatch {
        self.0.push((pointer.to_owned(), value.into()));
        self
    }

    /// Sets the fields. A field that cannot be set, because the object does not match its kind, is skipped.
    pub fn apply(&self, object: &mut Value) {
        for (pointer, value) in &self.0 {
            let _ = pointer::set(object, pointer, value.clone());
        }
    }
}

/// A number in an object. A missing one has its default; a negative one is invalid and counts as 0.
pub(crate) fn number(object: &Value, pointer: &str, default: u32) -> u32 {
    let found = object.pointer(pointer).and_then(Value::as_i64);
    found.map_or(default, |number| u32::try_from(number.max(0)).unwrap_or(u32::MAX))
}
