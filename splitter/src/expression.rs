//! What users compute: expressions in CEL, read once and asked often.
//!
//! An expression knows which variables it may mention, so that a misspelt one is a mistake when the rule is read and not
//! when the first object comes along. A mistake says where it is: line and column, both from 1. Besides what CEL has
//! there are `sum`, `min`, `max`, `all` and `any` of a list.
//!
//! Expressions see values and return values. They have no clock, and they are bounded: in length when they are read, and in
//! what they cost when they are evaluated ([`budget`]).

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};
use cel::{Context, Env, ExecutionError, Program};
use serde_json::Value;

use budget::{Budget, Spent};

pub use shelf::read;

mod budget;
mod functions;
mod shelf;

/// As in the definitions of our kinds.
pub const MAX_BYTES: usize = 4096;
/// Whatever can be inside something else. The parser descends once more for each of `1+1+1+…`, and some hundreds of them are
/// more than the stack of a thread.
const DEPTHS: [(&str, &[u8], usize); 2] =
    [("operators and brackets", b"+-*/%([{", 100), ("dots and conditions", b".!?&|<=>", 300)];

/// What CEL itself has. Making it takes longer than most evaluations.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// An expression that was read.
#[derive(Debug)]
pub struct Expression {
    text: String,
    /// What is evaluated: the expression, counting what it costs.
    guarded: IdedExpr,
}

/// What is wrong with an expression, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake {
    pub line: usize,
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for Mistake {}

impl Expression {
    /// Reads an expression about these variables.
    pub fn parse(text: &str, variables: &[&str]) -> Result<Expression, Mistake> {
        if text.len() > MAX_BYTES {
            return Err(at(text, 0, format!("{} bytes; {MAX_BYTES} is the most", text.len())));
        }
        for (what, bytes, most) in DEPTHS {
            let found = text.bytes().filter(|byte| bytes.contains(byte)).count();
            if found > most {
                return Err(at(text, 0, format!("{found} {what}; {most} is the most")));
            }
        }
        // The parser is generated code of another project; what it cannot cope with is a mistake and not our end.
        let program = catch_unwind(|| Program::compile(text))
            .map_err(|_| at(text, 0, "this cannot be read as an expression"))?
            .map_err(|errors| first(&errors))?;
        check_names(text, &program, variables)?;
        let guarded = budget::guarded(program.expression().clone());
        Ok(Expression { text: text.to_owned(), guarded })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its value, given those of its variables.
    pub fn value(&self, variables: &[(&str, &Value)]) -> Result<Value, Mistake> {
        Spent::caught(|| self.evaluate(variables)).unwrap_or_else(|spent| match spent {
            Some(Spent) => Err(self.too_much("this takes too long")),
            None => Err(at(&self.text, 0, "this cannot be evaluated")),
        })
    }

    /// Its value, which must be true or false.
    pub fn holds(&self, variables: &[(&str, &Value)]) -> Result<bool, Mistake> {
        match self.value(variables)? {
            Value::Bool(holds) => Ok(holds),
            other => Err(at(&self.text, 0, format!("this must be true or false, and is {other}"))),
        }
    }

    fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<Value, Mistake> {
        let budget = Budget::new(variables.iter().map(|(_, value)| *value))
            .ok_or_else(|| self.too_much("there is too much to compute with"))?;
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        functions::add_to(&mut context);
        budget::add_to(&mut context, &budget);
        for (name, value) in variables {
            context.add_variable_from_value(*name, given(value));
        }
        let value = context.resolve(&self.guarded).map_err(|error| self.failed(&error))?;
        value.json().map_err(|_| at(&self.text, 0, "this has no value that can be written down"))
    }

    fn too_much(&self, what: &str) -> Mistake {
        at(&self.text, 0, format!("{what}; say it more simply, or of less"))
    }

    /// The interpreter does not say where it failed, but usually at which name.
    fn failed(&self, error: &ExecutionError) -> Mistake {
        let name = match error {
            ExecutionError::NoSuchKey(name) | ExecutionError::UndeclaredReference(name) => name.as_str(),
            ExecutionError::FunctionError { function, .. } => function,
            ExecutionError::NoSuchOverload(overload) => overload.function(),
            _ => "",
        };
        let message = match error {
            ExecutionError::NoSuchKey(name) => {
                format!("there is no field {name:?} here; ask first with has(…)")
            }
            other => other.to_string(),
        };
        at(&self.text, position(&self.text, name), message)
    }
}

/// JSON does not say of what type a number is. CEL does, and an `int` is what people write.
fn given(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::from(text.as_str()),
        Value::Array(items) => cel::Value::List(items.iter().map(given).collect::<Vec<_>>().into()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), given(value)));
            cel::Value::from(fields.collect::<HashMap<String, cel::Value>>())
        }
    }
}

fn first(errors: &cel::ParseErrors) -> Mistake {
    match errors.errors.first() {
        Some(error) => Mistake {
            line: usize::try_from(error.pos.0).unwrap_or(1).max(1),
            column: usize::try_from(error.pos.1).unwrap_or(1).max(1),
            message: error.msg.clone(),
        },
        None => Mistake { line: 1, column: 1, message: "this cannot be read as an expression".to_owned() },
    }
}

/// A mistake at a byte of the text.
fn at(text: &str, byte: usize, message: impl Into<String>) -> Mistake {
    let before = &text[..byte];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Mistake { line, column, message: message.into() }
}

/// Where a name is first mentioned as a whole word.
fn position(text: &str, name: &str) -> usize {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let whole =
        |start: usize| !text[..start].ends_with(in_word) && !text[start + name.len()..].starts_with(in_word);
    let mut found = text.match_indices(name).map(|(start, _)| start);
    if name.is_empty() { 0 } else { found.find(|start| whole(*start)).unwrap_or_default() }
}

/// Every name must be a variable, a variable of a loop, a type or a function.
fn check_names(text: &str, program: &Program, variables: &[&str]) -> Result<(), Mistake> {
    const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"];
    let mut own = BTreeSet::new();
    walk(program.expression(), &mut |expression| {
        if let Expr::Comprehension(comprehension) = &expression.expr {
            own.insert(comprehension.iter_var.clone());
            own.extend(comprehension.iter_var2.clone());
            own.insert(comprehension.accu_var.clone());
        }
    });
    let references = program.references();
    let known = |name: &&str| variables.contains(name) || own.contains(*name) || TYPES.contains(name);
    let mut unknown: Vec<&str> = references.variables().into_iter().filter(|name| !known(name)).collect();
    unknown.sort_by_key(|name| position(text, name));
    match unknown.first() {
        None => Ok(()),
        Some(name) => {
            let message = format!("there is no variable {name:?} here; there are {}", variables.join(", "));
            Err(at(text, position(text, name), message))
        }
    }
}

fn walk<'a>(expression: &'a IdedExpr, visit: &mut impl FnMut(&'a IdedExpr)) {
    visit(expression);
    children(expression).into_iter().for_each(|child| walk(child, visit));
}

fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(parts).collect(),
        Expr::Struct(fields) => fields.entries.iter().flat_map(parts).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn parts(entry: &IdedEntryExpr) -> Vec<&IdedExpr> {
    match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_compute_values_from_values() {
        let targets = json!([
            { "cluster": "east", "status": { "ready": 3, "ok": true }, "labels": { "zone": "a" } },
            { "cluster": "west", "status": { "ready": 4, "ok": false }, "labels": {} },
        ]);
        let check = |text: &str, expected: Value| {
            let expression = Expression::parse(text, &["targets"]).unwrap();
            assert_eq!(expression.value(&[("targets", &targets)]), Ok(expected), "{text}");
        };
        check("sum(targets.map(t, t.status.ready))", json!(7));
        check("min(targets.map(t, t.status.ready))", json!(3));
        check("max(targets.map(t, t.status.ready))", json!(4));
        check("all(targets.map(t, t.status.ok))", json!(false));
        check("any(targets.map(t, t.status.ok))", json!(true));
        check("sum([])", json!(0));
        check("sum([1.5, 2])", json!(3.5));
        check("all([])", json!(true));
        check("min([])", json!(null));
        check("max(1, 2, 3)", json!(3));
        check("targets.filter(t, has(t.labels.zone)).map(t, t.cluster)", json!(["east"]));
        check("{'a': 1, 'b': [true, null]}", json!({ "a": 1, "b": [true, null] }));
        check("targets.exists(t, t.cluster == 'west') ? 'yes' : 'no'", json!("yes"));
        check("targets[0].cluster.startsWith('ea') && 'x1'.matches('[a-z][0-9]')", json!(true));
    }

    #[test]
    fn a_mistake_says_where_it_is() {
        let check = |text: &str, (line, column): (usize, usize), word: &str| {
            let object = json!({ "spec": { "n": 3 } });
            let mistake = match Expression::parse(text, &["object"]) {
                Ok(expression) => expression.value(&[("object", &object)]).unwrap_err(),
                Err(mistake) => mistake,
            };
            assert_eq!((mistake.line, mistake.column), (line, column), "{text}: {mistake}");
            assert!(mistake.message.contains(word), "{text}: {mistake}");
        };
        check("object.spec.n +", (1, 16), "Syntax error");
        check(
            "object.spec.n\n  + objct.spec.n",
            (2, 5),
            "there is no variable \"objct\" here; there are object",
        );
        check("object.spec.m", (1, 13), "no field \"m\"");
        check("sum(['a'])", (1, 1), "numbers");
        check("1 + 'a'", (1, 1), "");
        check("sums([1])", (1, 1), "sums");
        check("1 / 0", (1, 1), "zero");
        check(&"(".repeat(98), (1, 97), "Recursion limit");
        check(&"(".repeat(4000), (1, 1), "100 is the most");
        check(&" ".repeat(5000), (1, 1), "4096");
        check("", (1, 1), "");
    }

    /// A thousand million rounds, or copies, are refused before they are made, also where an error would be passed over.
    #[test]
    fn what_takes_too_long_is_refused() {
        let long: Vec<u32> = (0..10_000).collect();
        let object = json!({ "l": long, "s": (0..500).collect::<Vec<u32>>(), "t": "x".repeat(100_000) });
        let check = |text: &str, expected: bool| {
            let value = Expression::parse(text, &["object"]).unwrap().value(&[("object", &object)]);
            let refused = value.as_ref().is_err_and(|mistake| mistake.message.contains("too long"));
            assert_eq!(!refused, expected, "{text}");
        };
        check("object.l.map(x, x + 1).filter(x, x % 2 == 0).size()", true);
        check("object.l.all(x, x >= 0) && sum(object.l) > 0", true);
        check("object.s.map(x, object.s.filter(y, y > x).size()).size()", true);
        check("object.l.map(x, object.l).size()", false);
        check("object.l.map(x, object.l.map(y, x + y)).size()", false);
        check("object.l.exists(x, object.l.exists(y, y < 0))", false);
        check("object.l.all(x, sum(object.l) >= 0)", false);
        check("object.l.all(x, object.l == object.l)", false);
        check("object.l.all(x, size(object.t + object.t) > 0)", false);
        check("object.s.map(a, object.s.map(b, object.s.map(c, 1)))", false);
        check(
            "[object.l, object.l].map(x, {'a': x, 'b': x}).map(y, [y, y, y, y, y, y, y, y, y, y, y, y, y, y, y]).size()",
            false,
        );
        let huge = json!((0..600_000).collect::<Vec<u32>>());
        let mistake = Expression::parse("1", &["object"]).unwrap().value(&[("object", &huge)]).unwrap_err();
        assert!(mistake.message.contains("too much"), "{mistake}");
    }

    #[test]
    fn what_is_long_or_deep_is_answered_or_refused() {
        let maps = "a.map(x, x)".to_owned() + &".map(x, x)".repeat(98);
        let long = [
            "1+".repeat(250),
            "1+".repeat(2000),
            maps,
            "!".repeat(4000),
            "-".repeat(4000),
            "[".repeat(4000),
            "a.".repeat(2000),
        ];
        for text in long.iter().flat_map(|text| [format!("{text}1"), format!("{text}a"), text.clone()]) {
            if let Ok(expression) = Expression::parse(&text, &["a"]) {
                let _ = expression.value(&[("a", &json!({}))]);
            }
        }
    }

    #[test]
    fn a_question_is_answered_by_true_or_false() {
        let check = |text: &str, expected: Result<bool, &str>| {
            let answer =
                Expression::parse(text, &["cluster"]).unwrap().holds(&[("cluster", &json!({ "n": 4 }))]);
            assert_eq!(
                answer.as_ref().map_err(|mistake| mistake.message.as_str()),
                expected.as_ref().map_err(|e| *e)
            );
        };
        check("cluster.n > 3", Ok(true));
        check("cluster.n > 4", Ok(false));
        check("cluster.n", Err("this must be true or false, and is 4"));
    }
}
