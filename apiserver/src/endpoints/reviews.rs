//! Reviews: SelfSubjectReview, access reviews, TokenReview.
//!
//! Reviews are created but not stored: the response is the sent object with its status.
//! [Authorization](crate::authz::authorization) decides; this file only translates.

use std::sync::Arc;

use api::meta::field::FieldError;
use http::{Response, StatusCode};
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::authn::credential::Authenticators;
use crate::authn::identity::{ANONYMOUS, Identity, User};
use crate::authn::service_accounts::{Accounts, NotFound};
use crate::authz::authorization::Authorization;
use crate::endpoints::create;
use crate::http::body::Body;
use crate::kinds::reviews::{AUTHORIZATION, Review};
use crate::objects::metadata;
use crate::objects::store_errors::unreadable;
use crate::rbac::{Decision, Rule, policy};
use crate::registry::call::Call;
use crate::registry::decode;
use crate::registry::decode::Sent;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;
use crate::request::attributes::{Attributes, ResourceAttributes};
use crate::request::negotiation;
use crate::response::render::Style;

impl Review {
    /// Answers a review.
    pub(crate) async fn answer(
        self,
        call: &Call,
        style: &Style,
        authenticators: &Authenticators,
        bytes: &[u8],
    ) -> Result<Response<Body>, Status> {
        negotiation::no_table(style.form)?;
        call.authorization.catch_up().await?;
        let identity = &call.identity;
        let Sent { mut object, warnings } = decode::object(call, bytes)?;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let managed = ManagedFields::take(&mut object).of_new(call, &object);
        managed_fields::put(&mut object, managed);
        let status = match self {
            Review::SelfSubject => {
                object = json!({ "metadata": { "creationTimestamp": metadata::now() } });
                json!({ "userInfo": identity.info() })
            }
            Review::SelfAccess | Review::Access | Review::LocalAccess => {
                let attributes = self.reviewed_attributes(call, &mut object)?;
                let reviewed = match self {
                    Review::SelfAccess => identity.clone(),
                    _ => subject(&object["spec"]),
                };
                access(&call.authorization.may(&reviewed, &attributes))
            }
            Review::SelfRules => {
                let namespace = text(&object["spec"], "namespace");
                if namespace.is_empty() {
                    return Err(Status::bad_request("no namespace on request"));
                }
                rules(&call.authorization, &namespace)
            }
            Review::Token => token(call, &object["spec"], authenticators).await?,
        };
        let resource = &call.resource;
        object["kind"] = (*resource.kind).into();
        object["apiVersion"] = resource.api_version().into();
        object["status"] = status;
        Ok(create::warned(style.answer_tree(StatusCode::CREATED, &object, &[])?, &warnings))
    }

    /// Returns the attributes that an access review asks about, or its validation errors.
    fn reviewed_attributes(self, call: &Call, object: &mut Value) -> Result<Attributes, Status> {
        let namespace = call.namespace.as_deref();
        if let Some(namespace) = namespace {
            let sent_namespace = metadata::text(object, "namespace");
            if !sent_namespace.is_empty() && sent_namespace != namespace {
                return Err(Status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        let mut errors = Vec::new();
        let attributes = attributes(&object["spec"]);
        if let Err(error) = &attributes {
            errors.push(error.clone());
        }
        if self != Review::SelfAccess {
            errors.extend(missing_subject(&object["spec"]));
        }
        errors.extend(check_metadata(object));
        if let (Some(namespace), Ok(attributes)) = (namespace, &attributes) {
            errors.extend(check_namespace(namespace, attributes));
            object["metadata"]["namespace"] = namespace.into();
        }
        match (attributes, errors.is_empty()) {
            (Ok(attributes), true) => Ok(attributes),
            _ => Err(Status::invalid(GroupResource::new(AUTHORIZATION, ""), "", &errors)),
        }
    }
}

/// Parses the attributes of a resource or a path.
fn attributes(spec: &Value) -> Result<Attributes, FieldError> {
    match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
        (Value::Null, Value::Null) => Err(FieldError::invalid(
            "spec.resourceAttributes",
            Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        (Value::Null, path) => Ok(Attributes::Path { path: text(path, "path"), verb: text(path, "verb") }),
        (resource, Value::Null) => Ok(Attributes::Resource(ResourceAttributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            version: text(resource, "version"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
        })),
        (_, path) => Err(FieldError::invalid(
            "spec.nonResourceAttributes",
            non_resource_attributes(&text(path, "path"), &text(path, "verb")),
            "cannot be specified in combination with resourceAttributes",
        )),
    }
}

/// Formats a path and a verb as Kubernetes prints them in errors.
fn non_resource_attributes(path: &str, verb: &str) -> Value {
    json!({ "Path": path, "Verb": verb })
}

/// Refuses an access review without a user.
fn missing_subject(spec: &Value) -> Option<FieldError> {
    let groups = spec["groups"].as_array().map_or(0, Vec::len);
    (text(spec, "user").is_empty() && groups == 0)
        .then(|| FieldError::invalid("spec.user", "", "at least one of user or group must be specified"))
}

/// Refuses metadata: reviews are not stored.
fn check_metadata(object: &Value) -> Option<FieldError> {
    let mut metadata = object["metadata"].as_object().cloned().unwrap_or_default();
    metadata.remove("namespace");
    metadata.remove("managedFields");
    metadata.retain(|_, value| !value.is_null());
    (!metadata.is_empty()).then(|| FieldError::invalid("metadata", Value::Object(metadata), "must be empty"))
}

/// Refuses a LocalSubjectAccessReview for another namespace or for a path.
fn check_namespace(namespace: &str, attributes: &Attributes) -> Option<FieldError> {
    match attributes {
        Attributes::Path { path, verb } => Some(FieldError::invalid(
            "spec.nonResourceAttributes",
            non_resource_attributes(path, verb),
            "disallowed on this kind of request",
        )),
        Attributes::Resource(resource) => (resource.namespace != namespace).then(|| {
            let sent_namespace = resource.namespace.as_str();
            FieldError::invalid(
                "spec.resourceAttributes.namespace",
                sent_namespace,
                "must match metadata.namespace",
            )
        }),
    }
}

/// Returns the user of a review, who need not be the client.
fn subject(spec: &Value) -> Identity {
    let name = text(spec, "user");
    if name == ANONYMOUS.0 {
        return Identity::Anonymous;
    }
    let extra = spec["extra"].as_object().into_iter().flatten();
    Identity::User(Arc::new(User {
        name,
        uid: text(spec, "uid"),
        groups: texts(&spec["groups"]),
        extra: extra.map(|(name, values)| (name.clone(), texts(values))).collect(),
        ..User::default()
    }))
}

fn access(decision: &Decision) -> Value {
    let mut status = json!({ "allowed": decision.allowed });
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.as_str().into();
    }
    status
}

/// Returns all rules of the user in a namespace, for resources and for paths.
fn rules(authorization: &Authorization, namespace: &str) -> Value {
    let (rules, missing) = authorization.rules(namespace);
    let mut status = json!({ "resourceRules": [], "nonResourceRules": [], "incomplete": false });
    let mut add = |list: &str, rule: Value| {
        if let Some(list) = status[list].as_array_mut() {
            list.push(rule);
        }
    };
    for rule in rules {
        let is_path = !rule.paths.is_empty();
        if !rule.resources.is_empty() {
            add("resourceRules", json!(Rule { paths: Vec::new(), ..rule.clone() }));
        }
        if is_path {
            add("nonResourceRules", json!({ "verbs": rule.verbs, "nonResourceURLs": rule.paths }));
        }
    }
    if !missing.is_empty() {
        status["evaluationError"] = policy::format_errors(&missing).into();
    }
    status
}

/// Answers a TokenReview. Tokens of the static token file are valid for this server only, not for other audiences.
/// Service account tokens are valid in their own logical cluster only.
async fn token(call: &Call, spec: &Value, authenticators: &Authenticators) -> Result<Value, Status> {
    let Authenticators { tokens, accounts } = authenticators;
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(&spec["audiences"]);
    if let Some(identity) = tokens.find(&token).filter(|_| audiences.is_empty()) {
        return Ok(json!({ "authenticated": true, "user": identity.info() }));
    }
    let unauthenticated = |error: String| Ok(json!({ "user": {}, "error": error }));
    let invalid = "invalid bearer token";
    // A token of another logical cluster gets no specific error, not even that it has expired.
    if Accounts::home(&token) != Some(call.cluster) {
        return unauthenticated(invalid.to_owned());
    }
    match accounts.find(&token, &audiences).await {
        Ok(found) => Ok(json!({
            "authenticated": true, "user": found.identity.info(), "audiences": found.audiences,
        })),
        Err(NotFound::Foreign) => unauthenticated(invalid.to_owned()),
        Err(NotFound::Expired) => unauthenticated(format!("[{invalid}, service account token has expired]")),
        Err(NotFound::Invalid(why)) => unauthenticated(format!("[{invalid}, {why}]")),
        Err(NotFound::Unreadable(error)) => Err(unreadable(error)),
    }
}

fn text(object: &Value, field: &str) -> String {
    object[field].as_str().unwrap_or_default().to_owned()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
