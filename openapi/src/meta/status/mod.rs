//! [`Status`]: the Kubernetes object that reports an error or a success to the client.
//!
//! There is one constructor for each form. The messages are Kubernetes' own, because clients compare them; log messages
//! are not made here. `details.kind` is the resource (`pods`), except in [`Status::invalid`], where it is the kind
//! (`Pod`).

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use api::meta::field;
use api::meta::field::FieldError;

/// The body of a response that is not the requested object.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Status {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    pub metadata: Metadata,
    pub status: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
    /// The HTTP status; omitted if it is 200.
    #[serde(skip_serializing_if = "is_ok")]
    pub code: u16,
}

/// Metadata of a Status. Only an expired list has any: the token to continue with.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Metadata {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    pub continue_token: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Outcome {
    Success,
    Failure,
}

/// The machine-readable reason. Its names are those in the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Reason {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    RequestEntityTooLarge,
    Invalid,
    TooManyRequests,
    InternalError,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(rename = "retryAfterSeconds", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// A resource (`deployments`) or a kind (`Deployment`) and its API group; printed as `deployments.apps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    pub name: &'a str,
}

impl<'a> GroupResource<'a> {
    pub fn new(group: &'a str, name: &'a str) -> GroupResource<'a> {
        GroupResource { group, name }
    }
}

impl fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => f.write_str(self.name),
            group => write!(f, "{}.{group}", self.name),
        }
    }
}

/// A field of another manager with which a server-side apply conflicts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedField {
    /// `.spec.replicas`.
    pub path: String,
    /// `"kubectl" using apps/v1`.
    pub owner: String,
}

impl Status {
    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Status {
        Status {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata::default(),
            status: Outcome::Failure,
            message: message.into(),
            reason: Some(reason),
            details: None,
            code,
        }
    }

    fn about(mut self, resource: GroupResource<'_>, name: &str) -> Status {
        let details = self.details_mut();
        details.group = resource.group.to_owned();
        details.kind = resource.name.to_owned();
        details.name = name.to_owned();
        self
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Sets after how many seconds the client should retry.
    pub fn retry_after(mut self, seconds: u32) -> Status {
        self.details_mut().retry_after_seconds = seconds;
        self
    }

    /// Adds a cause.
    pub fn because(mut self, cause: Cause) -> Status {
        self.details_mut().causes.push(cause);
        self
    }

    /// An object was deleted.
    pub fn deleted(resource: GroupResource<'_>, name: &str, uid: &str) -> Status {
        let mut status = Status::failure(200, Reason::NotFound, "").about(resource, name);
        status.status = Outcome::Success;
        status.reason = None;
        status.details_mut().uid = uid.to_owned();
        status
    }

    /// A request succeeded that has no object to return.
    pub fn done(code: u16) -> Status {
        let mut status = Status::failure(code, Reason::NotFound, "");
        (status.status, status.reason) = (Outcome::Success, None);
        status
    }

    /// An error for which Kubernetes gives no machine-readable reason.
    pub fn failed(message: impl Into<String>) -> Status {
        let mut status = Status::failure(500, Reason::InternalError, message);
        status.reason = None;
        status
    }

    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::failure(400, Reason::BadRequest, message)
    }

    pub fn unauthorized() -> Status {
        Status::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// The token expired.
    pub fn token_expired() -> Status {
        Status::failure(401, Reason::Unauthorized, api::names::TOKEN_EXPIRED)
    }

    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let message = match (resource.name, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Status::failure(403, Reason::Forbidden, message).about(resource, name)
    }

    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Status {
        Status::failure(404, Reason::NotFound, format!("{resource} \"{name}\" not found"))
            .about(resource, name)
    }

    /// No resource is served at this path.
    pub fn unknown_path() -> Status {
        let mut status =
            Status::failure(404, Reason::NotFound, "the server could not find the requested resource");
        status.details_mut();
        status
    }

    pub fn method_not_allowed(resource: GroupResource<'_>, verb: &str) -> Status {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Status::failure(405, Reason::MethodNotAllowed, message).about(resource, "")
    }

    /// The path is served, but not with this method.
    pub fn wrong_method() -> Status {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Status::failure(405, Reason::MethodNotAllowed, message);
        status.details_mut();
        status
    }

    /// The server supports none of the media types in the `Accept` header.
    pub fn unknown_accept(available: &[&str]) -> Status {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
        let mut status = Status::failure(406, Reason::NotAcceptable, message);
        status.details_mut();
        status
    }

    /// The content type of a patch is unknown.
    pub fn unknown_patch_type() -> Status {
        let mut status = Status::failure(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type");
        status.details_mut();
        status
    }

    pub fn not_acceptable(accepted: &[&str]) -> Status {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Status::failure(406, Reason::NotAcceptable, message)
    }

    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Status {
        Status::failure(409, Reason::AlreadyExists, format!("{resource} \"{name}\" already exists"))
            .about(resource, name)
    }

    /// The name belongs to an object that is being deleted; the client may retry.
    pub fn still_exists(resource: GroupResource<'_>, name: &str) -> Status {
        let mut status = Status::already_exists(resource, name);
        status.message.insert_str(0, "object is being deleted: ");
        status
    }

    /// Every name generated from a `generateName` was taken.
    pub fn no_free_name(resource: GroupResource<'_>, name: &str) -> Status {
        let message = format!(
            "{resource} \"{name}\" already exists, the server was not able to generate a unique name for the object"
        );
        Status::failure(409, Reason::AlreadyExists, message).about(resource, name).retry_after(1)
    }

    pub fn conflict(resource: GroupResource<'_>, name: &str, why: &str) -> Status {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Status::failure(409, Reason::Conflict, message).about(resource, name)
    }

    /// The resource version of the write is not the current one.
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Status {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// A server-side apply conflicts with `count` fields of other managers, of which `fields` are listed.
    pub fn apply_conflict(fields: &[OwnedField], count: usize) -> Status {
        let causes = fields.iter().map(|owned| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {}", owned.owner),
            field: owned.path.clone(),
        });
        let mut status = Status::failure(409, Reason::Conflict, apply_conflict_message(fields, count));
        status.details_mut().causes = causes.collect();
        status
    }

    pub fn gone(message: impl Into<String>) -> Status {
        Status::failure(410, Reason::Gone, message)
    }

    /// The requested resource version was compacted.
    pub fn expired(message: impl Into<String>) -> Status {
        Status::failure(410, Reason::Expired, message)
    }

    pub fn too_large(message: &str) -> Status {
        Status::failure(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {message}"))
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Status {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Status::failure(415, Reason::UnsupportedMediaType, message)
    }

    pub fn invalid(kind: GroupResource<'_>, name: &str, errors: &[FieldError]) -> Status {
        let message = match errors.is_empty() {
            true => format!("{kind} \"{name}\" is invalid"),
            false => format!("{kind} \"{name}\" is invalid: {}", field::summary(errors)),
        };
        let causes = errors.iter().map(|error| Cause {
            reason: error.fault.reason().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        });
        let mut status = Status::failure(422, Reason::Invalid, message).about(kind, name);
        status.details_mut().causes = causes.collect();
        status
    }

    /// The request is well formed but cannot be carried out.
    pub fn unprocessable(message: impl Into<String>) -> Status {
        let mut status = Status::failure(422, Reason::Invalid, message);
        status.details_mut();
        status
    }

    /// The patch is well formed but does not apply to the object. Kubernetes gives no more detail.
    pub fn patch_does_not_apply() -> Status {
        Status::unprocessable("the server rejected our request due to an error in our request")
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Status {
        Status::failure(429, Reason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    /// A create contains a resource version, for which Kubernetes has an error of its own.
    pub fn version_on_create() -> Status {
        Status::bad_request("resourceVersion should not be set on objects to be created")
    }

    pub fn internal(message: &str) -> Status {
        Status::failure(500, Reason::InternalError, format!("Internal error occurred: {message}"))
            .because(Cause { message: message.to_owned(), ..Cause::default() })
    }

    pub fn server_timeout(resource: GroupResource<'_>, verb: &str, retry_after_seconds: u32) -> Status {
        let message = format!(
            "The {verb} operation against {resource} could not be completed at this time, please try again."
        );
        // The verb in place of the name is Kubernetes' choice, and clients print it.
        Status::failure(500, Reason::ServerTimeout, message)
            .about(resource, verb)
            .retry_after(retry_after_seconds)
    }

    pub fn unavailable(message: impl Into<String>) -> Status {
        Status::failure(503, Reason::ServiceUnavailable, message)
    }

    pub fn timeout(message: &str, retry_after_seconds: u32) -> Status {
        Status::failure(504, Reason::Timeout, format!("Timeout: {message}")).retry_after(retry_after_seconds)
    }

    /// The requested resource version is in the future. Informers check for exactly this cause.
    pub fn version_too_large(requested: u64, current: u64) -> Status {
        Status::timeout(&format!("Too large resource version: {requested}, current: {current}"), 1).because(
            Cause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                ..Cause::default()
            },
        )
    }
}

/// Formats one conflict in one line; several as a list grouped by owner.
fn apply_conflict_message(fields: &[OwnedField], count: usize) -> String {
    if let ([only], 1) = (fields, count) {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.owner, only.path);
    }
    let mut lists: BTreeMap<&str, String> = BTreeMap::new();
    for OwnedField { path, owner } in fields {
        let list = lists.entry(owner).or_insert_with(|| format!("conflicts with {owner}:"));
        list.push_str("\n- ");
        list.push_str(path);
    }
    let lists: Vec<String> = lists.into_values().collect();
    format!("Apply failed with {count} conflicts: {}", lists.join("\n"))
}

fn is_ok(code: &u16) -> bool {
    *code == 200
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
