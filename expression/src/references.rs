//! Checks the names in an expression when it is compiled.

use std::collections::BTreeSet;

use cel::Program;
use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, IdedExpr};

use crate::error::{ExpressionError, offset_of};

/// CEL's type names, which are allowed where variables are.
const TYPES: [&str; 9] = ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"];

/// Checks that every identifier is a declared variable, a variable of a comprehension, or a type.
pub(crate) fn check_declared(
    text: &str,
    program: &Program,
    variables: &[&str],
) -> Result<(), ExpressionError> {
    let mut bound = BTreeSet::new();
    visit_all(program.expression(), &mut |expression| {
        if let Expr::Comprehension(comprehension) = &expression.expr {
            bound.insert(comprehension.iter_var.clone());
            bound.extend(comprehension.iter_var2.clone());
            bound.insert(comprehension.accu_var.clone());
        }
    });
    let references = program.references();
    let known = |name: &&str| variables.contains(name) || bound.contains(*name) || TYPES.contains(name);
    let mut undeclared: Vec<&str> = references.variables().into_iter().filter(|name| !known(name)).collect();
    undeclared.sort_by_key(|name| offset_of(text, name));
    match undeclared.first() {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("undeclared reference {name:?}; declared variables: {}", variables.join(", "));
            Err(ExpressionError::at(text, offset_of(text, name), message))
        }
    }
}

fn visit_all<'a>(expression: &'a IdedExpr, visit: &mut impl FnMut(&'a IdedExpr)) {
    visit(expression);
    children(expression).into_iter().for_each(|child| visit_all(child, visit));
}

/// Returns the direct subexpressions of an expression.
pub(crate) fn children(expression: &IdedExpr) -> Vec<&IdedExpr> {
    match &expression.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(inner) => {
            vec![&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(entry_children).collect(),
        Expr::Struct(fields) => fields.entries.iter().flat_map(entry_children).collect(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry_children(entry: &IdedEntryExpr) -> Vec<&IdedExpr> {
    match &entry.expr {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
