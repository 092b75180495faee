//! Conditions of a schema: `anyOf`, `oneOf`, `allOf` and `not`.

use serde_json::Value;

use super::node::SchemaNode;
use super::result::{ValidationIssue, ValidationResult};
use super::{STEPS_MAX, StructuralValidator};
use crate::schema::constraints::Constraints;
use api::meta::go;

impl StructuralValidator {
    /// Validates `anyOf`, `oneOf`, `allOf` and `not`, in this order.
    pub(super) fn conditions(
        &mut self,
        rules: &Constraints,
        value: &Value,
        old: Option<&Value>,
    ) -> ValidationResult {
        let mut outcome = ValidationResult::default();
        if !rules.any_of.is_empty() {
            match self.any(&rules.any_of, value, old) {
                Ok(first) => outcome.merge(first),
                Err(best) => {
                    outcome.add(self.general("must validate at least one schema (anyOf)"));
                    outcome.merge(best);
                }
            }
        }
        if !rules.one_of.is_empty() {
            let (valid, reported) = self.one(&rules.one_of, value, old);
            if valid != 1 {
                let why = match valid {
                    0 => "Found none valid".to_owned(),
                    _ => format!("Found {valid} valid alternatives"),
                };
                outcome.add(self.general(&format!("must validate one and only one schema (oneOf). {why}")));
            }
            reported.into_iter().for_each(|reported| outcome.merge(reported));
        }
        if !rules.all_of.is_empty() {
            let mut valid = 0;
            for condition in &rules.all_of {
                let one = self.condition(condition, value, old);
                valid += usize::from(one.is_valid());
                outcome.merge(one);
            }
            if valid != rules.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(self.general(&format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &rules.not
            && self.condition(not, value, old).is_valid()
        {
            outcome.add(self.general("must not validate the schema (not)"));
        }
        outcome
    }

    fn general(&self, rule: &str) -> ValidationIssue {
        ValidationIssue::general(format!("{} {rule}", go::quote(&self.path)))
    }

    fn condition(&mut self, rules: &Constraints, value: &Value, old: Option<&Value>) -> ValidationResult {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return ValidationResult::default();
        }
        let outcome = self.validate(SchemaNode::condition(rules), value, old);
        self.steps += outcome.steps();
        outcome
    }

    /// Returns the result of the first condition that is met, or the failure with the most matches.
    fn any(
        &mut self,
        conditions: &[Constraints],
        value: &Value,
        old: Option<&Value>,
    ) -> Result<ValidationResult, ValidationResult> {
        let mut best: Option<ValidationResult> = None;
        for condition in conditions {
            let one = self.condition(condition, value, old);
            if one.is_valid() {
                return Ok(one);
            }
            if best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        Err(best.unwrap_or_default())
    }

    /// Returns how many conditions are met, and a result: of the one that is met, or of the failure with the most
    /// matches.
    fn one(
        &mut self,
        conditions: &[Constraints],
        value: &Value,
        old: Option<&Value>,
    ) -> (usize, Option<ValidationResult>) {
        let (mut valid, mut first, mut best) = (0, None, None::<ValidationResult>);
        for condition in conditions {
            let one = self.condition(condition, value, old);
            if one.is_valid() {
                valid += 1;
                best = None;
                first.get_or_insert(one);
            } else if valid == 0 && best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        (valid, if valid == 1 { first } else { best })
    }
}
