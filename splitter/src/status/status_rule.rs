//! StatusRules: how users define the aggregation of a custom kind, in CEL.
//!
//! ```text
//!   fields:  /status/ready      sum(targets.map(t, t.status.ready))
//!   rows:    /status/zones      groupBy zone: target.labels.zone      ready: sum(targets.map(t, t.status.ready))
//! ```
//!
//! A rule is compiled once, which reports syntax errors with line and column. An error in the evaluation for one object
//! leaves the status of that object as it was.

use api::fleet::{FieldRule, NamedExpression, PolicyError, RowsRule, StatusRuleSpec};
use api::meta::pointer;
use expression::{ExpressionError, Program};
use serde_json::{Map, Value, json};

use super::Report;

/// A compiled StatusRule.
#[derive(Debug)]
pub struct CompiledStatusRule {
    fields: Vec<CompiledField>,
    rows: Vec<CompiledRows>,
}

/// An expression and its path in the spec.
#[derive(Debug)]
struct CompiledExpression {
    at: String,
    program: Program,
}

#[derive(Debug)]
struct CompiledField {
    path: String,
    value: CompiledExpression,
}

#[derive(Debug)]
struct CompiledRows {
    at: String,
    path: String,
    filter: Option<CompiledExpression>,
    group_by: Vec<(String, CompiledExpression)>,
    columns: Vec<(String, CompiledExpression)>,
}

const OF_ALL: &[&str] = &["targets", "object"];
const OF_ONE: &[&str] = &["target", "object"];

fn error(at: &str, found: &ExpressionError) -> PolicyError {
    PolicyError {
        field: at.to_owned(),
        line: i64::try_from(found.line).unwrap_or(1),
        column: i64::try_from(found.column).unwrap_or(1),
        message: found.message.clone(),
    }
}

impl CompiledExpression {
    fn read(at: String, text: &str, variables: &[&str]) -> Result<CompiledExpression, PolicyError> {
        match Program::compile(text, variables) {
            Ok(program) => Ok(CompiledExpression { at, program }),
            Err(found) => Err(error(&at, &found)),
        }
    }

    fn value(&self, variables: &[(&str, &Value)]) -> Result<Value, PolicyError> {
        self.program.evaluate(variables).map_err(|found| error(&self.at, &found))
    }
}

impl CompiledStatusRule {
    /// Compiles a rule. Returns all errors.
    pub fn read(spec: &StatusRuleSpec) -> Result<CompiledStatusRule, Vec<PolicyError>> {
        let mut errors = Vec::new();
        let mut rule = CompiledStatusRule { fields: Vec::new(), rows: Vec::new() };
        for (at, field) in spec.fields.iter().enumerate() {
            match read_field(&format!("spec.fields[{at}]"), field) {
                Ok(field) => rule.fields.push(field),
                Err(error) => errors.push(error),
            }
        }
        for (at, rows) in spec.rows.iter().enumerate() {
            match read_rows(&format!("spec.rows[{at}]"), rows) {
                Ok(rows) => rule.rows.push(rows),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(rule) } else { Err(errors) }
    }

    /// The status with the fields of the rule.
    pub(super) fn apply(
        &self,
        object: &Value,
        reports: &[&Report],
        status: Value,
    ) -> Result<Value, Vec<PolicyError>> {
        let targets: Vec<Value> = reports.iter().map(|report| target(report)).collect();
        let mut changed = json!({ "status": status });
        let mut errors = Vec::new();
        let all = Value::Array(targets.clone());
        for field in &self.fields {
            let value = field.value.value(&[("targets", &all), ("object", object)]);
            put(&mut changed, &field.path, &field.value.at, value, &mut errors);
        }
        for rows in &self.rows {
            let value = rows.value(object, &targets);
            put(&mut changed, &rows.path, &rows.at, value, &mut errors);
        }
        if errors.is_empty() { Ok(changed["status"].take()) } else { Err(errors) }
    }
}

fn put(
    root: &mut Value,
    path: &str,
    at: &str,
    value: Result<Value, PolicyError>,
    errors: &mut Vec<PolicyError>,
) {
    let done = value.and_then(|value| {
        pointer::set(root, path, value).map_err(|message| PolicyError {
            field: at.to_owned(),
            line: 1,
            column: 1,
            message,
        })
    });
    errors.extend(done.err());
}

/// A target as expressions see it.
fn target(report: &Report) -> Value {
    json!({
        "cluster": report.cluster,
        "labels": report.labels,
        "role": report.role,
        "share": report.share,
        "stale": report.stale,
        "status": report.status.cloned().unwrap_or_else(|| json!({})),
    })
}

fn check_path(at: &str, path: &str) -> Result<(), PolicyError> {
    let message = format!("{path:?} must begin with /status/");
    match path.strip_prefix("/status/").is_some_and(|rest| !rest.is_empty()) {
        true => Ok(()),
        false => Err(PolicyError { field: format!("{at}.path"), line: 1, column: 1, message }),
    }
}

fn read_field(at: &str, field: &FieldRule) -> Result<CompiledField, PolicyError> {
    check_path(at, &field.path)?;
    let value = CompiledExpression::read(format!("{at}.expression"), &field.expression, OF_ALL)?;
    Ok(CompiledField { path: field.path.clone(), value })
}

fn read_rows(at: &str, rows: &RowsRule) -> Result<CompiledRows, PolicyError> {
    check_path(at, &rows.path)?;
    let filter = rows
        .filter
        .as_deref()
        .map(|text| CompiledExpression::read(format!("{at}.filter"), text, OF_ONE))
        .transpose()?;
    let named = |list: &str, expressions: &[NamedExpression], variables: &[&str]| {
        let read = |(index, one): (usize, &NamedExpression)| {
            let at = format!("{at}.{list}[{index}].expression");
            Ok((one.name.clone(), CompiledExpression::read(at, &one.expression, variables)?))
        };
        expressions.iter().enumerate().map(read).collect::<Result<Vec<_>, PolicyError>>()
    };
    let group_by = named("groupBy", &rows.group_by, OF_ONE)?;
    let columns = named("columns", &rows.columns, OF_ALL)?;
    Ok(CompiledRows { at: format!("{at}.path"), path: rows.path.clone(), filter, group_by, columns })
}

impl CompiledRows {
    /// One row per group, sorted by the values they are grouped by.
    fn value(&self, object: &Value, targets: &[Value]) -> Result<Value, PolicyError> {
        let mut groups: Vec<(Vec<Value>, Vec<Value>)> = Vec::new();
        for target in targets {
            let given = [("target", target), ("object", object)];
            if let Some(filter) = &self.filter
                && !filter.program.evaluate_bool(&given).map_err(|found| error(&filter.at, &found))?
            {
                continue;
            }
            let key: Vec<Value> = self
                .group_by
                .iter()
                .map(|(_, expression)| expression.value(&given))
                .collect::<Result<_, _>>()?;
            match groups.iter_mut().find(|(other, _)| *other == key) {
                Some((_, members)) => members.push(target.clone()),
                None => groups.push((key, vec![target.clone()])),
            }
        }
        groups.sort_by_key(|(key, _)| serde_json::to_string(key).unwrap_or_default());
        groups.into_iter().map(|(key, members)| self.row(object, key, members)).collect()
    }

    fn row(&self, object: &Value, key: Vec<Value>, members: Vec<Value>) -> Result<Value, PolicyError> {
        let mut row: Map<String, Value> =
            self.group_by.iter().map(|(name, _)| name.clone()).zip(key).collect();
        let members = Value::Array(members);
        for (name, expression) in &self.columns {
            row.insert(name.clone(), expression.value(&[("targets", &members), ("object", object)])?);
        }
        Ok(Value::Object(row))
    }
}
