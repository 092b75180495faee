//! A request, before anybody sends it.

pub(crate) const JSON: &str = "application/json";

/// Path and body may hold `{ns}`, the namespace, and `{uid}` and `{rv}`, those of the last object the same server
/// answered with.
#[derive(Clone)]
pub(crate) struct Step {
    /// The request as one line, for reports and exceptions.
    pub(crate) told: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    /// Who sends it; `kubectl proxy` if it is empty.
    pub(crate) user_agent: String,
    pub(crate) body: Vec<u8>,
    /// A JSON pointer into the answer, and the text or number to wait for there.
    pub(crate) until: Option<(String, String)>,
}

/// Of a patch by its short name; of anything else, JSON.
pub(crate) fn media_type(patch: &str) -> &'static str {
    match patch {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        _ => JSON,
    }
}
