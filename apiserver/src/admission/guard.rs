//! Guarded objects: objects that RBAC alone does not protect, selected by kind or label.
//!
//! ```text
//!   create, update, patch, delete ─► RBAC allows ─► guarded kind, or guarded label before or after? ─► Guard ─► commit
//! ```
//!
//! RBAC decides by kind. The program that embeds this server may reserve some kinds, and some objects of any kind, for
//! its own controllers. Its guard names kinds and labels, and decides about every write that creates, changes or
//! deletes an object of such a kind or with such a label, or that adds or removes such a label. For all other writes
//! only kind and labels are compared. The server's own controllers, such as the garbage collector, are not guarded.

use std::fmt;
use std::sync::Arc;

use api::cluster::Id;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::{GroupResource, Status};
use serde_json::Value;
use storage::{Boxed, Entry};

use crate::authn::identity::Identity;
use crate::objects::stored;

/// Decides about writes to certain kinds and labels.
pub trait Guard: Send + Sync + fmt::Debug {
    /// Returns the guarded labels, regardless of their values.
    fn labels(&self) -> &[&str];

    /// Returns the guarded kinds as group and plural, regardless of their labels.
    fn kinds(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Allows a write, or returns the error for the client.
    fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>>;
}

/// A write to one object.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest<'a> {
    pub cluster: Id,
    pub who: &'a Identity,
    pub resource: &'a ResourceInfo,
    pub name: &'a str,
    /// The subresource, if the write is to one.
    pub subresource: Option<&'a str>,
    /// None for a create.
    pub before: Option<&'a Value>,
    /// None for a deletion.
    pub after: Option<&'a Value>,
}

impl AdmissionRequest<'_> {
    /// Names the resource in errors.
    pub fn grouped(&self) -> GroupResource<'_> {
        GroupResource::new(&self.resource.group, &self.resource.plural)
    }

    /// Returns a label of the object before and after the write.
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

/// The guard of the server, if it has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded(Option<Arc<dyn Guard>>);

impl Guarded {
    pub(crate) fn by(guard: Arc<dyn Guard>) -> Guarded {
        Guarded(Some(guard))
    }

    /// Checks a write, if it is guarded.
    pub(crate) async fn check(&self, request: AdmissionRequest<'_>) -> Result<(), Status> {
        let Some(guard) = &self.0 else { return Ok(()) };
        let mut objects = [request.before, request.after].into_iter().flatten();
        let is_labelled = |object: &Value| guard.labels().iter().any(|name| label(object, name).is_some());
        match guards_kind(&**guard, request.resource) || objects.any(is_labelled) {
            true => guard.may(request).await,
            false => Ok(()),
        }
    }

    /// Reports whether the deletion of a stored object is guarded.
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

    /// A guard that lets only one user write labelled objects.
    #[derive(Debug)]
    struct LabelGuard;

    impl Guard for LabelGuard {
        fn labels(&self) -> &[&str] {
            &["a.b/mine"]
        }

        fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>> {
            Box::pin(async move {
                match request.who.name() == "master" {
                    true => Ok(()),
                    false => Err(Status::forbidden(request.grouped(), request.name, "the label is guarded")),
                }
            })
        }
    }

    /// Lets one user alone write nodes.
    #[derive(Debug)]
    struct KindGuard;

    impl Guard for KindGuard {
        fn labels(&self) -> &[&str] {
            &[]
        }

        fn kinds(&self) -> &[(&str, &str)] {
            &[("", "nodes")]
        }

        fn may<'a>(&'a self, request: AdmissionRequest<'a>) -> Boxed<'a, Result<(), Status>> {
            LabelGuard.may(request)
        }
    }

    /// The deletion of an object that could not be decoded was not checked.
    #[tokio::test]
    async fn a_guarded_object_that_cannot_be_decoded_stays_guarded() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let key = crate::keys::Collection { group: "", plural: "nodes" }.key(Id::ROOT, None, "broken");
        let broken = storage::Change::Put(Bytes::from_static(b"{"));
        storage::Store::commit(&*store, key, storage::Expect::Absent, broken).await.unwrap();
        let stack = Stack::new(store, String::new(), tasks.stop());
        let stack = Arc::new(stack.with_guard(Arc::new(KindGuard)));
        let other = Identity::user("other", &["system:masters"]);
        let request = Request::delete("/api/v1/nodes/broken").body(Full::<Bytes>::default()).unwrap();
        assert_eq!(stack.respond(other, request).await.status().as_u16(), 403);
    }

    #[tokio::test]
    async fn a_client_that_the_guard_refuses_neither_creates_changes_labels_nor_deletes() {
        let tasks = controller::tasks::Tasks::new();
        let store = Arc::new(storage::memory::Memory::new());
        records::write(&*store, Id::ROOT, &LogicalClusterRecord::root()).await.unwrap();
        let stack = Stack::new(store, String::new(), tasks.stop());
        let stack = Arc::new(stack.with_guard(Arc::new(LabelGuard)));
        let all = ["system:masters"];
        let (master, other) = (Identity::user("master", &all), Identity::user("other", &all));
        let send = async |identity: &Identity, method: &str, path: &str, body: Value| {
            let body = Full::<Bytes>::from(body.to_string());
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            let path = format!("/api/v1/nodes{path}");
            let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
            stack.respond(identity.clone(), request.unwrap()).await.status().as_u16()
        };
        let node = |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
        let (mine, none) = (json!({ "a.b/mine": "x" }), json!({}));
        let labels = |labels: Value| json!({ "metadata": { "labels": labels } });
        assert_eq!(send(&other, "POST", "", node("a", mine.clone())).await, 403);
        assert_eq!(send(&master, "POST", "", node("a", mine.clone())).await, 201);
        assert_eq!(send(&other, "POST", "", node("b", none.clone())).await, 201);
        assert_eq!(send(&other, "PATCH", "/b", labels(mine)).await, 403);
        assert_eq!(send(&other, "PATCH", "/b", labels(json!({ "x": "y" }))).await, 200);
        assert_eq!(send(&other, "PATCH", "/a", labels(json!({ "a.b/mine": null }))).await, 403);
        assert_eq!(send(&other, "PUT", "/a", node("a", none)).await, 403);
        let status = json!({ "status": { "phase": "Running" } });
        assert_eq!(send(&other, "PATCH", "/a/status", status.clone()).await, 403);
        assert_eq!(send(&master, "PATCH", "/a/status", status).await, 200);
        assert_eq!(send(&other, "DELETE", "/a", json!({})).await, 403);
        assert_eq!(send(&other, "DELETE", "", json!({})).await, 403, "a deletion of the whole collection");
        assert_eq!(send(&other, "DELETE", "?labelSelector=!a.b/mine", json!({})).await, 200);
        assert_eq!(send(&master, "DELETE", "/a", json!({})).await, 200);
    }
}
