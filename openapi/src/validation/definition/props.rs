//! Access to the properties of a schema in a definition.

use serde_json::{Map, Value};

/// A schema or a condition.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Props<'d>(pub(super) &'d Value);

impl<'d> Props<'d> {
    fn fields(self) -> Option<&'d Map<String, Value>> {
        self.0.as_object()
    }

    /// Returns the value of a property; null counts as absent.
    pub(super) fn get(self, name: &str) -> Option<&'d Value> {
        self.fields()?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn text(self, name: &str) -> &'d str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the `type`.
    pub(super) fn kind(self) -> &'d str {
        self.text("type")
    }

    pub(super) fn is(self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    pub(super) fn list(self, name: &str) -> &'d [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the schema in a property; none if the property is a list or a boolean.
    pub(super) fn schema(self, name: &str) -> Option<Props<'d>> {
        self.get(name).filter(|value| value.is_object()).map(Props)
    }

    pub(super) fn schemas(self, name: &str) -> impl Iterator<Item = Props<'d>> + use<'d> {
        self.list(name).iter().map(Props)
    }

    pub(super) fn named(self, name: &str) -> impl Iterator<Item = (&'d str, Props<'d>)> + use<'d> {
        let fields = self.get(name).and_then(Value::as_object);
        fields.into_iter().flatten().map(|(name, value)| (name.as_str(), Props(value)))
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'d str, Props<'d>)> + use<'d> {
        self.named("properties")
    }

    pub(super) fn property(self, name: &str) -> Option<Props<'d>> {
        self.get("properties")?.as_object()?.get(name).map(Props)
    }

    /// Reports whether `anyOf` has exactly the two conditions of int-or-string.
    pub(super) fn names_both_types(self) -> bool {
        let is = |condition: Props<'_>, kind: &str| {
            condition.fields().is_some_and(|fields| fields.len() == 1) && condition.kind() == kind
        };
        match self.list("anyOf") {
            [first, second] => is(Props(first), "integer") && is(Props(second), "string"),
            _ => false,
        }
    }
}

/// Calls `visit` with a schema and with every schema in it.
pub(super) fn each<'d>(schema: &'d Value, visit: &mut impl FnMut(Props<'d>)) {
    let mut open = vec![Props(schema)];
    while let Some(node) = open.pop() {
        if !node.0.is_object() {
            continue;
        }
        visit(node);
        let single = ["items", "not", "additionalProperties", "additionalItems"];
        open.extend(single.into_iter().filter_map(|name| node.schema(name)));
        open.extend(["allOf", "anyOf", "oneOf", "items"].into_iter().flat_map(|name| node.schemas(name)));
        let maps = ["properties", "patternProperties", "definitions"];
        open.extend(maps.into_iter().flat_map(|name| node.named(name)).map(|(_, schema)| schema));
    }
}

/// Reports whether a predicate holds for any schema in a schema.
pub(super) fn any<'d>(schema: &'d Value, holds: &impl Fn(Props<'d>) -> bool) -> bool {
    let mut found = false;
    each(schema, &mut |node| found |= holds(node));
    found
}
