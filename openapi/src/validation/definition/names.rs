//! The names of a kind.

use serde_json::Value;

use api::meta::field::FieldError;
use api::meta::names::dns1035_label;

use super::{items, text};

/// Validates the names in the spec, or the accepted names. Absent names are reported elsewhere.
pub(super) fn validate(names: &Value, path: &str, found: &mut Vec<FieldError>) {
    let mut label = |field: String, name: &str, as_label: &str, words: &str| {
        let faults = dns1035_label(as_label);
        if !faults.is_empty() {
            found.push(FieldError::invalid(field, name, format!("{words}{}", faults.join(","))));
        }
    };
    for field in ["plural", "singular"] {
        let name = text(&names[field]);
        if !name.is_empty() {
            label(format!("{path}.{field}"), name, name, "");
        }
    }
    let mixed = "may have mixed case, but should otherwise match: ";
    for field in ["kind", "listKind"] {
        let name = text(&names[field]);
        if !name.is_empty() {
            label(format!("{path}.{field}"), name, &name.to_lowercase(), mixed);
        }
    }
    for (index, name) in items(&names["shortNames"]).map(text).enumerate() {
        label(format!("{path}.shortNames[{index}]"), name, name, "");
    }
    let (kind, list_kind) = (text(&names["kind"]), text(&names["listKind"]));
    if !kind.is_empty() && kind == list_kind {
        let detail = "kind and listKind may not be the same";
        found.push(FieldError::invalid(format!("{path}.listKind"), list_kind, detail));
    }
    for (index, name) in items(&names["categories"]).map(text).enumerate() {
        let faults = dns1035_label(name);
        if !faults.is_empty() {
            found.push(FieldError::invalid(format!("{path}.categories[{index}]"), name, faults.join(",")));
        }
    }
}
