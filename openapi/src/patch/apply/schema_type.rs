//! How managers can share a value according to its schema: as a whole, field by field, or item by item.
//!
//! Without a schema, this is deduced from the value: objects are shared field by field, lists are atomic. The exception
//! is a RawExtension, which is atomic.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::path_element::PathElement;
use crate::schema::{ListSchema, ListType, ObjectSchema, Schema, Shape};

/// Built-in types whose merge key may be absent, and is then empty.
const KEYLESS: &[&str] = &["io.k8s.api.core.v1.LocalObjectReference"];
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// What is known about a field without its value.
#[derive(Clone, Copy, Debug)]
pub(super) enum SchemaType<'s> {
    /// The field has a schema. Inside an object that preserves unknown fields, every object does.
    Typed { schema: &'s Schema, open: bool },
    /// The field has no schema.
    Deduced,
    /// The field has no schema, and its value is atomic.
    AtomicUntyped,
}

/// The structure of a value as its managers see it.
#[derive(Clone, Copy, Debug)]
pub(super) enum SchemaAtom<'s> {
    Scalar,
    List(Items<'s>),
    Map(Fields<'s>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'s> {
    pub(super) kind: &'s ListType,
    pub(super) items: SchemaType<'s>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'s> {
    object: Option<&'s ObjectSchema>,
    /// The type of fields that the schema does not name; none if it allows no such fields.
    values: Option<SchemaType<'s>>,
    open: bool,
    pub(super) atomic: bool,
}

impl<'s> SchemaType<'s> {
    pub(super) fn of(schema: &'s Schema) -> SchemaType<'s> {
        SchemaType::of_inner(schema, false)
    }

    fn of_inner(schema: &'s Schema, open: bool) -> SchemaType<'s> {
        match &schema.shape {
            Shape::Any => SchemaType::Deduced,
            Shape::Object(_) if schema.name.as_deref() == Some(RAW) => SchemaType::AtomicUntyped,
            _ => SchemaType::Typed { schema, open },
        }
    }

    pub(super) fn atom(self, value: &Value) -> SchemaAtom<'s> {
        match self {
            SchemaType::Typed { schema, open } => match &schema.shape {
                Shape::Object(object) => {
                    let open = open || object.preserve_unknown;
                    let values = open.then_some(SchemaType::Deduced);
                    SchemaAtom::Map(Fields { object: Some(object), values, open, atomic: object.atomic })
                }
                Shape::Map(map) => {
                    let values = Some(SchemaType::of_inner(&map.values, open));
                    SchemaAtom::Map(Fields { object: None, values, open, atomic: map.atomic })
                }
                Shape::List(ListSchema { items, kind }) => {
                    SchemaAtom::List(Items { kind, items: SchemaType::of_inner(items, open) })
                }
                _ => SchemaAtom::Scalar,
            },
            SchemaType::Deduced => deduced(value, SchemaType::Deduced, false),
            SchemaType::AtomicUntyped => deduced(value, SchemaType::AtomicUntyped, true),
        }
    }
}

/// Deduces the structure of a value without a schema. Null counts as an object.
fn deduced<'s>(value: &Value, values: SchemaType<'s>, atomic: bool) -> SchemaAtom<'s> {
    match value {
        Value::Array(_) => {
            SchemaAtom::List(Items { kind: &ListType::Atomic, items: SchemaType::AtomicUntyped })
        }
        Value::Object(_) | Value::Null => {
            SchemaAtom::Map(Fields { object: None, values: Some(values), open: true, atomic })
        }
        _ => SchemaAtom::Scalar,
    }
}

impl<'s> Fields<'s> {
    /// Returns the type of a field, and whether the schema names it. Returns none if the object cannot have the field.
    pub(super) fn field(self, name: &str) -> Option<(SchemaType<'s>, bool)> {
        match self.object.and_then(|object| object.fields.get(name)) {
            Some(field) => Some((SchemaType::of_inner(&field.schema, self.open), true)),
            None => self.values.map(|values| (values, false)),
        }
    }
}

impl<'s> Items<'s> {
    pub(super) fn atomic(self) -> bool {
        *self.kind == ListType::Atomic
    }

    /// Returns the path element that identifies an item of a list that is not atomic, or why the item is invalid.
    pub(super) fn element<'a>(self, item: &'a Value) -> Result<PathElement<'a>, String>
    where
        's: 'a,
    {
        match (self.kind, item) {
            (ListType::Map { keys }, Value::Object(fields)) => self.keyed(keys, fields),
            (ListType::Map { .. }, Value::Null) => {
                Err("associative list with keys may not have a null element".to_owned())
            }
            (ListType::Map { .. }, _) => {
                Err("associative list with keys may not have non-map elements".to_owned())
            }
            (_, Value::Object(_)) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            (_, Value::Array(_)) => Err("not supported: associative list with lists as elements".to_owned()),
            (_, Value::Null) => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            _ => Ok(PathElement::Value(Cow::Borrowed(item))),
        }
    }

    fn keyed<'a>(
        self,
        keys: &'s [std::sync::Arc<str>],
        fields: &'a Map<String, Value>,
    ) -> Result<PathElement<'a>, String>
    where
        's: 'a,
    {
        let value = |key: &'s str| match fields.get(key) {
            Some(value) => Some(Cow::Borrowed(value)),
            None => self.default(key),
        };
        let mut key: Vec<(Cow<'a, str>, Cow<'a, Value>)> =
            keys.iter().filter_map(|key| Some((Cow::Borrowed(&**key), value(key)?))).collect();
        if key.is_empty() {
            let keys: Vec<_> = keys.iter().map(|key| api::meta::go::quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        key.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(PathElement::Key(key))
    }

    /// Returns the value of an absent key field. A required field of a built-in type is not a pointer in Go, so it is
    /// zero or empty even if it is absent.
    fn default(self, key: &str) -> Option<Cow<'s, Value>> {
        let SchemaType::Typed { schema, .. } = self.items else { return None };
        let Shape::Object(object) = &schema.shape else { return None };
        let field = object.fields.get(key)?;
        let required = || object.required.iter().any(|required| **required == *key);
        let built_in = schema.name.as_deref().is_some_and(|name| KEYLESS.contains(&name) || required());
        match (&field.default, &field.schema.shape) {
            (Some(default), _) => Some(Cow::Borrowed(default)),
            (None, Shape::String) if built_in => Some(Cow::Owned(Value::from(""))),
            (None, Shape::Integer | Shape::Number) if built_in => Some(Cow::Owned(Value::from(0))),
            _ => field.schema.default.as_ref().map(Cow::Borrowed),
        }
    }
}
