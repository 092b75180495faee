//! Objects that RBAC alone does not protect, by their kind or their labels.
//!
//! ```text
//!   create, update, patch, delete ─► RBAC allows ─► guarded kind, or guarded label before or after? ─► Guard ─► commit
//! ```
//!
//! Roles say who may change which kinds. The program that embeds this server may keep some kinds, and some objects of any
//! kind, to its own controllers. It names kinds and labels, and decides about every write that creates, changes or deletes an
//! object of such a kind or with such a label, or that adds or removes such a label. Any other write costs a look at the
//! object's kind and labels. What the server's own controllers do, such as
//! collecting garbage, is not a client's request and not guarded.

use std::fmt;
use std::sync::Arc;

use api::cluster::Id;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use storage::{Boxed, Entry};

use crate::authn::identity::Identity;
use crate::objects::stored;

/// Decides about objects that have certain labels.
pub trait Guard: Send + Sync + fmt::Debug {
    /// The labels, whatever their values.
    fn labels(&self) -> &[&str];

    /// The kinds, whatever their labels: group and plural.
    fn kinds(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Allows a write, or returns the error for the client.
    fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>>;
}

/// What is about to be done to an object.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    pub cluster: Id,
    pub who: &'a Identity,
    pub resource: &'a ResourceInfo,
    pub name: &'a str,
    /// The subresource that is written, if it is one.
    pub subresource: Option<&'a str>,
    /// None if it is made.
    pub before: Option<&'a Value>,
    /// None if it is deleted.
    pub after: Option<&'a Value>,
}

impl AdmissionRequest<'_> {
    /// How errors name what it is done to.
    pub fn grouped(&self) -> GroupResource<'_> {
        GroupResource::new(&self.resource.group, &self.resource.plural)
    }

    /// A label of either, as it was and as it will be.
    pub fn label(&self, name: &str) -> (Option<&str>, Option<&str>) {
        (
            self.before.and_then(|object| label(object, name)),
            self.after.and_then(|object| label(object, name)),
        )
    }
}

fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(name)?.as_str()
}

fn guards_kind(guard: &dyn Guard, resource: &ResourceInfo) -> bool {
    guard.kinds().iter().any(|(group, plural)| *group == &*resource.group && *plural == &*resource.plural)
}

/// The guard, if the server has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded(Option<Arc<dyn Guard>>);

impl Guarded {
    pub(crate) fn by(guard: Arc<dyn Guard>) -> Guarded {
        Guarded(Some(guard))
    }

    /// Asks about a write.
    pub(crate) async fn check(&self, request: AdmissionRequest<'_>) -> Result<(), Status> {
        let Some(guard) = &self.0 else { return Ok(()) };
        let mut objects = [request.before, request.after].into_iter().flatten();
        let is_labelled = |object: &Value| guard.labels().iter().any(|name| label(object, name).is_some());
        match guards_kind(&**guard, request.resource) || objects.any(is_labelled) {
            true => guard.may(request).await,
            false => Ok(()),
        }
    }

    /// Whether the deletion of a stored object is guarded.
    pub(crate) fn concerns(&self, resource: &ResourceInfo, entry: &Entry) -> bool {
        let Some(guard) = &self.0 else { return false };
        let labels = stored::labels(entry.value());
        let has = |name: &&str| labels.is_none_or(|labels| labels.get(name).is_some());
        guards_kind(&**guard, resource) || guard.labels().iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use serde_json::json;

    use super::*;
    use crate::clusters::records;
    use crate::clusters::records::LogicalClusterRecord;
    use crate::stack::Stack;

    /// Lets one user alone write labelled objects.
    #[derive(Debug)]
    struct Dog;

    impl Guard for Dog {
        fn labels(&self) -> &[&str] {
            &["a.b/mine"]
        }

        fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>> {
            Box::pin(async move {
                match request.who.name() == "master" {
                    true => Ok(()),
                    false => Err(Status::forbidden(request.grouped(), request.name, "the dog bites")),
                }
            })
        }
    }

    #[tokio::test]
    async fn a_client_that_the_guard_refuses_neither_creates_changes_labels_nor_deletes() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let stack = Stack::new(store, String::new(), tasks.stop()).with_guard(Arc::new(Dog));
        let all = ["system:masters"];
        let (master, other) = (Identity::user("master", &all), Identity::user("other", &all));
        let ask = async |who: &Identity, method: &str, path: &str, body: Value| {
            let body = Full::<Bytes>::from(body.to_string());
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let path = format!("/api/v1/nodes{path}");
            let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
            stack.respond(who.clone(), request.unwrap()).await.status().as_u16()
        };
        let node = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
        let (mine, none) = (json!({ "a.b/mine": "x" }), json!({}));
        let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
        assert_eq!(ask(&other, "POST", "", node("a", mine.clone())).await, 403);
        assert_eq!(ask(&master, "POST", "", node("a", mine.clone())).await, 201);
        assert_eq!(ask(&other, "POST", "", node("b", none.clone())).await, 201);
        assert_eq!(ask(&other, "PATCH", "/b", labels(mine)).await, 403);
        assert_eq!(ask(&other, "PATCH", "/b", labels(json!({ "x": "y" }))).await, 200);
        assert_eq!(ask(&other, "PATCH", "/a", labels(json!({ "a.b/mine": null }))).await, 403);
        assert_eq!(ask(&other, "PUT", "/a", node("a", none)).await, 403);
        let status = json!({ "status": { "phase": "Running" } });
        assert_eq!(ask(&other, "PATCH", "/a/status", status.clone()).await, 403);
        assert_eq!(ask(&master, "PATCH", "/a/status", status).await, 200);
        assert_eq!(ask(&other, "DELETE", "/a", json!({})).await, 403);
        assert_eq!(ask(&other, "DELETE", "", json!({})).await, 403, "of all");
        assert_eq!(ask(&other, "DELETE", "?labelSelector=!a.b/mine", json!({})).await, 200);
        assert_eq!(ask(&master, "DELETE", "/a", json!({})).await, 200);
    }
}
