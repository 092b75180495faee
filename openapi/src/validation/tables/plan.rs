//! Walking an object with the rules of its types.
//!
//! Rules are said per type, and a type stands in many places: a container in a pod, in a deployment's template, in a
//! cron job's template's template. Once, on first use, schemas and tables become one plan per type that knows the way
//! to everything that has rules and to nothing else; parts of objects without rules are never visited.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::schema::builtin;
use crate::schema::{Schema, Shape};

use crate::validation::field_path::{Found, Path};
use crate::validation::rule;
use crate::validation::rule::{Check, Code, Rule};
use crate::validation::tables;
use crate::validation::value::get;

static PLANS: LazyLock<BTreeMap<&'static str, Arc<Plan>>> = LazyLock::new(plans);

/// Checks a value by the rules of the type with this name, and of all types in it.
pub(in crate::validation) fn check(type_name: &str, value: &Value, at: &Path<'_>, found: &mut Found) {
    if let Some(plan) = PLANS.get(type_name) {
        plan.run(value, at, found, None);
    }
}

/// The same, but for the status: that is somebody else's to write.
pub(in crate::validation) fn check_object(type_name: &str, object: &Value, found: &mut Found) {
    if let Some(plan) = PLANS.get(type_name) {
        plan.run(object, &Path::TOP, found, Some("status"));
    }
}

/// Only the status.
pub(in crate::validation) fn check_status(type_name: &str, object: &Value, found: &mut Found) {
    let steps = PLANS.get(type_name).map(|plan| plan.steps.as_slice()).unwrap_or_default();
    for step in steps {
        if let Step::Down { field, way } = step
            && &**field == "status"
        {
            way.go(get(object, field), &Path::TOP.field(field), found);
        }
    }
}

/// The rules of one type, and the ways on.
struct Plan {
    steps: Vec<Step>,
}

enum Step {
    Field { name: &'static str, checks: &'static [Check] },
    Whole(Code),
    Down { field: Arc<str>, way: Way },
    One { of: Vec<(&'static str, Option<Way>)>, many: &'static str, none: Option<&'static str> },
}

/// How the values of a field hold values of another type.
#[derive(Clone)]
enum Way {
    Object(Arc<Plan>),
    Items(Arc<Plan>),
    Values(Arc<Plan>),
}

impl Plan {
    fn run(&self, value: &Value, at: &Path<'_>, found: &mut Found, skip: Option<&str>) {
        if !value.is_object() {
            return;
        }
        for step in &self.steps {
            match step {
                Step::Field { name, checks } => {
                    rule::apply(checks, get(value, name), &at.field(name), found);
                }
                Step::Whole(code) => code(value, at, found),
                Step::Down { field, .. } if skip == Some(field) => {}
                Step::Down { field, way } => way.go(get(value, field), &at.field(field), found),
                Step::One { of, many, none } => {
                    let mut there = of.iter().filter(|(field, _)| !get(value, field).is_null());
                    match (there.next(), none) {
                        (None, Some(none)) => found.required(at, none),
                        (Some((field, Some(way))), _) => way.go(get(value, field), &at.field(field), found),
                        _ => {}
                    }
                    there.for_each(|(field, _)| found.forbidden(&at.field(field), *many));
                }
            }
        }
    }
}

impl Way {
    fn go(&self, value: &Value, at: &Path<'_>, found: &mut Found) {
        match (self, value) {
            (Way::Object(plan), _) => plan.run(value, at, found, None),
            (Way::Items(plan), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    plan.run(item, &at.index(index), found, None);
                }
            }
            (Way::Values(plan), Value::Object(entries)) => {
                for (key, value) in entries {
                    plan.run(value, &at.key(key), found, None);
                }
            }
            _ => {}
        }
    }
}

fn plans() -> BTreeMap<&'static str, Arc<Plan>> {
    let mut maker = Maker { rules: tables::by_type(), ..Maker::default() };
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
struct Maker {
    rules: HashMap<String, &'static [Rule]>,
    made: HashMap<Arc<str>, Option<Arc<Plan>>>,
    /// Types being made. One that contains itself is not looked into again: none of those has rules.
    open: HashSet<Arc<str>>,
}

impl Maker {
    /// None for a type that has no rules, and neither has anything in it.
    fn plan(&mut self, schema: &Schema) -> Option<Arc<Plan>> {
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

    fn make(&mut self, schema: &Schema) -> Option<Arc<Plan>> {
        let Shape::Object(object) = &schema.shape else { return None };
        let rules = schema.name.as_deref().and_then(|name| self.rules.get(name)).copied().unwrap_or_default();
        let mut steps = Vec::new();
        let mut placed = HashSet::new();
        let way = |maker: &mut Maker, field: &str| {
            object.fields.get(field).and_then(|field| maker.way(&field.schema))
        };
        for rule in rules {
            match rule {
                Rule::Field(name, checks) => steps.push(Step::Field { name, checks }),
                Rule::Whole(code) => steps.push(Step::Whole(*code)),
                Rule::Skip(field) => drop(placed.insert(*field)),
                Rule::Into(field) => {
                    placed.insert(*field);
                    steps.extend(way(self, field).map(|way| Step::Down { field: (*field).into(), way }));
                }
                Rule::One { of, many, none } => {
                    placed.extend(of.iter().copied());
                    let of = of.iter().map(|field| (*field, way(self, field))).collect();
                    steps.push(Step::One { of, many, none: *none });
                }
            }
        }
        for (name, field) in &object.fields {
            if !placed.contains(&**name)
                && let Some(way) = self.way(&field.schema)
            {
                steps.push(Step::Down { field: name.clone(), way });
            }
        }
        (!steps.is_empty()).then(|| Arc::new(Plan { steps }))
    }

    fn way(&mut self, schema: &Schema) -> Option<Way> {
        match &schema.shape {
            Shape::Object(_) => self.plan(schema).map(Way::Object),
            Shape::List(list) => self.plan(&list.items).map(Way::Items),
            Shape::Map(map) => self.plan(&map.values).map(Way::Values),
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
            let known = |field: &str| assert!(object.fields.contains_key(field), "{name} has no {field}");
            for rule in rules {
                match rule {
                    Rule::Field(field, _) | Rule::Into(field) | Rule::Skip(field) => known(field),
                    Rule::One { of, .. } => of.iter().for_each(|field| known(field)),
                    Rule::Whole(_) => {}
                }
            }
        }
    }
}
