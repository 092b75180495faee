//! The cost of an evaluation, and its limit.
//!
//! `big.map(x, big)` over a list of a hundred thousand items would copy ten thousand million values. The interpreter
//! does not count, so the compiler rewrites an expression: every loop and every copy calls a function of this module,
//! which adds the cost and ends the evaluation at the limit.
//!
//! ```text
//!   big.map(x, [x, other])    ──►    _items(big, 0).map(x, _copied([_copied(x), _copied(other)]))
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::extractors::Arguments;
use cel::{Context, ExecutionError, Value};

/// Maximum cost of one evaluation: the number of values copied and of iterations of comprehensions. A million take some
/// tenths of a second and some tens of megabytes.
pub const COST_LIMIT: i64 = 1_000_000;
/// Maximum number of values in the variables. The largest object that an API server accepts has fewer.
const MAX_INPUT_VALUES: i64 = 500_000;
/// The number of characters that cost as much as one value.
const CHARS_PER_VALUE: usize = 64;
/// The number of values that can be compared in the time of copying one.
const COMPARED_PER_COPIED: i64 = 100;

const ITEMS: &str = "_items";
const COPIED: &str = "_copied";
/// Operators whose time grows with their operands, although they do not copy them.
const COMPARES: [&str; 3] = ["_==_", "_!=_", "@in"];

/// The panic payload that ends an evaluation at its limit.
#[derive(Debug)]
pub(super) struct CostLimitExceeded;

impl CostLimitExceeded {
    /// Runs an evaluation. An error means that it panicked; it is `CostLimitExceeded` if the evaluation reached the
    /// limit.
    pub(super) fn catch<T>(evaluate: impl FnOnce() -> T) -> Result<T, Option<CostLimitExceeded>> {
        // The evaluation owns everything it changes, and all of that is dropped with it.
        catch_unwind(AssertUnwindSafe(evaluate))
            .map_err(|payload| payload.downcast().ok().map(|exceeded| *exceeded))
    }
}

/// The remaining cost of one evaluation.
#[derive(Debug)]
pub(super) struct CostBudget {
    left: AtomicI64,
    input: i64,
}

impl CostBudget {
    /// Creates the budget of an evaluation with these variables; none if they have too many values.
    pub(super) fn new<'a>(input: impl Iterator<Item = &'a serde_json::Value>) -> Option<Arc<CostBudget>> {
        let input = input.map(size_of_json).sum();
        (input <= MAX_INPUT_VALUES).then(|| Arc::new(CostBudget { left: AtomicI64::new(COST_LIMIT), input }))
    }

    /// Subtracts a cost and ends the evaluation at the limit. An error would not end it: `all` and `exists` absorb
    /// errors and continue with the next item, which costs as much again. So this unwinds to
    /// [`CostLimitExceeded::catch`].
    fn spend(&self, cost: i64) {
        if self.left.fetch_sub(cost.min(COST_LIMIT + 1), Ordering::Relaxed) < cost {
            resume_unwind(Box::new(CostLimitExceeded));
        }
    }

    fn copied(&self, arguments: &Arguments) -> Value {
        let value = arguments.0.first().cloned().unwrap_or(Value::Null);
        self.spend(size(&value));
        value
    }

    fn items(&self, arguments: &Arguments) -> Result<Value, ExecutionError> {
        let (range, compares) = match arguments.0.as_slice() {
            [range, Value::Int(compares)] => (range, *compares),
            _ => return Err(ExecutionError::function_error(ITEMS, "_items is an internal function")),
        };
        let rounds = match range {
            Value::List(items) => items.len(),
            Value::Map(map) => map.map.len(),
            _ => 0,
        };
        let rounds = i64::try_from(rounds).unwrap_or(i64::MAX);
        let each = 1 + compares.saturating_mul(self.input / COMPARED_PER_COPIED);
        self.spend(size(range).saturating_add(rounds.saturating_mul(each)));
        Ok(range.clone())
    }
}

pub(super) fn add_to(context: &mut Context, budget: &Arc<CostBudget>) {
    const FREE: &str = "CEL has no function of this name";
    let (item_budget, copy_budget) = (Arc::clone(budget), Arc::clone(budget));
    context.add_function(ITEMS, move |arguments: Arguments| item_budget.items(&arguments)).expect(FREE);
    context.add_function(COPIED, move |arguments: Arguments| copy_budget.copied(&arguments)).expect(FREE);
}

fn text_size(chars: usize) -> i64 {
    i64::try_from(1 + chars / CHARS_PER_VALUE).unwrap_or(i64::MAX)
}

fn size(value: &Value) -> i64 {
    match value {
        Value::List(items) => 1 + items.iter().map(size).sum::<i64>(),
        Value::Map(map) => 1 + map.map.values().map(|value| 1 + size(value)).sum::<i64>(),
        Value::String(text) => text_size(text.len()),
        Value::Bytes(bytes) => text_size(bytes.len()),
        _ => 1,
    }
}

fn size_of_json(value: &serde_json::Value) -> i64 {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(size_of_json).sum::<i64>(),
        serde_json::Value::Object(fields) => {
            1 + fields.values().map(|value| 1 + size_of_json(value)).sum::<i64>()
        }
        serde_json::Value::String(text) => text_size(text.len()),
        _ => 1,
    }
}

/// Returns the expression with its loops and copies wrapped in the counting functions.
pub(super) fn metered(mut expression: IdedExpr) -> IdedExpr {
    let is_copied = match &expression.expr {
        // Items that a comprehension appends are counted one by one.
        Expr::Call(call) => call.func_name == "_+_" && !appends_in_place(call),
        _ => false,
    };
    match &mut expression.expr {
        Expr::Call(call) => {
            let ours = crate::lists::NAMES.contains(&call.func_name.as_str());
            call.target = call.target.take().map(|target| Box::new(metered(*target)));
            let args = std::mem::take(&mut call.args).into_iter().map(metered);
            call.args = args.map(|arg| if ours { through(COPIED, arg, None) } else { arg }).collect();
        }
        Expr::Comprehension(inner) => {
            let compares = [&inner.loop_cond, &inner.loop_step].into_iter().map(compares).sum();
            inner.iter_range = through(ITEMS, metered(std::mem::take(&mut inner.iter_range)), Some(compares));
            for step in [&mut inner.accu_init, &mut inner.loop_cond, &mut inner.loop_step, &mut inner.result]
            {
                *step = metered(std::mem::take(step));
            }
        }
        Expr::List(list) => {
            let elements = std::mem::take(&mut list.elements).into_iter();
            list.elements = elements.map(|element| through(COPIED, metered(element), None)).collect();
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    entry.value = through(COPIED, metered(std::mem::take(&mut entry.value)), None);
                }
            }
        }
        Expr::Select(select) => *select.operand = metered(std::mem::take(&mut *select.operand)),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
    if is_copied { through(COPIED, expression, None) } else { expression }
}

/// Reports whether a call is `@result + […]`, which the interpreter appends in place.
fn appends_in_place(call: &CallExpr) -> bool {
    matches!(call.args.first().map(|first| &first.expr), Some(Expr::Ident(name)) if name.starts_with('@'))
}

fn through(function: &str, value: IdedExpr, number: Option<i64>) -> IdedExpr {
    let number =
        number.map(|number| IdedExpr { id: value.id, expr: Expr::Literal(LiteralValue::Int(number.into())) });
    let id = value.id;
    let args = std::iter::once(value).chain(number).collect();
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

/// Returns how many comparisons of possibly large values one iteration makes. A comparison with a literal is not one.
fn compares(expression: &IdedExpr) -> i64 {
    let is_literal = |arg: &IdedExpr| matches!(arg.expr, Expr::Literal(_));
    let here = match &expression.expr {
        Expr::Call(call) => COMPARES.contains(&call.func_name.as_str()) && !call.args.iter().any(is_literal),
        _ => false,
    };
    i64::from(here) + crate::references::children(expression).into_iter().map(compares).sum::<i64>()
}
