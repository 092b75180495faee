//! The patch types that a client can send.
//!
//! ```text
//! body ──▶ decode ──▶ parse ──▶ apply to the current object ──▶ typed decode or prune ──▶ the new object
//! ```
//!
//! | media type | module | |
//! |---|---|---|
//! | `application/json-patch+json` | [`json`] | RFC 6902: a list of operations |
//! | `application/merge-patch+json` | [`merge`] | RFC 7396: fields to set, null to delete |
//! | `application/strategic-merge-patch+json` | [`strategic`] | the same, and lists merge by key; built-in kinds only |
//! | `application/apply-patch+yaml` | [`apply`] | the desired fields of one manager; updates managed fields |
//!
//! Patches are pure: an object and a patch in, an object out. They know schemas, never kinds.

pub mod apply;
pub mod json;
pub mod merge;
pub mod strategic;

use crate::meta::status::{GroupResource, Status};
use api::meta::field::FieldError;

/// Why a patch cannot be applied.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PatchError {
    /// The body is not a patch.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not apply to this object.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch contradicts itself or the schema. Kubernetes answers 500 with this text, as if the server had failed.
    #[error("{0}")]
    Unfit(String),
    /// The patch exceeds its budget of work.
    #[error("{0}")]
    TooLarge(String),
}

impl PatchError {
    /// Returns the Status for the client. Like Kubernetes, it omits why a JSON patch does not apply; the log has it.
    pub fn status(&self) -> Status {
        match self {
            PatchError::Malformed(why) => Status::bad_request(why.as_str()),
            PatchError::DoesNotApply(_) => Status::patch_does_not_apply(),
            PatchError::Unfit(why) => Status::unprocessable(why.as_str()),
            PatchError::TooLarge(why) => Status::too_large(why),
        }
    }
}

/// Returns the Status for a patched object that cannot be decoded as its kind, at all or strictly. `patched` is the
/// patch as Go prints it for a strategic merge patch, and the resulting object for the other types.
pub fn unreadable(patched: &str, why: &str) -> Status {
    let nothing = GroupResource::new("", "");
    Status::invalid(nothing, "", &[FieldError::invalid("patch", patched, why)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_code() {
        let rows = [
            (PatchError::Malformed("bad".to_owned()), 400, "bad"),
            (
                PatchError::DoesNotApply("secret".to_owned()),
                422,
                "the server rejected our request due to an error in our request",
            ),
            (PatchError::Unfit("no key".to_owned()), 422, "no key"),
            (PatchError::TooLarge("10001".to_owned()), 413, "Request entity too large: 10001"),
        ];
        for (error, code, message) in rows {
            let status = error.status();
            assert_eq!((status.code, status.message.as_str()), (code, message));
        }
        let message =
            unreadable("map[spec:map[foo:1]]", "strict decoding error: unknown field \"spec.foo\"").message;
        let expected = " \"\" is invalid: patch: Invalid value: \"map[spec:map[foo:1]]\": strict decoding error: unknown field \"spec.foo\"";
        assert_eq!(message, expected);
    }
}
