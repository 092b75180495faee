//! What an expression may cost.
//!
//! Users write expressions, and all users' expressions are evaluated in one place. `big.map(x, big)` over a list of a
//! hundred thousand would copy ten thousand million values. The interpreter counts nothing, so an expression is rewritten
//! before it is ever evaluated: whatever loops or copies passes through a function of ours that counts, and refuses when
//! there is nothing left.
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

/// Values copied and rounds of loops, together. As many take some tenths of a second and some tens of megabytes.
const BUDGET: i64 = 1_000_000;
/// The largest object a server accepts has fewer.
const INPUT_MAX: i64 = 500_000;
/// So many characters cost as much as a value.
const CHARS_PER_VALUE: usize = 64;
/// So many values are compared in the time in which one is copied.
const COMPARED_PER_COPIED: i64 = 100;

const ITEMS: &str = "_items";
const COPIED: &str = "_copied";
/// What takes as long as its operands are large, without copying them.
const COMPARES: [&str; 3] = ["_==_", "_!=_", "@in"];

/// An evaluation that cost too much.
#[derive(Debug)]
pub(super) struct Spent;

impl Spent {
    /// Runs an evaluation; an error if it panicked, with `Spent` if that was because it cost too much.
    pub(super) fn caught<T>(evaluate: impl FnOnce() -> T) -> Result<T, Option<Spent>> {
        // Nothing that was half done is looked at again: the evaluation's values go with it.
        catch_unwind(AssertUnwindSafe(evaluate))
            .map_err(|payload| payload.downcast().ok().map(|spent| *spent))
    }
}

/// What is left for one evaluation.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicI64,
    input: i64,
}

impl Budget {
    /// For an expression about these values; none if there are too many of them.
    pub(super) fn new<'a>(input: impl Iterator<Item = &'a serde_json::Value>) -> Option<Arc<Budget>> {
        let input = input.map(size_of_json).sum();
        (input <= INPUT_MAX).then(|| Arc::new(Budget { left: AtomicI64::new(BUDGET), input }))
    }

    /// Ends the evaluation when there is nothing left. An error would not: `all` and `exists` pass over errors and go on with
    /// the next item, and what is next costs as much again. So this unwinds to [`Spent::caught`].
    fn spend(&self, cost: i64) {
        if self.left.fetch_sub(cost.min(BUDGET + 1), Ordering::Relaxed) < cost {
            resume_unwind(Box::new(Spent));
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
            _ => return Err(ExecutionError::function_error(ITEMS, "this is not for you to call")),
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

pub(super) fn add_to(context: &mut Context, budget: &Arc<Budget>) {
    const FREE: &str = "CEL has no function of this name";
    let (of_items, of_copies) = (Arc::clone(budget), Arc::clone(budget));
    context.add_function(ITEMS, move |arguments: Arguments| of_items.items(&arguments)).expect(FREE);
    context.add_function(COPIED, move |arguments: Arguments| of_copies.copied(&arguments)).expect(FREE);
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

/// The expression, with what loops or copies passing through our functions.
pub(super) fn guarded(mut expression: IdedExpr) -> IdedExpr {
    let copies = match &expression.expr {
        // What a loop gathers is counted item by item.
        Expr::Call(call) => call.func_name == "_+_" && !gathers(call),
        _ => false,
    };
    match &mut expression.expr {
        Expr::Call(call) => {
            let ours = super::functions::NAMES.contains(&call.func_name.as_str());
            call.target = call.target.take().map(|target| Box::new(guarded(*target)));
            let args = std::mem::take(&mut call.args).into_iter().map(guarded);
            call.args = args.map(|arg| if ours { through(COPIED, arg, None) } else { arg }).collect();
        }
        Expr::Comprehension(inner) => {
            let compares = [&inner.loop_cond, &inner.loop_step].into_iter().map(compares).sum();
            inner.iter_range = through(ITEMS, guarded(std::mem::take(&mut inner.iter_range)), Some(compares));
            for part in [&mut inner.accu_init, &mut inner.loop_cond, &mut inner.loop_step, &mut inner.result]
            {
                *part = guarded(std::mem::take(part));
            }
        }
        Expr::List(list) => {
            let elements = std::mem::take(&mut list.elements).into_iter();
            list.elements = elements.map(|element| through(COPIED, guarded(element), None)).collect();
        }
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    entry.value = through(COPIED, guarded(std::mem::take(&mut entry.value)), None);
                }
            }
        }
        Expr::Select(select) => *select.operand = guarded(std::mem::take(&mut *select.operand)),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
    if copies { through(COPIED, expression, None) } else { expression }
}

/// `@result + […]`, which the interpreter appends in place.
fn gathers(call: &CallExpr) -> bool {
    matches!(call.args.first().map(|first| &first.expr), Some(Expr::Ident(name)) if name.starts_with('@'))
}

fn through(function: &str, value: IdedExpr, number: Option<i64>) -> IdedExpr {
    let number =
        number.map(|number| IdedExpr { id: value.id, expr: Expr::Literal(LiteralValue::Int(number.into())) });
    let id = value.id;
    let args = std::iter::once(value).chain(number).collect();
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

/// How many comparisons one round of a loop makes of things that may be large: with a literal, none.
fn compares(expression: &IdedExpr) -> i64 {
    let is_literal = |arg: &IdedExpr| matches!(arg.expr, Expr::Literal(_));
    let here = match &expression.expr {
        Expr::Call(call) => COMPARES.contains(&call.func_name.as_str()) && !call.args.iter().any(is_literal),
        _ => false,
    };
    i64::from(here) + super::children(expression).into_iter().map(compares).sum::<i64>()
}
