//! Groups of the Kubernetes project, which need an approval annotation.

use serde_json::Value;

use crate::validation::structural::formats;
use api::meta::field::FieldError;

use super::text;

/// The annotation with the approval of a definition.
const APPROVED: &str = "api-approved.kubernetes.io";

/// Checks the approval annotation. An existing definition keeps the approval it has.
pub(super) fn validate(old: Option<&Value>, new: &Value, found: &mut Vec<FieldError>) {
    let group = text(&new["spec"]["group"]);
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|owner| group == *owner || group.strip_suffix(owner).is_some_and(|rest| rest.ends_with('.')));
    let state = approval(new);
    if !is_protected || old.is_some_and(|old| approval(old) == state) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVED}]");
    let annotation = text(&new["metadata"]["annotations"][APPROVED]);
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Missing => {
            let detail = format!("protected groups must have approval annotation \"{APPROVED}\", {see}");
            found.push(FieldError::required(field, detail));
        }
        Approval::Invalid => {
            let detail = format!(
                "protected groups must have approval annotation \"{APPROVED}\" with either a URL or a reason \
                 starting with \"unapproved\", {see}"
            );
            found.push(FieldError::invalid(field, annotation, detail));
        }
        Approval::Given | Approval::Bypassed => {}
    }
}

#[derive(PartialEq)]
enum Approval {
    Missing,
    Bypassed,
    Given,
    Invalid,
}

fn approval(definition: &Value) -> Approval {
    let annotation = text(&definition["metadata"]["annotations"][APPROVED]);
    let is_address = annotation.split_once("://").is_some_and(|(scheme, rest)| {
        !scheme.is_empty()
            && !rest.is_empty()
            && !rest.starts_with('/')
            && formats::is_valid("uri", annotation)
    });
    match annotation {
        "" => Approval::Missing,
        _ if annotation.starts_with("unapproved") => Approval::Bypassed,
        _ if is_address => Approval::Given,
        _ => Approval::Invalid,
    }
}
