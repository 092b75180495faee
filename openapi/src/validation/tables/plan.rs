//! Validates an object by the rules of its types.
//!
//! Rules belong to types, and a type occurs in many places: a container in a pod, in the template of a Deployment, in
//! the Job template of a CronJob. On first use, schemas and tables are combined into one plan per type, which contains
//! only the paths to values with rules. Parts of objects without rules are never visited.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::schema::builtin;
use crate::schema::{Schema, Shape};

use crate::validation::field_path::{FieldErrors, FieldPath};
use crate::validation::rule;
use crate::validation::rule::{FieldRule, Rule, ValidateFn};
use crate::validation::tables;
use crate::validation::value::get;

static PLANS: LazyLock<BTreeMap<&'static str, Arc<ValidationPlan>>> = LazyLock::new(plans);

/// Validates a value by the rules of the named type and of all types in it.
pub(in crate::validation) fn validate(
    type_name: &str,
    value: &Value,
    at: &FieldPath<'_>,
    found: &mut FieldErrors,
) {
    if let Some(plan) = PLANS.get(type_name) {
        plan.run(value, at, found, None);
    }
}

/// Validates an object without its status, which is written separately.
pub(in crate::validation) fn validate_object(type_name: &str, object: &Value, found: &mut FieldErrors) {
    if let Some(plan) = PLANS.get(type_name) {
        plan.run(object, &FieldPath::TOP, found, Some("status"));
    }
}

/// Validates only the status of an object.
pub(in crate::validation) fn validate_status(type_name: &str, object: &Value, found: &mut FieldErrors) {
    let steps = PLANS.get(type_name).map(|plan| plan.steps.as_slice()).unwrap_or_default();
    for step in steps {
        if let PlanStep::Down { field, descent } = step
            && &**field == "status"
        {
            descent.go(get(object, field), &FieldPath::TOP.field(field), found);
        }
    }
}

/// The rules of one type, and the fields with further plans.
struct ValidationPlan {
    steps: Vec<PlanStep>,
}

enum PlanStep {
    Field { name: &'static str, checks: &'static [FieldRule] },
    Check(ValidateFn),
    Down { field: Arc<str>, descent: Descent },
    One { of: Vec<(&'static str, Option<Descent>)>, many: &'static str, none: Option<&'static str> },
}

/// How the values of a field contain values of another type.
#[derive(Clone)]
enum Descent {
    Object(Arc<ValidationPlan>),
    Items(Arc<ValidationPlan>),
    Values(Arc<ValidationPlan>),
}

impl ValidationPlan {
    fn run(&self, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors, skip: Option<&str>) {
        if !value.is_object() {
            return;
        }
        for step in &self.steps {
            match step {
                PlanStep::Field { name, checks } => {
                    rule::apply(checks, get(value, name), &at.field(name), found);
                }
                PlanStep::Check(code) => code(value, at, found),
                PlanStep::Down { field, .. } if skip == Some(field) => {}
                PlanStep::Down { field, descent } => descent.go(get(value, field), &at.field(field), found),
                PlanStep::One { of, many, none } => {
                    let mut present = of.iter().filter(|(field, _)| !get(value, field).is_null());
                    match (present.next(), none) {
                        (None, Some(none)) => found.required(at, none),
                        (Some((field, Some(descent))), _) => {
                            descent.go(get(value, field), &at.field(field), found)
                        }
                        _ => {}
                    }
                    present.for_each(|(field, _)| found.forbidden(&at.field(field), *many));
                }
            }
        }
    }
}

impl Descent {
    fn go(&self, value: &Value, at: &FieldPath<'_>, found: &mut FieldErrors) {
        match (self, value) {
            (Descent::Object(plan), _) => plan.run(value, at, found, None),
            (Descent::Items(plan), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    plan.run(item, &at.index(index), found, None);
                }
            }
            (Descent::Values(plan), Value::Object(entries)) => {
                for (key, value) in entries {
                    plan.run(value, &at.key(key), found, None);
                }
            }
            _ => {}
        }
    }
}

fn plans() -> BTreeMap<&'static str, Arc<ValidationPlan>> {
    let mut maker = PlanBuilder { rules: tables::by_type(), ..PlanBuilder::default() };
    let names: Vec<_> = builtin::type_names().collect();
    let mut plans = BTreeMap::new();
    for name in names {
        if let Some(plan) = builtin::schema(name).and_then(|schema| maker.plan(schema)) {
            plans.insert(name, plan);
        }
    }
    plans
}

#[derive(Default)]
struct PlanBuilder {
    rules: HashMap<String, &'static [Rule]>,
    made: HashMap<Arc<str>, Option<Arc<ValidationPlan>>>,
    /// Types whose plans are being built. A recursive type is not expanded again: none of those has rules.
    open: HashSet<Arc<str>>,
}

impl PlanBuilder {
    /// Builds the plan of a type. Returns none if neither the type nor anything in it has rules.
    fn plan(&mut self, schema: &Schema) -> Option<Arc<ValidationPlan>> {
        let Some(name) = schema.name.clone() else { return self.make(schema) };
        if let Some(made) = self.made.get(&name) {
            return made.clone();
        }
        if !self.open.insert(name.clone()) {
            return None;
        }
        let plan = self.make(schema);
        self.open.remove(&name);
        self.made.insert(name, plan.clone());
        plan
    }

    fn make(&mut self, schema: &Schema) -> Option<Arc<ValidationPlan>> {
        let Shape::Object(object) = &schema.shape else { return None };
        let rules = schema.name.as_deref().and_then(|name| self.rules.get(name)).copied().unwrap_or_default();
        let mut steps = Vec::new();
        let mut placed = HashSet::new();
        let descent = |maker: &mut PlanBuilder, field: &str| {
            object.fields.get(field).and_then(|field| maker.descent(&field.schema))
        };
        for rule in rules {
            match rule {
                Rule::Field(name, checks) => steps.push(PlanStep::Field { name, checks }),
                Rule::Check(code) => steps.push(PlanStep::Check(*code)),
                Rule::Skip(field) => drop(placed.insert(*field)),
                Rule::Into(field) => {
                    placed.insert(*field);
                    steps.extend(
                        descent(self, field)
                            .map(|descent| PlanStep::Down { field: (*field).into(), descent }),
                    );
                }
                Rule::One { of, many, none } => {
                    placed.extend(of.iter().copied());
                    let of = of.iter().map(|field| (*field, descent(self, field))).collect();
                    steps.push(PlanStep::One { of, many, none: *none });
                }
            }
        }
        for (name, field) in &object.fields {
            if !placed.contains(&**name)
                && let Some(descent) = self.descent(&field.schema)
            {
                steps.push(PlanStep::Down { field: name.clone(), descent });
            }
        }
        (!steps.is_empty()).then(|| Arc::new(ValidationPlan { steps }))
    }

    fn descent(&mut self, schema: &Schema) -> Option<Descent> {
        match &schema.shape {
            Shape::Object(_) => self.plan(schema).map(Descent::Object),
            Shape::List(list) => self.plan(&list.items).map(Descent::Items),
            Shape::Map(map) => self.plan(&map.values).map(Descent::Values),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_every_table_names_a_type_and_its_fields() {
        for (name, rules) in tables::by_type() {
            let schema = builtin::schema(&name).unwrap_or_else(|| panic!("no type {name}"));
            let Shape::Object(object) = &schema.shape else { panic!("{name} has no fields") };
            let has_field = |field: &str| assert!(object.fields.contains_key(field), "{name} has no {field}");
            for rule in rules {
                match rule {
                    Rule::Field(field, _) | Rule::Into(field) | Rule::Skip(field) => has_field(field),
                    Rule::One { of, .. } => of.iter().for_each(|field| has_field(field)),
                    Rule::Check(_) => {}
                }
            }
        }
    }
}
