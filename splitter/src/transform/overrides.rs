//! Applies Overrides, as the last step.
//!
//! Overrides are applied in the order of priority and name, their rules in the order they are written, and the parts of
//! a rule in the order of its fields. The first error stops all of them: half of an Override is not the policy its
//! author wrote, so the mailbox object is unchanged. No Override may change the kind, name or namespace of an object.

use api::fleet::{
    Arguments, Environment, Image, Operation, Override, OverrideRule, PatchStep, PhysicalCluster, Table,
};
use api::meta::json_patch::{JsonPatchOperation, PatchBudget};
use api::meta::{merge_patch, pointer};
use serde_json::{Map, Value, json};

use super::image::renamed;
use super::references::pod_spec_at;
use crate::policy::ObjectAttributes;
use crate::policy::select::{self, Selected};

/// An Override that cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Override {name}, spec.rules[{rule}]: {why}")]
pub struct OverrideError {
    pub name: String,
    pub rule: usize,
    pub why: String,
}

/// Applies all Overrides that match.
pub fn apply(
    mut object: Value,
    subject: &ObjectAttributes,
    cluster: &PhysicalCluster,
    overrides: &[Override],
) -> Result<Value, OverrideError> {
    let mut applying: Vec<&Override> = overrides.iter().filter(|one| is_for(one, subject)).collect();
    applying.sort_by_key(|one| (one.spec.priority, &one.metadata.name));
    if applying.is_empty() {
        return Ok(object);
    }
    let cluster_value = serde_json::to_value(cluster).unwrap_or_default();
    let before = identity(&object);
    // One for all of them: copying a value into itself doubles it every time.
    let mut budget = PatchBudget::default();
    for one in applying {
        for (rule, steps) in one.spec.rules.iter().enumerate() {
            let failed = |why: String| OverrideError { name: one.metadata.name.clone(), rule, why };
            match select::cluster(&steps.cluster_selector, cluster, &cluster_value) {
                Selected::Yes => change(&mut object, steps, &cluster_value, &mut budget).map_err(failed)?,
                Selected::InvalidExpression { text, error } => {
                    return Err(failed(format!("{text:?}: {error}")));
                }
                _ => {}
            }
            if let Some(field) = changed(&before, &identity(&object)) {
                return Err(failed(format!("an Override may not change {field}")));
            }
        }
    }
    Ok(object)
}

fn is_for(one: &Override, subject: &ObjectAttributes) -> bool {
    select::labels(&one.spec.namespace_selector, subject.namespace_labels) == Selected::Yes
        && select::object(&one.spec.object_selector, subject)
}

const IDENTITY: [&str; 4] = ["/apiVersion", "/kind", "/metadata/name", "/metadata/namespace"];

fn identity(object: &Value) -> [Option<Value>; 4] {
    IDENTITY.map(|pointer| object.pointer(pointer).cloned())
}

fn changed(before: &[Option<Value>; 4], after: &[Option<Value>; 4]) -> Option<String> {
    let at = before.iter().zip(after).position(|(before, after)| before != after)?;
    Some(IDENTITY[at][1..].replace('/', "."))
}

fn change(
    object: &mut Value,
    rule: &OverrideRule,
    cluster: &Value,
    budget: &mut PatchBudget,
) -> Result<(), String> {
    rule.images.iter().for_each(|image| set_image(object, image));
    rule.env.iter().for_each(|environment| set_variables(object, environment));
    rule.args.iter().for_each(|arguments| set_arguments(object, arguments));
    for (field, table) in [("labels", &rule.labels), ("annotations", &rule.annotations)] {
        if let Some(table) = table {
            set_table(object, field, table)?;
        }
    }
    if let Some(patch) = &rule.merge_patch {
        merge_patch::merge(object, Value::Object(patch.clone()));
    }
    for step in &rule.json_patch {
        patch(object, step, budget)?;
    }
    for computed in &rule.computed {
        let value = match expression::compile_cached(&computed.expression, &["object", "cluster"]).as_ref() {
            Ok(program) => program.evaluate(&[("object", object), ("cluster", cluster)]),
            Err(error) => Err(error.clone()),
        };
        let value = value.map_err(|error| format!("{:?}: {error}", computed.expression))?;
        budget.copy(&value).map_err(|why| format!("{:?}: {why}", computed.expression))?;
        pointer::set(object, &computed.path, value)?;
    }
    Ok(())
}

/// Containers of this name, or all.
fn containers(object: &mut Value, name: Option<&str>, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(spec) = pod_spec_at(object).and_then(|at| object.pointer_mut(at)) else { return };
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let found = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in found.into_iter().flatten().filter_map(Value::as_object_mut) {
            if name.is_none_or(|name| container.get("name").is_some_and(|found| found == name)) {
                visit(container);
            }
        }
    }
}

fn set_image(object: &mut Value, change: &Image) {
    containers(object, change.container.as_deref(), &mut |container| {
        if let Some(Value::String(image)) = container.get_mut("image") {
            *image = renamed(image, change.registry.as_deref(), change.tag.as_deref());
        }
    });
}

/// The list with a name, created if it is missing.
fn list<'a>(container: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let field = container.entry(name).or_insert(Value::Null);
    if !field.is_array() {
        *field = json!([]);
    }
    field.as_array_mut().expect("the field was set to an array above")
}

fn set_variables(object: &mut Value, change: &Environment) {
    containers(object, change.container.as_deref(), &mut |container| {
        let variables = list(container, "env");
        variables.retain(|variable| !change.remove.iter().any(|name| variable["name"] == **name));
        for set in &change.set {
            let new = json!({ "name": set.name, "value": set.value });
            match variables.iter_mut().find(|variable| variable["name"] == *set.name) {
                Some(found) => *found = new,
                None => variables.push(new),
            }
        }
    });
}

fn set_arguments(object: &mut Value, change: &Arguments) {
    containers(object, change.container.as_deref(), &mut |container| {
        let arguments = list(container, "args");
        arguments.retain(|argument| !change.remove.iter().any(|removed| *argument == **removed));
        arguments.extend(change.append.iter().map(|argument| argument.as_str().into()));
    });
}

fn set_table(object: &mut Value, field: &str, table: &Table) -> Result<(), String> {
    for name in &table.remove {
        pointer::remove(object, &format!("/metadata/{field}/{}", pointer::escape(name)));
    }
    for (name, value) in &table.set {
        pointer::set(object, &format!("/metadata/{field}/{}", pointer::escape(name)), value.as_str().into())?;
    }
    Ok(())
}

/// Applies one operation of a JSON patch.
fn patch(object: &mut Value, step: &PatchStep, budget: &mut PatchBudget) -> Result<(), String> {
    if step.value.is_none() && matches!(step.op, Operation::Add | Operation::Replace) {
        return Err(format!("{:?} of {}: value is missing", step.op, step.path));
    }
    let written = serde_json::to_value(step).map_err(|error| error.to_string())?;
    let applied = JsonPatchOperation::from_value(written).apply(object, budget);
    applied.map_err(|why| format!("{:?} of {}: {why}", step.op, step.path))
}
