//! Validation of write options in a query.
//!
//! Options are validated before the body is read, so later code can rely on them: an unknown value must never turn a
//! dry run into a real write.

use api::meta::field::FieldError;
use openapi::catalog::resource_info::Verb;
use openapi::meta::status::{GroupResource, Status};

use crate::request::query::Query;

/// The maximum length of a field manager, as in Kubernetes.
pub(crate) const MANAGER_BYTES_MAX: usize = 128;

const VALIDATIONS: &[&str] = &["", "Ignore", "Strict", "Warn"];

/// Refuses options that a verb does not have, and unknown values. `applies`: the patch is a server-side apply.
pub(crate) fn check(verb: Verb, query: &Query, applies: bool) -> Result<(), Status> {
    let (kind, errors) = match verb {
        Verb::Get | Verb::List | Verb::Watch => return Ok(()),
        Verb::Create => ("CreateOptions", written(query)),
        Verb::Update => ("UpdateOptions", written(query)),
        Verb::Patch => ("PatchOptions", forced(query, applies).into_iter().chain(written(query)).collect()),
        Verb::Delete | Verb::DeleteCollection => ("DeleteOptions", rehearsed(query).into_iter().collect()),
    };
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Status::invalid(GroupResource::new("meta.k8s.io", kind), "", &errors)),
    }
}

/// Validates the options that all creates, updates and patches have.
fn written(query: &Query) -> Vec<FieldError> {
    let validation = query.text("fieldValidation");
    let validation = (!VALIDATIONS.contains(&validation))
        .then(|| FieldError::not_supported("fieldValidation", validation, VALIDATIONS));
    managed(query.text("fieldManager")).into_iter().chain(rehearsed(query)).chain(validation).collect()
}

fn rehearsed(query: &Query) -> Option<FieldError> {
    let values: Vec<&str> = query.all("dryRun").collect();
    let known = values.iter().all(|value| *value == "All");
    (!known).then(|| FieldError::not_supported("dryRun", values, &["All"]))
}

fn managed(name: &str) -> Vec<FieldError> {
    let long =
        (name.len() > MANAGER_BYTES_MAX).then(|| FieldError::too_long("fieldManager", MANAGER_BYTES_MAX));
    let strange = |c: &char| c.is_control() || c.is_whitespace() && *c != ' ';
    let strange = name.char_indices().filter(|(_, c)| strange(c)).map(|(at, c)| {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        FieldError::invalid("fieldManager", name, why)
    });
    long.into_iter().chain(strange).collect()
}

/// Validates the options of a patch: an apply requires `fieldManager`, and only an apply takes `force`.
fn forced(query: &Query, applies: bool) -> Option<FieldError> {
    let nameless = query.text("fieldManager").is_empty();
    match applies {
        true => nameless.then(|| FieldError::required("fieldManager", "is required for apply patch")),
        false => {
            let why = "may not be specified for non-apply patch";
            query.all("force").next().map(|_| FieldError::forbidden("force", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused_with_the_name_of_their_kind() {
        let error_of = |verb, query: &str| {
            check(verb, &Query::parse(Some(query)), false).map_err(|status| status.message)
        };
        let refused = |verb, query: &str, expected: &str| {
            assert_eq!(error_of(verb, query), Err(expected.to_owned()), "{query}");
        };
        for query in ["", "dryRun=All&dryRun=All", "fieldManager=a%20b", "fieldValidation=Strict"] {
            for verb in Verb::ALL {
                assert_eq!(error_of(verb, query), Ok(()), "{verb:?} {query}");
            }
        }
        refused(
            Verb::Create,
            "dryRun=",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\"",
        );
        refused(
            Verb::DeleteCollection,
            "dryRun=All&dryRun=Some",
            "DeleteOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"All\",\"Some\"]: supported values: \"All\"",
        );
        refused(
            Verb::Update,
            "fieldValidation=strict",
            "UpdateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        );
        refused(
            Verb::Patch,
            "force=&fieldManager=a%09",
            "PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for non-apply patch, fieldManager: Invalid value: \"a\\t\": invalid character U+0009 (at position 1)]",
        );
        let applied = |query: &str| check(Verb::Patch, &Query::parse(Some(query)), true);
        assert!(applied("force=true&fieldManager=a").is_ok());
        assert_eq!(
            applied("force=true").unwrap_err().message,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
    }
}
