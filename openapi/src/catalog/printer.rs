//! The values of table cells.
//!
//! Most cells show a field, a count or a sum of fields and are data. A cell that needs code is a named function in
//! `catalog/columns`. Neither ever fails: an object without the field gets a placeholder.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta::jsonpath::JsonPath;
use api::meta::go;

/// How to compute one cell. Paths are JSON pointers into the object.
#[derive(Clone, Debug)]
pub enum PrinterCell {
    Blank,
    /// A scalar as text, or the second text if it is absent or empty.
    Text(Arc<str>, Arc<str>),
    /// A value as it is, or the second text if it is absent.
    Plain(Arc<str>, Arc<str>),
    /// A number; 0 if absent.
    Integer(Arc<str>),
    /// A boolean, or the second value if it is absent.
    Truth(Arc<str>, bool),
    /// The number of items or entries.
    Count(Arc<str>),
    /// Items joined by commas, or the second text if there are none.
    Join(Arc<str>, Arc<str>),
    /// One field of each item, joined by commas, or the third text if there are no items.
    JoinEach(Arc<str>, Arc<str>, Arc<str>),
    /// `have/want`.
    Ratio(Arc<str>, Arc<str>),
    /// `key=value,…` of a map.
    Labels(Arc<str>),
    /// A label selector in the notation of kubectl.
    Selector(Arc<str>),
    /// The rounded time since then.
    Age(Arc<str>),
    Made(fn(&Value, Timestamp) -> Value),
    /// The first value that a JSONPath of a definition selects, converted to the type; `null` if it selects none.
    Path(Arc<JsonPath>, ColumnType),
}

/// The column types that a definition can declare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnType {
    Boolean,
    Date,
    Integer,
    Number,
    String,
}

impl ColumnType {
    pub fn parse(word: &str) -> Option<ColumnType> {
        match word {
            "boolean" => Some(ColumnType::Boolean),
            "date" => Some(ColumnType::Date),
            "integer" => Some(ColumnType::Integer),
            "number" => Some(ColumnType::Number),
            "string" => Some(ColumnType::String),
            _ => None,
        }
    }

    /// Converts a value to a cell of this type; `null` for a value of another type.
    fn print(self, value: &Value, now: Timestamp) -> Value {
        match (self, value) {
            (_, Value::Null) => Value::Null,
            (ColumnType::String, Value::String(_)) => value.clone(),
            (ColumnType::String, Value::Number(number)) => go::number(number).into(),
            (ColumnType::String, other) => other.to_string().into(),
            (ColumnType::Integer, Value::Number(number)) => {
                number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)).into()
            }
            (ColumnType::Number, Value::Number(_)) | (ColumnType::Boolean, Value::Bool(_)) => value.clone(),
            (ColumnType::Date, Value::String(text)) if text.is_empty() || text == "null" => {
                "<unknown>".into()
            }
            (ColumnType::Date, Value::String(text)) => match text.parse::<Timestamp>() {
                Ok(then) => duration(seconds_between(then, now)).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

impl PrinterCell {
    /// Returns the cell of this object at the time `now`.
    pub fn fill(&self, object: &Value, now: Timestamp) -> Value {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
        match self {
            PrinterCell::Blank => json!(""),
            PrinterCell::Text(pointer, absent) => match text(object, pointer) {
                text if text.is_empty() => json!(**absent),
                text => text.into(),
            },
            PrinterCell::Plain(pointer, absent) => {
                object.pointer(pointer).cloned().unwrap_or_else(|| json!(**absent))
            }
            PrinterCell::Integer(pointer) => number(pointer).into(),
            PrinterCell::Truth(pointer, absent) => {
                object.pointer(pointer).and_then(Value::as_bool).unwrap_or(*absent).into()
            }
            PrinterCell::Count(pointer) => count(object, pointer).into(),
            PrinterCell::Join(pointer, absent) => join(items(object, pointer).map(scalar), absent),
            PrinterCell::JoinEach(pointer, field, absent) => {
                join(items(object, pointer).map(|item| text(item, field)), absent)
            }
            PrinterCell::Ratio(have, want) => format!("{}/{}", number(have), number(want)).into(),
            PrinterCell::Labels(pointer) => labels(object.pointer(pointer)).into(),
            PrinterCell::Selector(pointer) => selector(object.pointer(pointer)).into(),
            PrinterCell::Age(pointer) => since(object, pointer, now).into(),
            PrinterCell::Made(make) => make(object, now),
            PrinterCell::Path(path, kind) => {
                path.first(object).map_or(Value::Null, |value| kind.print(value, now))
            }
        }
    }
}

/// Returns the scalar at a pointer as text; empty if there is none.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).map(scalar).unwrap_or_default()
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        _ => String::new(),
    }
}

/// Returns the items of the list at a pointer; none if there is no list.
pub fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn count(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Array(items)) => items.len(),
        Some(Value::Object(entries)) => entries.len(),
        _ => 0,
    }
}

fn join(texts: impl Iterator<Item = String>, absent: &str) -> Value {
    match texts.collect::<Vec<_>>().join(",") {
        text if text.is_empty() => absent.into(),
        text => text.into(),
    }
}

/// Formats a map as sorted `key=value,…`; an empty map as `<none>`.
pub fn labels(map: Option<&Value>) -> String {
    let entries: BTreeMap<&String, String> = map
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key, scalar(value)))
        .collect();
    match entries.is_empty() {
        true => "<none>".to_owned(),
        false => entries.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","),
    }
}

/// Formats a label selector as `app=web,tier in (a,b),!old`. A selector without requirements is `<none>`.
///
/// `api::meta::selector` is for matching: it rejects invalid selectors and removes duplicate values. A column shows the
/// selector as it is stored, as in Kubernetes.
pub fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return "<none>".to_owned() };
    let mut requirements: Vec<(String, String)> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        requirements.push((key.clone(), format!("{key}={}", scalar(value))));
    }
    for expression in items(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let mut values: Vec<String> = items(expression, "/values").map(scalar).collect();
        values.sort();
        let written = match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("Exists") => key.clone(),
            Some("DoesNotExist") => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        requirements.push((key, written));
    }
    requirements.sort_by(|one, other| one.0.cmp(&other.0));
    match requirements.is_empty() {
        true => "<none>".to_owned(),
        false => requirements.into_iter().map(|(_, written)| written).collect::<Vec<_>>().join(","),
    }
}

/// Returns the rounded time between the time at a pointer and `now`.
pub fn since(object: &Value, pointer: &str, now: Timestamp) -> String {
    match time(object, pointer) {
        Some(then) => duration(seconds_between(then, now)),
        None => "<unknown>".to_owned(),
    }
}

/// Returns the time at a pointer.
pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    object.pointer(pointer)?.as_str()?.parse().ok()
}

pub fn seconds_between(from: Timestamp, to: Timestamp) -> i64 {
    to.duration_since(from).as_secs()
}

/// Formats seconds in the rounded form of tables: two units while the larger one is small, then one.
pub fn duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, unit: &str, small: i64, rest: &str| match seconds % large / small {
        0 => format!("{}{unit}", seconds / large),
        left => format!("{}{unit}{left}{rest}", seconds / large),
    };
    match seconds {
        // Two clocks may differ by a second; more is an error.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, "m", 1, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, "h", MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, "d", HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded() {
        let check = |seconds: i64, expected: &str| assert_eq!(duration(seconds), expected, "{seconds}");
        check(-2, "<invalid>");
        check(-1, "0s");
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(121, "2m1s");
        check(600, "10m");
        check(3 * 3600 - 1, "179m");
        check(3 * 3600, "3h");
        check(3 * 3600 + 60, "3h1m");
        check(8 * 3600, "8h");
        check(47 * 3600, "47h");
        check(48 * 3600, "2d");
        check(49 * 3600, "2d1h");
        check(8 * 86400, "8d");
        check(729 * 86400, "729d");
        check(731 * 86400, "2y1d");
        check(10 * 365 * 86400, "10y");
    }

    #[test]
    fn selectors_are_written_as_people_write_them() {
        let check = |json: Value, expected: &str| assert_eq!(selector(Some(&json)), expected, "{json}");
        check(json!({}), "<none>");
        check(json!({ "matchLabels": { "b": "2", "a": "1" } }), "a=1,b=2");
        check(
            json!({ "matchLabels": { "m": "1" }, "matchExpressions": [
                { "key": "z", "operator": "In", "values": ["y", "x"] },
                { "key": "a", "operator": "DoesNotExist" },
                { "key": "b", "operator": "Exists" },
            ]}),
            "!a,b,m=1,z in (x,y)",
        );
        assert_eq!(selector(None), "<none>");
    }

    #[test]
    fn an_absent_value_has_a_placeholder() {
        let now: Timestamp = "2026-11-16T00:01:00Z".parse().unwrap();
        let object = json!({
            "name": "web", "size": 3, "list": ["a", "b"], "each": [{ "name": "x" }, { "name": "y" }],
            "created": "2026-11-16T00:00:00Z",
        });
        let check =
            |cell: PrinterCell, expected: Value| assert_eq!(cell.fill(&object, now), expected, "{cell:?}");
        check(PrinterCell::Text("/name".into(), "".into()), json!("web"));
        check(PrinterCell::Text("/none".into(), "<none>".into()), json!("<none>"));
        check(PrinterCell::Plain("/size".into(), "".into()), json!(3));
        check(PrinterCell::Integer("/none".into()), json!(0));
        check(PrinterCell::Truth("/none".into(), true), json!(true));
        check(PrinterCell::Count("/list".into()), json!(2));
        check(PrinterCell::Join("/list".into(), "".into()), json!("a,b"));
        check(PrinterCell::JoinEach("/each".into(), "/name".into(), "".into()), json!("x,y"));
        check(PrinterCell::Ratio("/none".into(), "/size".into()), json!("0/3"));
        check(PrinterCell::Age("/created".into()), json!("60s"));
        check(PrinterCell::Age("/none".into()), json!("<unknown>"));
    }
}
