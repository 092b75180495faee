//! A request of a story.

pub(crate) const JSON: &str = "application/json";

/// A request. Path and body may contain `{ns}`, the namespace, and `{uid}` and `{rv}`, those of the last object in the
/// same server's responses.
#[derive(Clone)]
pub(crate) struct RequestStep {
    /// The request as one line, for reports and exceptions.
    pub(crate) summary: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    /// The user agent; `kubectl proxy` sends its own if this is empty.
    pub(crate) user_agent: String,
    pub(crate) body: Vec<u8>,
    /// Repeat the request until the response has this text or number at this JSON pointer.
    pub(crate) until: Option<(String, String)>,
}

/// Returns the media type of a patch by its short name, and JSON for anything else.
pub(crate) fn media_type(patch: &str) -> &'static str {
    match patch {
        "json" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        _ => JSON,
    }
}
