//! Cases: a verb, a base, and edits.
//!
//! ```text
//! create deployment /spec/replicas=-1
//! update service /spec/clusterIP="10.96.9.9" /spec/clusterIPs=["10.96.9.9"]
//! ```
//!
//! An edit is a JSON pointer and a value without spaces between its parts; `~` instead of a value removes. `-` as the
//! last step of a pointer appends to a list. A line that starts with `*` compares the causes as a set, because our
//! rules run in another order than those of Kubernetes. In a line that starts with `{`, text in braces is not compared,
//! because Kubernetes prints a value there as a Go struct.

use serde_json::{Value, json};

pub(crate) struct Case {
    pub(crate) line: String,
    pub(crate) unordered: bool,
    pub(crate) go_named: bool,
    pub(crate) verb: Verb,
    pub(crate) base: String,
    edits: Vec<(String, Option<Value>)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Create,
    Update,
    Status,
}

/// Reads all cases of a text.
pub(crate) fn read(text: &str) -> Vec<Case> {
    let lines = text.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Case {
    let (unordered, rest) = marked(line, "* ");
    let (go_named, rest) = marked(rest, "{ ");
    let mut words = rest.splitn(3, ' ');
    let verb = match words.next() {
        Some("create") => Verb::Create,
        Some("update") => Verb::Update,
        Some("status") => Verb::Status,
        _ => panic!("unknown verb in {line}"),
    };
    let base = words.next().expect("a base").to_owned();
    let edits = words.next().unwrap_or_default();
    // Values may contain spaces; a pointer starts with a slash after one.
    let edits = edits.split(" /").filter(|edit| !edit.is_empty()).map(|edit| {
        let (pointer, value) = edit.split_once('=').unwrap_or_else(|| panic!("no value in {line}"));
        let value = match value {
            "~" => None,
            _ => Some(expand(serde_json::from_str(value).unwrap_or_else(|error| panic!("{line}: {error}")))),
        };
        (format!("/{}", pointer.trim_start_matches('/')), value)
    });
    Case { line: line.to_owned(), unordered, go_named, verb, base, edits: edits.collect() }
}

fn marked<'l>(line: &'l str, mark: &str) -> (bool, &'l str) {
    line.strip_prefix(mark).map_or((false, line), |rest| (true, rest))
}

/// Expands `"a*64"` to a long text.
fn expand(value: Value) -> Value {
    let long = value.as_str().and_then(|text| text.split_once('*')).and_then(|(text, count)| {
        let count: usize = count.parse().ok()?;
        Some(text.repeat(count))
    });
    long.map_or(value, Value::from)
}

impl Case {
    pub(crate) fn edited(&self, base: &Value) -> Value {
        let mut object = base.clone();
        for (pointer, value) in &self.edits {
            edit(&mut object, pointer, value.clone());
        }
        object
    }
}

fn edit(object: &mut Value, pointer: &str, value: Option<Value>) {
    let steps: Vec<_> =
        pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
    let (last, above) = steps.split_last().expect("a pointer");
    let mut at = object;
    for step in above {
        at = match at {
            Value::Array(items) => {
                let index: usize = step.parse().expect("an index");
                &mut items[index]
            }
            _ => {
                if at.is_null() {
                    *at = json!({});
                }
                &mut at[step.as_str()]
            }
        };
    }
    match (at, value) {
        (Value::Array(items), Some(value)) if last == "-" => items.push(value),
        (Value::Array(items), Some(value)) => items[last.parse::<usize>().expect("an index")] = value,
        (Value::Array(items), None) => drop(items.remove(last.parse().expect("an index"))),
        (Value::Object(fields), None) => drop(fields.remove(last)),
        (at, Some(value)) => {
            if at.is_null() {
                *at = match last.as_str() {
                    "-" => json!([]),
                    _ => json!({}),
                };
            }
            match at {
                Value::Array(items) => items.push(value),
                _ => at[last.as_str()] = value,
            }
        }
        (at, None) => panic!("nothing to remove {last} from: {at}"),
    }
}
