//! Validation of the stored versions of a kind.

use serde_json::Value;

use api::meta::field::FieldError;

use super::{items, text};

const PATH: &str = "status.storedVersions";

/// Checks that the stored versions contain the storage version, and that the definition still has all of them.
pub(super) fn validate(definition: &Value, found: &mut Vec<FieldError>) {
    let stored = definition["status"]["storedVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if stored.is_empty() {
        let value = definition["status"]["storedVersions"].clone();
        found.push(FieldError::invalid(PATH, value, "must have at least one stored version"));
        return;
    }
    let versions = || items(&definition["spec"]["versions"]);
    for version in
        versions().filter(|version| version["storage"] == true && !stored.contains(&version["name"]))
    {
        let detail = format!("must have the storage version {}", text(&version["name"]));
        found.push(FieldError::invalid(PATH, stored.to_vec(), detail));
    }
    for (index, name) in stored.iter().enumerate() {
        if !versions().any(|version| version["name"] == *name) {
            let name = text(name);
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            found.push(FieldError::invalid(format!("{PATH}[{index}]"), name, detail));
        }
    }
}
