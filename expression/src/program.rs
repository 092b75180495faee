//! A compiled expression, and its evaluation.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::{Context, Env};
use serde_json::Value;

use crate::cost::{self, CostBudget, CostLimitExceeded};
use crate::error::ExpressionError;
use crate::{lists, references};

/// Maximum length of an expression. The definitions of Holon's own kinds have the same limit.
pub const MAX_EXPRESSION_BYTES: usize = 4096;
/// Maximum numbers of operators in an expression, which bound its nesting. The parser recurses once for each `+` of
/// `1+1+1+…`, and some hundreds of them overflow the stack of a thread.
const MAX_NESTING: [(&str, &[u8], usize); 2] =
    [("operators and brackets", b"+-*/%([{", 100), ("dots and conditions", b".!?&|<=>", 300)];

/// CEL's standard library. Creating it takes longer than most evaluations.
static STANDARD_LIBRARY: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    text: String,
    /// The expression, rewritten to count its cost.
    metered: IdedExpr,
}

impl Program {
    /// Compiles an expression that may use these variables.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Program, ExpressionError> {
        if text.len() > MAX_EXPRESSION_BYTES {
            let message =
                format!("expression has {} bytes; the maximum is {MAX_EXPRESSION_BYTES}", text.len());
            return Err(ExpressionError::at(text, 0, message));
        }
        for (construct, bytes, max) in MAX_NESTING {
            let found = text.bytes().filter(|byte| bytes.contains(byte)).count();
            if found > max {
                let message = format!("expression has {found} {construct}; the maximum is {max}");
                return Err(ExpressionError::at(text, 0, message));
            }
        }
        // The parser is generated code of another project. If it panics, the expression is rejected.
        let program = catch_unwind(|| cel::Program::compile(text))
            .map_err(|_| ExpressionError::at(text, 0, "not a valid CEL expression"))?
            .map_err(|errors| ExpressionError::from_parser(&errors))?;
        references::check_declared(text, &program, variables)?;
        let metered = cost::metered(program.expression().clone());
        Ok(Program { text: text.to_owned(), metered })
    }

    /// Evaluates the expression with the values of its variables, within [`COST_LIMIT`](crate::COST_LIMIT).
    pub fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<Value, ExpressionError> {
        CostLimitExceeded::catch(|| self.evaluate_unguarded(variables)).unwrap_or_else(|panic| match panic {
            Some(CostLimitExceeded) => Err(self.too_costly("evaluation exceeds the cost limit")),
            None => Err(ExpressionError::at(&self.text, 0, "the evaluation failed")),
        })
    }

    /// Evaluates an expression whose value must be a boolean.
    pub fn evaluate_bool(&self, variables: &[(&str, &Value)]) -> Result<bool, ExpressionError> {
        match self.evaluate(variables)? {
            Value::Bool(value) => Ok(value),
            other => {
                let message = format!("expression must return a bool, got {other}");
                Err(ExpressionError::at(&self.text, 0, message))
            }
        }
    }

    fn evaluate_unguarded(&self, variables: &[(&str, &Value)]) -> Result<Value, ExpressionError> {
        let budget = CostBudget::new(variables.iter().map(|(_, value)| *value))
            .ok_or_else(|| self.too_costly("the variables have too many values"))?;
        let mut context = Context::with_env(Arc::clone(&STANDARD_LIBRARY));
        lists::add_to(&mut context);
        cost::add_to(&mut context, &budget);
        for (name, value) in variables {
            context.add_variable_from_value(*name, to_cel(value));
        }
        let value = context
            .resolve(&self.metered)
            .map_err(|error| ExpressionError::from_interpreter(&self.text, &error))?;
        value.json().map_err(|_| ExpressionError::at(&self.text, 0, "the result cannot be converted to JSON"))
    }

    fn too_costly(&self, why: &str) -> ExpressionError {
        ExpressionError::at(&self.text, 0, format!("{why}; simplify the expression or select fewer objects"))
    }
}

/// Converts JSON to CEL. JSON does not distinguish integers from doubles, but CEL does: a number without a fraction is
/// an `int`.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(flag) => cel::Value::Bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => cel::Value::Int(number),
            (None, Some(number)) => cel::Value::UInt(number),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => cel::Value::from(text.as_str()),
        Value::Array(items) => cel::Value::List(items.iter().map(to_cel).collect::<Vec<_>>().into()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), to_cel(value)));
            cel::Value::from(fields.collect::<HashMap<String, cel::Value>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions_compute_values() {
        let targets = json!([
            { "cluster": "east", "status": { "ready": 3, "ok": true }, "labels": { "zone": "a" } },
            { "cluster": "west", "status": { "ready": 4, "ok": false }, "labels": {} },
        ]);
        let check = |text: &str, expected: Value| {
            let program = Program::compile(text, &["targets"]).unwrap();
            assert_eq!(program.evaluate(&[("targets", &targets)]), Ok(expected), "{text}");
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
    fn an_error_has_a_line_and_a_column() {
        let check = |text: &str, (line, column): (usize, usize), expected: &str| {
            let object = json!({ "spec": { "n": 3 } });
            let error = match Program::compile(text, &["object"]) {
                Ok(program) => program.evaluate(&[("object", &object)]).unwrap_err(),
                Err(error) => error,
            };
            assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
            assert!(error.message.contains(expected), "{text}: {error}");
        };
        check("object.spec.n +", (1, 16), "Syntax error");
        check(
            "object.spec.n\n  + objct.spec.n",
            (2, 5),
            "undeclared reference \"objct\"; declared variables: object",
        );
        check("object.spec.m", (1, 13), "no such field \"m\"");
        check("sum(['a'])", (1, 1), "numbers");
        check("1 + 'a'", (1, 1), "");
        check("sums([1])", (1, 1), "sums");
        check("1 / 0", (1, 1), "zero");
        check(&"(".repeat(98), (1, 97), "Recursion limit");
        check(&"(".repeat(4000), (1, 1), "the maximum is 100");
        check(&" ".repeat(5000), (1, 1), "4096");
        check("", (1, 1), "");
    }

    /// A thousand million iterations or copies are refused before they are made, even where CEL absorbs errors.
    #[test]
    fn an_evaluation_beyond_the_cost_limit_is_refused() {
        let long: Vec<u32> = (0..10_000).collect();
        let object = json!({ "l": long, "s": (0..500).collect::<Vec<u32>>(), "t": "x".repeat(100_000) });
        let check = |text: &str, expected: bool| {
            let value = Program::compile(text, &["object"]).unwrap().evaluate(&[("object", &object)]);
            let refused = value.as_ref().is_err_and(|error| error.message.contains("cost limit"));
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
        let error = Program::compile("1", &["object"]).unwrap().evaluate(&[("object", &huge)]).unwrap_err();
        assert!(error.message.contains("too many values"), "{error}");
    }

    #[test]
    fn a_long_or_deep_expression_is_evaluated_or_refused() {
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
            if let Ok(program) = Program::compile(&text, &["a"]) {
                let _ = program.evaluate(&[("a", &json!({}))]);
            }
        }
    }

    #[test]
    fn a_condition_is_true_or_false() {
        let check = |text: &str, expected: Result<bool, &str>| {
            let answer = Program::compile(text, &["cluster"])
                .unwrap()
                .evaluate_bool(&[("cluster", &json!({ "n": 4 }))]);
            assert_eq!(
                answer.as_ref().map_err(|error| error.message.as_str()),
                expected.as_ref().map_err(|e| *e)
            );
        };
        check("cluster.n > 3", Ok(true));
        check("cluster.n > 4", Ok(false));
        check("cluster.n", Err("expression must return a bool, got 4"));
    }
}
