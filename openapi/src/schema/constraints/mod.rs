//! Constraints on values beyond their types, as custom resource definitions declare them.
//!
//! Constraints are parsed from a definition once ([`Constraints::read`]). Those inside `allOf`, `anyOf`, `oneOf` and
//! `not` are conditions: they have fields and items of their own, and hardly ever types. Validation against them is in
//! [`crate::validation`].

mod pattern;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use pattern::{InvalidPattern, Pattern};

/// All constraints of a definition on one value. Absent constraints are empty.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Constraints {
    /// The schema has no type, so its values are of any type, whatever its shape is.
    pub untyped: bool,
    /// All unknown fields of the value are preserved, whatever its type.
    pub preserve: bool,
    /// Fields that the schema does not name are invalid (`additionalProperties: false`).
    pub closed: bool,
    /// The constraints on the metadata of an embedded object.
    pub metadata: Option<crate::schema::SchemaRef>,
    /// `enum`.
    pub choices: Vec<Value>,
    pub minimum: Option<Bound>,
    pub maximum: Option<Bound>,
    pub multiple_of: Option<f64>,
    pub min_length: Option<i64>,
    pub max_length: Option<i64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<i64>,
    pub max_items: Option<i64>,
    pub min_properties: Option<i64>,
    pub max_properties: Option<i64>,
    pub all_of: Vec<Constraints>,
    pub any_of: Vec<Constraints>,
    pub one_of: Vec<Constraints>,
    pub not: Option<Box<Constraints>>,
    /// The fields from here on are for conditions; a schema has them in its shape.
    pub types: Vec<JsonType>,
    pub format: Option<Arc<str>>,
    pub required: Vec<Arc<str>>,
    pub fields: BTreeMap<Arc<str>, Constraints>,
    pub items: Option<Box<Constraints>>,
}

/// One end of a range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

/// The types of JSON Schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonType {
    Array,
    Boolean,
    Integer,
    Null,
    Number,
    Object,
    String,
}

impl JsonType {
    pub fn as_str(self) -> &'static str {
        match self {
            JsonType::Array => "array",
            JsonType::Boolean => "boolean",
            JsonType::Integer => "integer",
            JsonType::Null => "null",
            JsonType::Number => "number",
            JsonType::Object => "object",
            JsonType::String => "string",
        }
    }

    pub fn parse(word: &str) -> Option<JsonType> {
        use JsonType::{Array, Boolean, Integer, Null, Number, Object, String};
        [Array, Boolean, Integer, Null, Number, Object, String].into_iter().find(|one| one.as_str() == word)
    }

    /// Returns the type of a value. A number is an integer if it is written without a fraction.
    pub fn of(value: &Value) -> JsonType {
        match value {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(number) if number.is_i64() => JsonType::Integer,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }
}

impl Constraints {
    /// Parses the constraints of a schema on its own value; none if there are none. The schema's shape has the fields,
    /// items and type.
    pub fn read(json: &Value) -> Option<Box<Constraints>> {
        let mut rules = Constraints::value(json);
        let has_type = json["type"].as_str().is_some_and(|word| !word.is_empty());
        rules.preserve = json["x-kubernetes-preserve-unknown-fields"] == true;
        rules.untyped = !has_type && json["x-kubernetes-int-or-string"] != true;
        rules.closed = json["additionalProperties"] == false;
        (rules != Constraints::default()).then(|| Box::new(rules))
    }

    /// Parses a condition with all conditions inside it.
    fn condition(json: &Value) -> Constraints {
        let fields = json["properties"].as_object().into_iter().flatten();
        Constraints {
            types: json["type"].as_str().and_then(JsonType::parse).into_iter().collect(),
            format: supported_format(json).map(Into::into),
            required: texts(&json["required"]),
            fields: fields
                .map(|(name, field)| (name.as_str().into(), Constraints::condition(field)))
                .collect(),
            items: json
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Constraints::condition(items).into()),
            ..Constraints::value(json)
        }
    }

    fn value(json: &Value) -> Constraints {
        let count = |name: &str| json[name].as_i64();
        let conditions = |name: &str| -> Vec<Constraints> {
            json[name].as_array().into_iter().flatten().map(Constraints::condition).collect()
        };
        let bound = |name: &str, exclusive: &str| {
            json[name].as_f64().map(|value| Bound { value, exclusive: json[exclusive] == true })
        };
        Constraints {
            choices: json["enum"].as_array().cloned().unwrap_or_default(),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: json["multipleOf"].as_f64(),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: json["pattern"].as_str().filter(|text| !text.is_empty()).map(Pattern::new),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            all_of: conditions("allOf"),
            any_of: conditions("anyOf"),
            one_of: conditions("oneOf"),
            not: json.get("not").filter(|not| not.is_object()).map(|not| Constraints::condition(not).into()),
            ..Constraints::default()
        }
    }
}

/// The string formats that are validated. Others are only documentation.
const FORMATS: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Returns the format of a schema if its type can have it and it is validated.
pub fn supported_format(json: &Value) -> Option<&str> {
    let format = json["format"].as_str().filter(|format| !format.is_empty())?;
    let is_int_or_string = json["x-kubernetes-int-or-string"] == true;
    let supported = match json["type"].as_str().unwrap_or_default() {
        _ if is_int_or_string => true,
        "" | "string" => true,
        "integer" => return Some(format).filter(|format| matches!(*format, "int32" | "int64")),
        "number" => return Some(format).filter(|format| matches!(*format, "float" | "double")),
        _ => false,
    };
    Some(format).filter(|format| supported && FORMATS.contains(&&*format.replace('-', "")))
}

fn texts(list: &Value) -> Vec<Arc<str>> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Arc::from).collect()
}
