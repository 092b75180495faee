//! Built-in kinds that are not part of Kubernetes.
//!
//! The program that builds the server passes them in as custom resource definitions. After that they are built-in
//! kinds: every logical cluster serves them, no tenant can redefine them, and they are compiled once for all logical
//! clusters. No logical cluster has a definition object for them.

use std::sync::Arc;

use api::meta::field;
use api::names::GROUP;
use openapi::codec;
use openapi::codec::{FieldValidation, Syntax};
use openapi::crd::CustomKind;
use openapi::{defaulting, validation};
use serde_json::Value;

use crate::kinds::definition;

/// The kinds that every logical cluster serves besides those of Kubernetes.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub(super) kinds: Vec<Arc<CustomKind>>,
}

/// The error for an invalid definition: a bug of the program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OwnError {
    #[error("built-in definition {number} cannot be parsed: {why}")]
    Unreadable { number: usize, why: String },
    #[error("built-in definition {name:?} is invalid: {why}")]
    Refused { name: String, why: String },
    /// Users may define kinds in all other groups.
    #[error("built-in definition {name:?} is not in the group {GROUP}")]
    Foreign { name: String },
}

impl Own {
    /// Parses custom resource definitions in YAML or JSON.
    pub fn read(definitions: &[&str]) -> Result<Own, OwnError> {
        let kinds = definitions.iter().zip(1..).map(|(text, number)| {
            let definition = read(text).map_err(|why| OwnError::Unreadable { number, why })?;
            let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if definition["spec"]["group"] != GROUP {
                return Err(OwnError::Foreign { name });
            }
            let faults = validation::validate_create(definition::definitions_resource(), &definition);
            match faults.is_empty() {
                true => Ok(Arc::new(CustomKind::of(&definition))),
                false => Err(OwnError::Refused { name, why: field::summary(&faults) }),
            }
        });
        Ok(Own { kinds: kinds.collect::<Result<_, _>>()? })
    }
}

/// Parses a definition as the server would store it.
fn read(text: &str) -> Result<Value, String> {
    let resource = definition::definitions_resource();
    let schema = resource.schema().expect("a built-in kind has a schema");
    let decoded =
        codec::decode_as(text.as_bytes(), Syntax::Yaml, schema).map_err(|error| error.to_string())?;
    FieldValidation::Strict.enforce(&decoded.strict_errors)?;
    let mut definition = decoded.value;
    defaulting::apply_defaults(resource, &mut definition);
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GADGETS: &str = "
        apiVersion: apiextensions.k8s.io/v1
        kind: CustomResourceDefinition
        metadata: { name: gadgets.holon.dev }
        spec:
          group: holon.dev
          scope: Namespaced
          names: { kind: Gadget, plural: gadgets, shortNames: [gg] }
          versions:
          - name: v1alpha1
            served: true
            storage: true
            schema: { openAPIV3Schema: { type: object, properties: { spec: { type: object } } } }
    ";

    #[test]
    fn a_definition_that_would_be_refused_is_not_served() {
        let resources =
            |own: Own| own.kinds.iter().map(|kind| kind.resources[0].qualified()).collect::<Vec<_>>();
        assert_eq!(resources(Own::read(&[GADGETS]).unwrap()), ["gadgets.holon.dev"]);
        let check = |old: &str, new: &str, expected: &str| {
            assert!(GADGETS.contains(old), "{old}");
            let error = Own::read(&[&GADGETS.replace(old, new)]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("served", "severed", "unknown field \"spec.versions[0].severed\"");
        check("spec:\n", "spec\n", "cannot be parsed");
        check("type: object, ", "type: text, ", "\"gadgets.holon.dev\" is invalid");
        check("group: holon.dev", "group: shop.example", "is not in the group holon.dev");
    }
}
