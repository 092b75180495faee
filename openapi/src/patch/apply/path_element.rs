//! A path element: one step into a field of an object or to an item of a list.
//!
//! | in managedFields | in a message | selects |
//! |---|---|---|
//! | `f:spec` | `.spec` | a field |
//! | `k:{"name":"web"}` | `[name="web"]` | the item with these values in its key fields |
//! | `v:"x"` | `[="x"]` | the item that is this value |
//! | `v:"x"` | `[="x"]` | the item with this value |
//! | `i:0` | `[0]` | the item at this index |
//!
//! Elements borrow from the objects they belong to: most live no longer than one request.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use api::meta::go;

#[derive(Clone, Debug)]
pub(super) enum PathElement<'a> {
    Field(&'a str),
    /// Sorted by the names of the key fields.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    Value(Cow<'a, Value>),
    Index(i64),
}

/// The error for a text that is not a path element and cannot become one in a future version.
#[derive(Debug)]
pub(super) struct InvalidPathElement;

impl<'a> PathElement<'a> {
    /// Parses an element of managedFields. Returns none for one of an unknown type.
    pub(super) fn parse(text: &'a str) -> Result<Option<PathElement<'a>>, InvalidPathElement> {
        let json = |text: &str| serde_json::from_str::<Value>(text).map_err(|_| InvalidPathElement);
        let Some((kind, rest)) = text.split_at_checked(2).filter(|(kind, _)| kind.ends_with(':')) else {
            return Err(InvalidPathElement);
        };
        Ok(Some(match kind {
            "f:" => PathElement::Field(rest),
            "v:" => PathElement::Value(Cow::Owned(json(rest)?)),
            "k:" => match json(rest)? {
                Value::Object(fields) => {
                    let fields = fields.into_iter();
                    PathElement::Key(fields.map(|(name, value)| (name.into(), Cow::Owned(value))).collect())
                }
                _ => return Err(InvalidPathElement),
            },
            "i:" => PathElement::Index(rest.parse().map_err(|_| InvalidPathElement)?),
            _ => return Ok(None),
        }))
    }

    /// Returns the element as written in managedFields.
    pub(super) fn encode(&self) -> String {
        match self {
            PathElement::Field(name) => ["f:", name].concat(),
            PathElement::Value(value) => ["v:", &json(&**value)].concat(),
            PathElement::Index(index) => format!("i:{index}"),
            PathElement::Key(fields) => {
                let mut text = String::from("k:{");
                for (index, (name, value)) in fields.iter().enumerate() {
                    text.push_str(if index > 0 { "," } else { "" });
                    text.push_str(&json(&**name));
                    text.push(':');
                    text.push_str(&json(&**value));
                }
                text.push('}');
                text
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// Encodes JSON as Go does, with characters escaped for HTML. So all servers write the same key for an item.
fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    let text = serde_json::to_string(value).expect("values have a JSON form");
    match text.contains(['&', '<', '>', '\u{2028}', '\u{2029}']) {
        false => text,
        true => text
            .replace('&', "\\u0026")
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029"),
    }
}

impl Ord for PathElement<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(one), PathElement::Field(other)) => one.cmp(other),
            (PathElement::Index(one), PathElement::Index(other)) => one.cmp(other),
            (PathElement::Value(one), PathElement::Value(other)) => compare(one, other),
            (PathElement::Key(one), PathElement::Key(other)) => {
                let pairs =
                    one.iter().zip(other).map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)));
                let differ = pairs.into_iter().find(|order| order.is_ne());
                differ.unwrap_or_else(|| one.len().cmp(&other.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PathElement<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement<'_> {}

/// Compares values of any type: numbers before strings, booleans, lists, objects, null. Numbers compare by value.
fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Number(one), Value::Number(other)) => {
            let ((one, more), (other, other_more)) = (worth(one), worth(other));
            one.total_cmp(&other).then_with(|| more.cmp(&other_more))
        }
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let differ = one.iter().zip(other).map(|(a, b)| compare(a, b)).find(|order| order.is_ne());
            differ.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let both = one.iter().zip(other);
            let differ = both.map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)));
            differ.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Returns the exact value of a number: the nearest float and the difference to it. Many integers have the same nearest
/// float; without the difference they would equal that float but not each other, which is not an order.
fn worth(number: &Number) -> (f64, i128) {
    let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match integer {
        Some(integer) => (integer as f64, integer - (integer as f64) as i128),
        // Zero and negative zero are equal.
        None => (number.as_f64().unwrap_or_default() + 0.0, 0),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Reports whether two values are equal. Numbers compare by value, not by notation.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => compare(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let mut both = one.iter().zip(other);
            one.len() == other.len() && both.all(|((a, one), (b, other))| a == b && same(one, other))
        }
        _ => one == other,
    }
}

/// Formats the element as messages show it.
impl fmt::Display for PathElement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Value(value) => write!(f, "[={}]", go::show(value)),
            PathElement::Index(index) => write!(f, "[{index}]"),
            PathElement::Key(fields) => {
                let display: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name}={}", go::show(value))).collect();
                write!(f, "[{}]", display.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_encoded_as_it_was_decoded() {
        for (text, display) in [
            ("f:spec", ".spec"),
            ("f:a.b/c", ".a.b/c"),
            ("k:{\"containerPort\":80,\"protocol\":\"TCP\"}", "[containerPort=80,protocol=\"TCP\"]"),
            ("v:\"x\\u0026y\"", "[=\"x&y\"]"),
            ("v:true", "[=true]"),
            ("i:7", "[7]"),
        ] {
            let element = PathElement::parse(text).unwrap().unwrap();
            assert_eq!((element.encode().as_str(), element.to_string().as_str()), (text, display));
        }
        assert!(PathElement::parse("z:new").unwrap().is_none(), "of a later version");
        for text in ["", "f", "fx", "k:[]", "k:{", "v:", "i:x"] {
            assert!(PathElement::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn steps_are_ordered_by_kind_and_then_by_worth() {
        let texts = [
            "f:a",
            "f:b",
            "k:{\"a\":1}",
            "k:{\"a\":1,\"b\":1}",
            "k:{\"a\":80}",
            "k:{\"a\":443}",
            "k:{\"b\":0}",
            "v:1",
            "v:1.5",
            "v:\"a\"",
            "v:false",
            "i:9",
            "i:10",
        ];
        let elements: Vec<_> = texts.iter().map(|text| PathElement::parse(text).unwrap().unwrap()).collect();
        assert!(elements.is_sorted() && elements.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(PathElement::parse("v:1.0").unwrap(), PathElement::parse("v:1").unwrap());
        assert_eq!(PathElement::parse("v:-0.0").unwrap(), PathElement::parse("v:0").unwrap());
    }

    #[test]
    fn numbers_that_are_equal_as_floats_are_in_order() {
        let ascending = [
            "-1e300",
            "-9223372036854775808",
            "9007199254740991",
            "9007199254740992",
            "9007199254740993",
            "9007199254740994.0",
            "9007199254740995",
            "18446744073709551615",
            "18446744073709551616.0",
        ];
        let numbers: Vec<Value> = ascending.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        for (index, one) in numbers.iter().enumerate() {
            for (other_index, other) in numbers.iter().enumerate() {
                assert_eq!(compare(one, other), index.cmp(&other_index), "{one} and {other}");
            }
        }
        let float = serde_json::json!(9007199254740992.0);
        assert!(same(&numbers[3], &float) && !same(&numbers[4], &float));
        let mut many: Vec<&Value> = numbers.iter().rev().chain([&float]).cycle().take(100).collect();
        many.sort_by(|one, other| compare(one, other));
        assert!(many.is_sorted_by(|one, other| compare(one, other).is_le()));
    }
}
