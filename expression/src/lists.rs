//! Functions of a list, in addition to CEL's: `sum`, `min`, `max`, `all`, `any`.

use cel::extractors::Arguments;
use cel::{Context, ExecutionError, Value};

pub(super) const NAMES: [&str; 5] = ["sum", "min", "max", "all", "any"];

pub(super) fn add_to(context: &mut Context) {
    const FREE: &str = "CEL has no function of this name";
    context.add_function("sum", sum).expect(FREE);
    context.add_function("min", cel::functions::min).expect(FREE);
    context.add_function("max", cel::functions::max).expect(FREE);
    context
        .add_function("all", |arguments: Arguments| truth("all", &arguments, |mut all| all.all(|one| one)))
        .expect(FREE);
    context
        .add_function("any", |arguments: Arguments| truth("any", &arguments, |mut all| all.any(|one| one)))
        .expect(FREE);
}

/// Returns the single list argument of a function.
fn list<'a>(function: &str, Arguments(given): &'a Arguments) -> Result<&'a [Value], ExecutionError> {
    match given.as_slice() {
        [Value::List(items)] => Ok(items),
        _ => Err(ExecutionError::function_error(function, format!("{function} needs one list"))),
    }
}

/// Adds up a list. The sum of integers is an integer, and an error if it overflows; if there is a double, the sum is
/// one.
fn sum(arguments: Arguments) -> Result<Value, ExecutionError> {
    let failed = |why: &str| ExecutionError::function_error("sum", why);
    let mut total = Value::Int(0);
    for item in list("sum", &arguments)? {
        total = match (total, item) {
            (Value::Int(total), Value::Int(item)) => {
                Value::Int(total.checked_add(*item).ok_or_else(|| failed("the sum is too large"))?)
            }
            (Value::Int(total), Value::Float(item)) => Value::Float(total as f64 + item),
            (Value::Float(total), Value::Int(item)) => Value::Float(total + *item as f64),
            (Value::Float(total), Value::Float(item)) => Value::Float(total + item),
            _ => return Err(failed("sum needs a list of numbers")),
        };
    }
    Ok(total)
}

fn truth(
    function: &str,
    arguments: &Arguments,
    decide: impl Fn(std::vec::IntoIter<bool>) -> bool,
) -> Result<Value, ExecutionError> {
    let flag = |item: &Value| match item {
        Value::Bool(flag) => Ok(*flag),
        _ => Err(ExecutionError::function_error(function, format!("{function} requires a list of booleans"))),
    };
    let flags: Vec<bool> = list(function, arguments)?.iter().map(flag).collect::<Result<_, _>>()?;
    Ok(Value::Bool(decide(flags.into_iter())))
}
