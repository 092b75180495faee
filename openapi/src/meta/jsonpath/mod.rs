//! JSONPath as in the printer columns of custom kinds: `.spec.ports[0].port`,
//! `.status.conditions[?(@.type=="Ready")].status`.
//!
//! The language is that of kubectl's templates, without the braces. A path that does not apply to an object selects
//! nothing; it never fails.

mod parse;

use serde_json::Value;

/// A parsed path.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPath {
    steps: Vec<JsonPathStep>,
}

#[derive(Clone, PartialEq, Debug)]
enum JsonPathStep {
    /// `.name` or `['name']`
    Field(String),
    /// `[1]`, `[-1]`, `[1:3]`, `[::2]`
    Slice { start: Option<i64>, end: Option<i64>, step: i64, single: bool },
    /// `.*`, `[*]`
    Every,
    /// `..`: the value and all its descendants.
    Deep,
    /// `[?(@.left == right)]`
    Filter { left: FilterOperand, test: FilterTest, right: FilterOperand },
    /// `[a,b]`
    Union(Vec<JsonPath>),
    /// `$`
    Root,
}

#[derive(Clone, PartialEq, Debug)]
enum FilterOperand {
    Path(JsonPath),
    Literal(Value),
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum FilterTest {
    Exists,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

/// The error for a text that is not a JSONPath.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJsonPath(String);

/// Maximum number of values selected by one step. It bounds paths that are built to select too many.
const FOUND_MAX: usize = 10_000;
/// Maximum number of values visited. Nested filters visit the same values repeatedly.
const STEPS_MAX: usize = 100_000;

/// The remaining number of values to visit.
struct StepBudget(usize);

impl StepBudget {
    /// Subtracts `count`. Returns none if fewer remain.
    fn take(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.checked_sub(count)?;
        Some(())
    }
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, InvalidJsonPath> {
        parse::path(text)
    }

    /// Returns the first selected value.
    pub fn first<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.follow(object, object, &mut StepBudget(STEPS_MAX))?.first().copied()
    }

    /// Returns every selected value; none if the path cannot be evaluated.
    fn follow<'v>(
        &self,
        root: &'v Value,
        start: &'v Value,
        steps: &mut StepBudget,
    ) -> Option<Vec<&'v Value>> {
        let mut at = vec![start];
        for step in &self.steps {
            at = step.take(root, &at, steps)?;
            if at.len() > FOUND_MAX {
                return None;
            }
        }
        Some(at)
    }
}

impl JsonPathStep {
    fn take<'v>(
        &self,
        root: &'v Value,
        from: &[&'v Value],
        steps: &mut StepBudget,
    ) -> Option<Vec<&'v Value>> {
        let mut found = Vec::new();
        for &value in from {
            let before = found.len();
            match self {
                JsonPathStep::Root => found.push(root),
                JsonPathStep::Field(name) => found.extend(value.get(name)),
                JsonPathStep::Every => found.extend(inside(value)),
                JsonPathStep::Deep => deep(value, &mut found),
                JsonPathStep::Slice { start, end, step, single } => {
                    let Value::Array(items) = value else { return None };
                    found.extend(slice(items, (*start, *end), *step, *single)?);
                }
                JsonPathStep::Filter { left, test, right } => {
                    let Value::Array(items) = value else { return None };
                    for item in items {
                        steps.take(1)?;
                        let (left, right) = (left.value(root, item, steps)?, right.value(root, item, steps)?);
                        if test.holds(left, right)? {
                            found.push(item);
                        }
                    }
                }
                JsonPathStep::Union(paths) => {
                    for path in paths {
                        found.extend(path.follow(root, value, steps)?);
                    }
                }
            }
            steps.take(1 + found.len() - before)?;
        }
        Some(found)
    }
}

fn inside(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn deep<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    if found.len() <= FOUND_MAX {
        found.push(value);
        inside(value).for_each(|value| deep(value, found));
    }
}

/// Returns the selected items; none if the index or the range is invalid.
fn slice(
    items: &[Value],
    (start, end): (Option<i64>, Option<i64>),
    step: i64,
    single: bool,
) -> Option<Vec<&Value>> {
    let length = items.len() as i64;
    let from_end = |index: i64| if index < 0 { index + length } else { index };
    let start = from_end(start.unwrap_or(0));
    let end = match (single, end) {
        (true, _) => start.saturating_add(1),
        (false, Some(end)) => from_end(end).min(length),
        (false, None) => length,
    };
    if single && !(0..length).contains(&start) || start < 0 || step < 1 || start > end {
        return None;
    }
    Some((start..end).step_by(step as usize).filter_map(|index| items.get(index as usize)).collect())
}

impl FilterOperand {
    /// Returns the value to compare; an absent one is allowed. Returns none for several values, which cannot be
    /// compared.
    fn value<'v>(
        &'v self,
        root: &'v Value,
        item: &'v Value,
        steps: &mut StepBudget,
    ) -> Option<Option<&'v Value>> {
        match self {
            FilterOperand::Nothing => Some(None),
            FilterOperand::Literal(value) => Some(Some(value)),
            FilterOperand::Path(path) => {
                let found = path.follow(root, item, steps)?;
                (found.len() <= 1).then(|| found.first().copied())
            }
        }
    }
}

impl FilterTest {
    /// Evaluates the comparison. Returns none if the values cannot be compared.
    fn holds(self, left: Option<&Value>, right: Option<&Value>) -> Option<bool> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        if self == FilterTest::Exists {
            return Some(left.is_some());
        }
        let (Some(left), Some(right)) = (left, right) else { return Some(false) };
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => left.cmp(right),
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) if left.is_f64() == right.is_f64() => {
                left.as_f64()?.partial_cmp(&right.as_f64()?)?
            }
            _ => return None,
        };
        Some(match self {
            FilterTest::Exists => true,
            FilterTest::Equal => order == Equal,
            FilterTest::Unequal => order != Equal,
            FilterTest::Less => order == Less,
            FilterTest::LessOrEqual => order != Greater,
            FilterTest::More => order == Greater,
            FilterTest::MoreOrEqual => order != Less,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_the_same_values_as_kubectl() {
        let object = json!({
            "spec": { "size": 3, "a.b": "dotted", "ports": [{ "port": 80 }, { "port": 443 }], "on": true },
            "status": { "conditions": [
                { "type": "Synced", "status": "False" },
                { "type": "Ready", "status": "True", "weight": 5 },
            ]},
        });
        let check = |path: &str, expected: Value| {
            let found = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(found.first(&object).cloned().unwrap_or_default(), expected, "{path}");
        };
        check(".spec.size", json!(3));
        check("$.spec.size", json!(3));
        check(r".spec.a\.b", json!("dotted"));
        check(".spec['a.b']", json!("dotted"));
        check(".spec.ports[0].port", json!(80));
        check(".spec.ports[-1].port", json!(443));
        check(".spec.ports[1:].port", json!(443));
        check(".spec.ports[*].port", json!(80));
        check(".spec.ports[0,1].port", json!(80));
        check(".spec.ports[7].port", json!(null));
        check(".spec.ports.port", json!(null));
        check(".spec.missing.port", json!(null));
        check(r#".status.conditions[?(@.type=="Ready")].status"#, json!("True"));
        check(r#".status.conditions[?(@.type == 'Ready')].status"#, json!("True"));
        check(".status.conditions[?(@.weight>4)].type", json!("Ready"));
        check(".status.conditions[?(@.weight)].type", json!("Ready"));
        check(".status.conditions[?(@.weight=='x')].type", json!(null));
        check("..weight", json!(5));
    }

    /// Each filter visits the whole list for every item of the filter around it.
    #[test]
    fn filters_inside_filters_of_a_custom_column_end() {
        let object = json!({ "a": vec![json!({ "b": 1 }); 30] });
        let nested = |depth: usize| {
            let inner = (0..depth).fold("@.missing".to_owned(), |inner, _| format!("$.a[?({inner})]"));
            JsonPath::parse(&inner).expect("a path")
        };
        let followed = |depth: usize| nested(depth).follow(&object, &object, &mut StepBudget(STEPS_MAX));
        assert_eq!(followed(2), Some(Vec::new()));
        assert_eq!(followed(12), None);
    }

    #[test]
    fn an_index_beyond_all_lists_leads_a_custom_column_nowhere() {
        let path = JsonPath::parse(&format!(".a[{}]", i64::MAX)).expect("a path");
        assert_eq!(path.first(&json!({ "a": [1] })), None);
    }

    #[test]
    fn invalid_paths_are_refused() {
        for text in [".spec.a[", ".spec.a[]", ".a[?(@.b", ".a[x]", ".a[?(@.b=='c']"] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }
}
