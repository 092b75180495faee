//! The rules of `defaults.txt`, parsed: the defaults of each type, in order.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{autoscalers, other_kinds, pods, services};
use crate::schema::messages::{Message, MessageTable};

const DEFAULTS: &str = include_str!("defaults.txt");

static RULES: LazyLock<HashMap<&'static str, Vec<DefaultingRule>>> = LazyLock::new(|| parse(DEFAULTS));

/// Returns the rules of a type, in order.
pub(super) fn of(message: &Message) -> &'static [DefaultingRule] {
    RULES.get(message.name).map_or(&[], Vec::as_slice)
}

/// A default that the table cannot express.
type DefaultingFn = fn(&mut Map<String, Value>);

#[derive(Debug)]
pub(super) struct DefaultingRule {
    action: DefaultingAction,
    condition: DefaultingCondition,
}

#[derive(Debug)]
enum DefaultingAction {
    SetDefault(FieldRef, Value),
    Drop(FieldRef),
    Do(DefaultingFn),
}

#[derive(Debug)]
enum DefaultingCondition {
    Always,
    Set(FieldRef),
    Unset(FieldRef),
    Equals(FieldRef, Value),
}

/// A path to a field.
#[derive(Debug)]
struct FieldRef {
    path: Vec<&'static str>,
    /// Whether the field is a pointer. Then a zero value is set, and no default applies.
    pointer: bool,
}

impl DefaultingRule {
    pub(super) fn apply(&self, fields: &mut Map<String, Value>) {
        let holds = match &self.condition {
            DefaultingCondition::Always => true,
            DefaultingCondition::Set(field_ref) => field_ref.is_set(fields),
            DefaultingCondition::Unset(field_ref) => !field_ref.is_set(fields),
            DefaultingCondition::Equals(field_ref, value) => field_ref.get(fields) == Some(value),
        };
        if !holds {
            return;
        }
        match &self.action {
            DefaultingAction::SetDefault(field_ref, value) if !field_ref.is_set(fields) => {
                field_ref.set(fields, value)
            }
            DefaultingAction::SetDefault(..) => {}
            DefaultingAction::Drop(field_ref) => field_ref.remove(fields),
            DefaultingAction::Do(step) => step(fields),
        }
    }
}

impl FieldRef {
    fn get<'a>(&self, fields: &'a Map<String, Value>) -> Option<&'a Value> {
        let (last, parents) = self.path.split_last()?;
        let mut at = fields;
        for step in parents {
            at = at.get(*step)?.as_object()?;
        }
        at.get(*last)
    }

    fn is_set(&self, fields: &Map<String, Value>) -> bool {
        self.get(fields).is_some_and(|value| !value.is_null() && (self.pointer || !is_zero(value)))
    }

    fn set(&self, fields: &mut Map<String, Value>, value: &Value) {
        if let Some((parent, last)) = self.parent(fields) {
            parent.insert(last.to_owned(), value.clone());
        }
    }

    fn remove(&self, fields: &mut Map<String, Value>) {
        if let Some((parent, last)) = self.parent(fields) {
            parent.remove(last);
        }
    }

    /// Returns the object with the field, and the field's name. Returns none if the path leads through an absent
    /// pointer: all structs are present when rules apply.
    fn parent<'a>(
        &self,
        fields: &'a mut Map<String, Value>,
    ) -> Option<(&'a mut Map<String, Value>, &'static str)> {
        let (last, parents) = self.path.split_last()?;
        let mut at = fields;
        for step in parents {
            at = at.get_mut(*step)?.as_object_mut()?;
        }
        Some((at, last))
    }
}

/// Parses `defaults.txt`. Panics if the file is invalid; a test parses it.
fn parse(text: &'static str) -> HashMap<&'static str, Vec<DefaultingRule>> {
    let mut rules: HashMap<_, Vec<DefaultingRule>> = HashMap::new();
    let mut of = "";
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if let Some(rule) = line.strip_prefix(' ') {
            rules.entry(of).or_default().push(DefaultingRule::parse(of, rule.trim()));
        } else {
            of = line.trim();
        }
    }
    rules
}

impl DefaultingRule {
    fn parse(of: &'static str, line: &'static str) -> DefaultingRule {
        let (first, rest) = line.split_once(' ').unwrap_or_else(|| panic!("incomplete rule: {line}"));
        let (action, rest) = match first {
            "do" => {
                let (name, rest) = word(rest);
                (DefaultingAction::Do(step(name)), rest)
            }
            "drop" => {
                let (name, rest) = word(rest);
                (DefaultingAction::Drop(FieldRef::parse(of, name)), rest)
            }
            field => {
                let (value, rest) = json(rest);
                (DefaultingAction::SetDefault(FieldRef::parse(of, field), value), rest)
            }
        };
        DefaultingRule { action, condition: DefaultingCondition::parse(of, rest) }
    }
}

impl DefaultingCondition {
    fn parse(of: &'static str, text: &'static str) -> DefaultingCondition {
        let (first, rest) = word(text);
        let (field, rest) = word(rest);
        match (first, rest) {
            ("", _) => DefaultingCondition::Always,
            ("if", "") => DefaultingCondition::Set(FieldRef::parse(of, field)),
            ("unless", "") => DefaultingCondition::Unset(FieldRef::parse(of, field)),
            ("if", value) => DefaultingCondition::Equals(FieldRef::parse(of, field), json(value).0),
            _ => panic!("invalid condition: {text}"),
        }
    }
}

impl FieldRef {
    fn parse(of: &'static str, path: &'static str) -> FieldRef {
        let path: Vec<_> = path.split('.').collect();
        let pointer =
            MessageTable::get().field_at(of, &path).unwrap_or_else(|| panic!("{of} has no {path:?}")).pointer;
        FieldRef { path, pointer }
    }
}

fn step(name: &str) -> DefaultingFn {
    match name {
        "pull_policy" => pods::pull_policy,
        "image_volume_policy" => pods::image_volume_policy,
        "volume_source" => pods::volume_source,
        "account_alias" => pods::account_alias,
        "requests" => pods::requests,
        "host_ports" => pods::host_ports,
        "grace" => pods::grace,
        "old_annotations" => pods::old_annotations,
        "pod_ips" => pods::pod_ips,
        "target_port" => services::target_port,
        "affinity_config" => services::affinity_config,
        "external_policy" => services::external_policy,
        "balancer_modes" => services::balancer_modes,
        "scaling_rules" => autoscalers::scaling_rules,
        "cpu_target" => autoscalers::cpu_target,
        "name_label" => other_kinds::name_label,
        "template_labels" => other_kinds::template_labels,
        "template_selector" => other_kinds::template_selector,
        "claim_types" => other_kinds::claim_types,
        "limit_defaults" => other_kinds::limit_defaults,
        "string_data" => other_kinds::string_data,
        "pod_cidrs" => other_kinds::pod_cidrs,
        "allocatable" => other_kinds::allocatable,
        "definition_names" => other_kinds::definition_names,
        "stored_versions" => other_kinds::stored_versions,
        _ => panic!("defaults.txt names an unknown function {name}"),
    }
}

fn word(text: &'static str) -> (&'static str, &'static str) {
    let text = text.trim_start();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Parses the JSON value at the start of a text and returns it with the rest of the text.
fn json(text: &'static str) -> (Value, &'static str) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next().and_then(Result::ok).unwrap_or_else(|| panic!("no value: {text}"));
    let end = values.byte_offset();
    (value, text[end..].trim_start())
}

/// Reports whether a value is the zero value of its type. A struct always has fields, so an empty object is an empty
/// map.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        value => is_hollow(value),
    }
}

pub(super) fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_parses() {
        assert!(RULES.len() > 60);
    }
}
