//! Matches selectors, and reports the requirement that failed.

use api::fleet::{ClusterSelector, Compare, LabelSelector, ObjectSelector, PhysicalCluster, Requirement};
use expression::{ExpressionError, compile_cached};
use serde_json::Value;

use super::{Labels, ObjectAttributes};

/// The result of a match. Of several requirements that failed, the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selected {
    Yes,
    /// The selector names others.
    NotNamed,
    /// A label does not match.
    Label {
        requirement: Requirement,
        found: Option<String>,
    },
    /// An expression is false.
    Expression {
        text: String,
    },
    /// An expression cannot be compiled or evaluated.
    InvalidExpression {
        text: String,
        error: ExpressionError,
    },
}

/// The number of requirements of a selector.
pub fn terms(selector: &LabelSelector) -> usize {
    selector.match_labels.len() + selector.match_expressions.len()
}

pub fn labels(selector: &LabelSelector, labels: &Labels) -> Selected {
    let equal = selector.match_labels.iter().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: Compare::In,
        values: vec![value.clone()],
    });
    for requirement in equal.chain(selector.match_expressions.iter().cloned()) {
        let found = labels.get(&requirement.key);
        if !requirement.matches(found.map(String::as_str)) {
            return Selected::Label { found: found.cloned(), requirement };
        }
    }
    Selected::Yes
}

/// The requirement in the syntax of the annotation.
pub fn requirement_text(requirement: &Requirement) -> String {
    let Requirement { key, operator, values } = requirement;
    match (operator, values.as_slice()) {
        (Compare::In, [value]) => format!("{key}={value}"),
        (Compare::NotIn, [value]) => format!("{key}!={value}"),
        (Compare::In, values) => format!("{key} in ({})", values.join(",")),
        (Compare::NotIn, values) => format!("{key} notin ({})", values.join(",")),
        (Compare::Exists, _) => format!("{key}=*"),
        (Compare::DoesNotExist, _) => format!("!{key}"),
    }
}

pub fn object(selector: &ObjectSelector, subject: &ObjectAttributes) -> bool {
    let ObjectSelector { kinds, names, labels: by_labels } = selector;
    let of_kind =
        kinds.is_empty() || kinds.iter().any(|kind| kind.group == subject.group && kind.kind == subject.kind);
    let named = names.is_empty() || names.iter().any(|name| name == subject.name);
    of_kind && named && labels(by_labels, subject.labels) == Selected::Yes
}

/// Whether a physical cluster is selected. `value` is the same as JSON, for expressions.
pub fn cluster(selector: &ClusterSelector, cluster: &PhysicalCluster, value: &Value) -> Selected {
    let ClusterSelector { names, labels: by_labels, expressions } = selector;
    if !names.is_empty() && !names.contains(&cluster.metadata.name) {
        return Selected::NotNamed;
    }
    let selected = labels(by_labels, &cluster.metadata.labels);
    if selected != Selected::Yes {
        return selected;
    }
    let result = expressions.iter().map(|text| evaluate(text, value));
    result.into_iter().find(|result| *result != Selected::Yes).unwrap_or(Selected::Yes)
}

fn evaluate(text: &str, cluster: &Value) -> Selected {
    let result = match compile_cached(text, &["cluster"]).as_ref() {
        Ok(program) => program.evaluate_bool(&[("cluster", cluster)]),
        Err(error) => Err(error.clone()),
    };
    let text = text.to_owned();
    match result {
        Ok(true) => Selected::Yes,
        Ok(false) => Selected::Expression { text },
        Err(error) => Selected::InvalidExpression { text, error },
    }
}
