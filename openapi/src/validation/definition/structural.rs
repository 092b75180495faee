//! Validation of structural schemas, which can prune an object.
//!
//! Every field has a type outside of all conditions, so the known fields of an object do not depend on its values.
//! Conditions only restrict values; they add no fields, types or defaults.

use api::meta::field::FieldError;

use super::FAULTS_MAX;
use super::budget::Budget;
use super::props::Props;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

#[derive(Clone, Copy, PartialEq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

/// Returns everything that keeps a schema from being structural, sorted by text.
pub(super) fn validate(schema: Props<'_>, path: &str, budget: &mut Budget) -> Vec<FieldError> {
    let mut walk = StructuralSchemaCheck { budget, found: Vec::new() };
    walk.schema(schema, SchemaLevel::Root, path);
    walk.complete_value(schema, Some(schema), path, path);
    walk.found.sort_by_cached_key(ToString::to_string);
    walk.found
}

struct StructuralSchemaCheck<'b> {
    budget: &'b mut Budget,
    found: Vec<FieldError>,
}

impl StructuralSchemaCheck<'_> {
    fn required(&mut self, field: String, detail: impl Into<String>) {
        self.found.push(FieldError::required(field, detail));
    }

    fn forbidden(&mut self, field: String, detail: &str) {
        self.found.push(FieldError::forbidden(field, detail));
    }

    /// Reports whether the maximum number of errors is reached.
    fn is_full(&self) -> bool {
        self.found.len() >= FAULTS_MAX
    }

    fn schema(&mut self, schema: Props<'_>, level: SchemaLevel, path: &str) {
        if self.is_full() {
            return;
        }
        let kind = schema.kind();
        match schema.schema("items") {
            Some(items) => self.schema(items, SchemaLevel::Item, &format!("{path}.items")),
            None if kind == "array" => self.required(format!("{path}.items"), "must be specified"),
            None => {}
        }
        for (name, property) in schema.properties() {
            self.schema(property, SchemaLevel::Field, &format!("{path}.properties[{name}]"));
        }
        let values = format!("{path}.additionalProperties");
        if schema.has("additionalProperties") {
            if level == SchemaLevel::Root {
                self.forbidden(values.clone(), "must not be used at the root");
            }
            if let Some(inner) = schema.schema("additionalProperties") {
                self.schema(inner, SchemaLevel::Field, &values);
            }
        }
        for extension in [PRESERVE, EMBEDDED] {
            if schema.is(INT_OR_STRING) && schema.is(extension) {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                self.found.push(FieldError::invalid(format!("{path}.{extension}"), true, detail));
            }
        }
        let both = schema.names_both_types();
        let both_first = schema.schemas("allOf").next().is_some_and(Props::names_both_types);
        self.conditions(schema, both, both_first, path);
        self.kind(schema, level, path);
        if schema.is(EMBEDDED) && schema.has("additionalProperties") {
            self.forbidden(values, "must not be used if x-kubernetes-embedded-resource is set");
        }
        self.metadata(schema, level, path);
        if schema.is(EMBEDDED) && !schema.is(PRESERVE) && schema.properties().next().is_none() {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                          x-kubernetes-preserve-unknown-fields";
            self.required(format!("{path}.properties"), detail);
        }
    }

    fn kind(&mut self, schema: Props<'_>, level: SchemaLevel, path: &str) {
        let (kind, at) = (schema.kind(), format!("{path}.type"));
        if schema.is(EMBEDDED) && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match kind {
                "" => self.required(at.clone(), detail),
                other => self.found.push(FieldError::invalid(at.clone(), other, detail)),
            }
        } else if kind.is_empty() && !schema.is(INT_OR_STRING) && !schema.is(PRESERVE) {
            let detail = match level {
                SchemaLevel::Root => "must not be empty at the root",
                SchemaLevel::Item => "must not be empty for specified array items",
                SchemaLevel::Field => "must not be empty for specified object fields",
            };
            self.required(at.clone(), detail);
        }
        if level == SchemaLevel::Root && !kind.is_empty() && kind != "object" {
            self.found.push(FieldError::invalid(at, kind, "must be object at the root"));
        }
    }

    /// Validates apiVersion, kind and metadata, whose types a definition cannot change.
    fn metadata(&mut self, schema: Props<'_>, level: SchemaLevel, path: &str) {
        let is_object = level == SchemaLevel::Root || schema.is(EMBEDDED);
        for name in ["kind", "apiVersion"] {
            if let Some(property) =
                schema.property(name).filter(|property| is_object && property.kind() != "string")
            {
                let at = format!("{path}.properties[{name}].type");
                self.found.push(FieldError::invalid(at, property.kind(), "must be string"));
            }
        }
        let Some(metadata) = schema.property("metadata") else { return };
        let at = format!("{path}.properties[metadata]");
        if is_object && metadata.kind() != "object" {
            self.found.push(FieldError::invalid(format!("{at}.type"), metadata.kind(), "must be object"));
        }
        let names_only = metadata.properties().all(|(name, _)| matches!(name, "name" | "generateName"));
        let metadata_fields = metadata.0.as_object().into_iter().flatten();
        let mut other = metadata_fields.filter(|(name, value)| {
            !matches!(name.as_str(), "type" | "properties" | "default")
                && !value.is_null()
                && **value != false
        });
        if level == SchemaLevel::Root && (!names_only || other.next().is_some()) {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly \
                          specified";
            self.forbidden(at, detail);
        }
    }

    /// Validates the conditions of a schema, and its pattern.
    fn conditions(&mut self, schema: Props<'_>, skip_any: bool, skip_first_any: bool, path: &str) {
        if !skip_any {
            for (index, condition) in schema.schemas("anyOf").enumerate() {
                self.condition(condition, false, &format!("{path}.anyOf[{index}]"));
            }
        }
        for (index, condition) in schema.schemas("allOf").enumerate() {
            self.condition(condition, skip_first_any && index == 0, &format!("{path}.allOf[{index}]"));
        }
        for (index, condition) in schema.schemas("oneOf").enumerate() {
            self.condition(condition, false, &format!("{path}.oneOf[{index}]"));
        }
        if let Some(not) = schema.schema("not") {
            self.condition(not, false, &format!("{path}.not"));
        }
        let pattern = schema.text("pattern");
        if let Some(fault) =
            Some(pattern).filter(|text| !text.is_empty()).and_then(|text| self.budget.spend(text))
        {
            let detail = format!("must be a valid regular expression, but isn't: {fault}");
            self.found.push(FieldError::invalid(format!("{path}.pattern"), pattern, detail));
        }
    }

    fn condition(&mut self, condition: Props<'_>, skip_any: bool, path: &str) {
        const EMPTY: &str = "must be empty to be structural";
        const UNDEFINED: &str = "must be undefined to be structural";
        const FALSE: &str = "must be false to be structural";
        const ORDER: [(&str, &str); 12] = [
            ("type", EMPTY),
            ("additionalProperties", UNDEFINED),
            ("default", UNDEFINED),
            ("title", EMPTY),
            ("description", EMPTY),
            ("nullable", FALSE),
            (PRESERVE, FALSE),
            (EMBEDDED, FALSE),
            (INT_OR_STRING, FALSE),
            ("x-kubernetes-list-map-keys", EMPTY),
            ("x-kubernetes-list-type", UNDEFINED),
            ("x-kubernetes-map-type", UNDEFINED),
        ];
        if self.is_full() {
            return;
        }
        self.conditions(condition, skip_any, false, path);
        if let Some(items) = condition.schema("items") {
            self.condition(items, false, &format!("{path}.items"));
        }
        for (name, property) in condition.properties() {
            self.condition(property, false, &format!("{path}.properties[{name}]"));
        }
        for (name, detail) in ORDER {
            let is_set = condition.get(name).is_some_and(|value| {
                *value != false && value.as_str() != Some("") && !value.as_array().is_some_and(Vec::is_empty)
            });
            if is_set {
                self.forbidden(format!("{path}.{name}"), detail);
            }
        }
        if !condition.list("x-kubernetes-validations").is_empty() {
            self.forbidden(format!("{path}.x-kubernetes-validations"), EMPTY);
        }
        if condition.property("metadata").is_some() {
            let detail = "must not be specified in a nested context";
            self.forbidden(format!("{path}.properties[metadata]"), detail);
        }
    }

    /// Checks that fields in the conditions of a value also exist outside of them.
    fn complete_value(&mut self, value: Props<'_>, schema: Option<Props<'_>>, at: &str, defined_in: &str) {
        if let Some(not) = value.schema("not") {
            self.complete(not, schema, at, &format!("{defined_in}.not"));
        }
        for list in ["allOf", "anyOf", "oneOf"] {
            for (index, condition) in value.schemas(list).enumerate() {
                self.complete(condition, schema, at, &format!("{defined_in}.{list}[{index}]"));
            }
        }
    }

    fn complete(&mut self, condition: Props<'_>, schema: Option<Props<'_>>, at: &str, defined_in: &str) {
        if self.is_full() {
            return;
        }
        let Some(schema) = schema else {
            return self.required(at.to_owned(), format!("because it is defined in {defined_in}"));
        };
        self.complete_value(condition, Some(schema), at, defined_in);
        if let Some(items) = condition.schema("items") {
            self.complete(
                items,
                schema.schema("items"),
                &format!("{at}.items"),
                &format!("{defined_in}.items"),
            );
        }
        for (name, property) in condition.properties() {
            let (at, defined_in) =
                (format!("{at}.properties[{name}]"), format!("{defined_in}.properties[{name}]"));
            self.complete(property, schema.property(name), &at, &defined_in);
        }
    }
}
