//! Label selectors: `app=web,tier in (front,back),!canary`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

use super::{SelectorError, grammar};
use crate::meta::field::FieldError;
use crate::meta::{field, names};

/// A label selector. All requirements must match; the empty selector matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LabelSelector {
    pub requirements: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted and without duplicates. One value for `Equal`, `NotEqual`, `GreaterThan` and `LessThan`; none for
    /// `Exists` and
    /// `Absent`.
    pub values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    In,
    NotIn,
    /// `=` and `==`.
    Equal,
    NotEqual,
    Exists,
    Absent,
    /// `>`, for integers.
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut requirements = grammar::parse(text).map_err(SelectorError)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    /// Converts a `LabelSelector` inside an object: `matchLabels` and `matchExpressions`. Returns none for another
    /// form, which validation rejects.
    pub fn from_value(value: &Value) -> Option<LabelSelector> {
        let object = value.as_object()?;
        let mut requirements = Vec::new();
        if let Some(labels) = object.get("matchLabels").filter(|value| !value.is_null()) {
            for (key, value) in labels.as_object()? {
                let values = vec![value.as_str()?.to_owned()];
                requirements.push(Requirement { key: key.clone(), operator: Operator::Equal, values });
            }
        }
        if let Some(expressions) = object.get("matchExpressions").filter(|value| !value.is_null()) {
            for expression in expressions.as_array()? {
                requirements.push(Requirement::from_value(expression)?);
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Some(LabelSelector { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Reports whether all requirements match. `lookup` returns the value of a label.
    pub fn matches<'a>(&self, lookup: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(lookup(&requirement.key)))
    }
}

impl Requirement {
    pub(super) fn new(
        key: String,
        operator: Operator,
        mut values: Vec<String>,
    ) -> Result<Requirement, String> {
        values.sort_unstable();
        values.dedup();
        let mut errors = Vec::new();
        let faults = names::qualified_name(&key);
        if !faults.is_empty() {
            errors.push(FieldError::invalid("key", key.as_str(), faults.join("; ")));
        }
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            let not_numbers = values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err());
            errors.extend(not_numbers.map(|(index, value)| {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                FieldError::invalid(format!("values[{index}]"), value.as_str(), detail)
            }));
        }
        for (index, value) in values.iter().enumerate() {
            let faults = names::label_value(value);
            if !faults.is_empty() {
                errors.push(FieldError::invalid(
                    format!("values[{index}][{key}]"),
                    value.as_str(),
                    faults.join("; "),
                ));
            }
        }
        match errors.is_empty() {
            true => Ok(Requirement { key, operator, values }),
            false => Err(field::summary(&errors)),
        }
    }

    /// Converts an item of `matchExpressions` in a label selector.
    fn from_value(value: &Value) -> Option<Requirement> {
        let requirement = Requirement::from_node_selector(value)?;
        let is_numeric = matches!(requirement.operator, Operator::GreaterThan | Operator::LessThan);
        (!is_numeric).then_some(requirement)
    }

    /// Converts a node selector requirement, which also has the operators `Gt` and `Lt`.
    pub fn from_node_selector(value: &Value) -> Option<Requirement> {
        let operator = match value.get("operator")?.as_str()? {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::Absent,
            "Gt" => Operator::GreaterThan,
            "Lt" => Operator::LessThan,
            _ => return None,
        };
        let listed = match value.get("values") {
            None | Some(Value::Null) => Vec::new(),
            Some(values) => values
                .as_array()?
                .iter()
                .map(|value| value.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()?,
        };
        Requirement::new(value.get("key")?.as_str()?.to_owned(), operator, listed).ok()
    }

    /// Reports whether a label with this value, or an absent label, meets the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        self.operator.matches(&self.values, label)
    }
}

impl Operator {
    /// Reports whether a label, which may be absent, relates to these values in this way.
    pub fn matches(self, values: &[String], label: Option<&str>) -> bool {
        let is_listed = label.is_some_and(|label| values.iter().any(|value| value == label));
        let number = |text: &str| text.parse::<i64>().ok();
        let compare = || Some(number(label?)?.cmp(&number(values.first()?)?));
        match self {
            Operator::In | Operator::Equal => is_listed,
            // As in Kubernetes, an absent label matches.
            Operator::NotIn | Operator::NotEqual => !is_listed,
            Operator::Exists => label.is_some(),
            Operator::Absent => label.is_none(),
            Operator::GreaterThan => compare() == Some(Ordering::Greater),
            Operator::LessThan => compare() == Some(Ordering::Less),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, values) = (&self.key, self.values.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equal => write!(f, "{key}={values}"),
            Operator::NotEqual => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::Absent => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn valid_selectors_are_parsed() {
        for (text, expected) in [
            ("", ""),
            ("a=b", "a=b"),
            ("a==b", "a=b"),
            (" a  !=\tb ", "a!=b"),
            ("b=2,a=1", "a=1,b=2"),
            ("a", "a"),
            ("!a", "!a"),
            ("! a , b", "!a,b"),
            ("a in (y,x,y)", "a in (x,y)"),
            ("a notin (x)", "a notin (x)"),
            ("a in ()", "a in ()"),
            ("a in (,x,,)", "a in (,x)"),
            ("a=", "a="),
            ("a=,b", "a=,b"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("in", "in"),
            ("a=in", "a=in"),
            ("example.com/a=b", "example.com/a=b"),
            ("a>1,b<2", "a>1,b<2"),
        ] {
            assert_eq!(LabelSelector::parse(text).expect(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_selectors_are_refused() {
        for (text, expected) in [
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in x", "unable to parse requirement: found 'x' expected: '('"),
            ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
            ("a==(", "unable to parse requirement: found '(', expected: identifier"),
            ("!a in (x)", "found 'in', expected: ',' or 'end of string'"),
            ("!", "unable to parse requirement: found '', expected: identifier"),
            (
                "a>x",
                "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
        ] {
            assert_eq!(LabelSelector::parse(text).expect_err(text).to_string(), expected, "{text}");
        }
        let error_of = |text: &str| LabelSelector::parse(text).expect_err(text).to_string();
        let start =
            "unable to parse requirement: <nil>: Invalid value: \"a/b/c\": a valid label key must consist";
        assert!(error_of("a/b/c=d").starts_with(start), "{}", error_of("a/b/c=d"));
        let start =
            "unable to parse requirement: values[0][a]: Invalid value: \"b@d\": a valid label must be";
        assert!(error_of("a=b@d").starts_with(start), "{}", error_of("a=b@d"));
    }

    #[test]
    fn matching() {
        let labels = |key: &str| match key {
            "app" => Some("web"),
            "size" => Some("12"),
            "empty" => Some(""),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app=db", false),
            ("gone=web", false),
            ("app!=web", false),
            ("gone!=web", true),
            ("app in (db,web)", true),
            ("gone in (db,web)", false),
            ("app notin (db)", true),
            ("gone notin (db)", true),
            ("app", true),
            ("gone", false),
            ("!app", false),
            ("!gone", true),
            ("empty=", true),
            ("gone=", false),
            ("size>11", true),
            ("size>12", false),
            ("size<13,app=web", true),
            ("app>1", false),
            ("gone<1", false),
        ] {
            assert_eq!(LabelSelector::parse(text).expect(text).matches(labels), expected, "{text}");
        }
    }

    #[test]
    fn selectors_inside_objects() {
        let read = |value: Value| LabelSelector::from_value(&value).map(|selector| selector.to_string());
        for (value, expected) in [
            (json!({}), Some("")),
            (json!({"matchLabels": {"b": "2", "a": "1"}}), Some("a=1,b=2")),
            (
                json!({"matchExpressions": [{"key": "t", "operator": "In", "values": ["x", "y"]},
                                            {"key": "c", "operator": "DoesNotExist"}]}),
                Some("!c,t in (x,y)"),
            ),
            (json!({"matchExpressions": [{"key": "t", "operator": "Like"}]}), None),
            (json!({"matchExpressions": [{"key": "t", "operator": "Gt", "values": ["3"]}]}), None),
            (json!("app=web"), None),
        ] {
            assert_eq!(read(value).as_deref(), expected);
        }
        let above = Requirement::from_node_selector(&json!({"key": "t", "operator": "Gt", "values": ["3"]}));
        assert!(above.is_some_and(|above| above.matches(Some("4")) && !above.matches(Some("3"))));
    }

    proptest! {
        #[test]
        fn printing_and_parsing_agree(
            pairs in prop::collection::vec(("[a-z]{1,3}(/[a-z]{1,3})?", prop::collection::vec("[a-z0-9]{0,3}", 1..3)), 0..4),
            pick in 0usize..6,
        ) {
            let operators = ["=", "!=", " in ", " notin ", "", "!"];
            let text: Vec<String> = pairs.iter().enumerate().map(|(index, (key, values))| {
                match operators[(pick + index) % operators.len()] {
                    operator @ (" in " | " notin ") => format!("{key}{operator}({})", values.join(",")),
                    "" => key.clone(),
                    "!" => format!("!{key}"),
                    operator => format!("{key}{operator}{}", values[0]),
                }
            }).collect();
            let parsed = LabelSelector::parse(&text.join(",")).expect("a selector");
            prop_assert_eq!(LabelSelector::parse(&parsed.to_string()).expect("its own text"), parsed);
        }

        #[test]
        fn any_text_parses_or_fails_without_a_panic(text in "[a-z!=<>(), \\x00/é]{0,24}") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
