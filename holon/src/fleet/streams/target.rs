//! Finds where a pod runs: the physical cluster and the path there.
//!
//! ```text
//!   in a mailbox:                 the physical cluster of the mailbox, same namespace and name
//!   in a user's logical cluster:  a projected pod has MAILBOX, DOWNSTREAM_NAME, DOWNSTREAM_UID; the mailbox must confirm them
//!   a pod that a user created:    the mailbox that has its mailbox object: PLACED, LOCATOR
//! ```

use api::cluster::Id;
use api::fleet::Locator;
use api::metrics::METRICS;
use api::names::{DOWNSTREAM_NAME, DOWNSTREAM_UID, LOCATOR, MAILBOX, PLACED, PROJECTED, TRUE};
use apiserver::endpoints::connect::ConnectRequest;
use controller::kind::ResourceKind;
use controller::remote::{ObjectPath, Remote};
use http::HeaderValue;
use openapi::meta::status::Status;
use serde_json::Value;
use splitter::transform::physical_namespace;

/// The target of a forwarded request.
#[derive(Debug)]
pub(super) struct StreamTarget {
    pub(super) mailbox: Id,
    /// The path on the physical cluster.
    pub(super) path: String,
    /// The path as the client wrote it.
    client_path: String,
    /// The claim that the mailbox must confirm, if the target comes from an object outside of it.
    claim: Option<TargetClaim>,
}

/// The downstream pod that a projected pod in a user's logical cluster claims to represent.
#[derive(Debug)]
struct TargetClaim {
    /// The user's logical cluster.
    cluster: Id,
    namespace: String,
    name: String,
    uid: String,
}

impl StreamTarget {
    pub(super) fn of(request: &ConnectRequest) -> Result<StreamTarget, Status> {
        let ConnectRequest { cluster, namespace, name, plural, .. } = request;
        let client_path = request.address.clone();
        if request.group == METRICS.0 {
            return Ok(StreamTarget {
                mailbox: *cluster,
                path: metrics_path(request),
                client_path,
                claim: None,
            });
        }
        if !runs_downstream(&request.object) {
            let kind = plural.strip_suffix('s').unwrap_or(plural);
            return Err(Status::bad_request(format!("{kind} {name:?} does not run on a physical cluster")));
        }
        let path = |namespace: &str, name: &str| downstream_path(request, namespace, name);
        let Some((mailbox, downstream)) = projected_from(&request.object) else {
            let path = path(namespace, name);
            return Ok(StreamTarget { mailbox: *cluster, path, client_path, claim: None });
        };
        let (namespace, name) = downstream.split_once('/').ok_or_else(pod_not_found)?;
        let uid =
            request.object["metadata"]["annotations"][DOWNSTREAM_UID].as_str().ok_or_else(pod_not_found)?;
        let path = path(namespace, name);
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        let claim = Some(TargetClaim { cluster: *cluster, namespace, name, uid });
        Ok(StreamTarget { mailbox, path, client_path, claim })
    }

    /// Checks that the projected pod represents the pod it claims to. Users can forge labels and annotations in their
    /// logical cluster, so the mailbox, where only our controllers write, must confirm them: its namespace belongs to
    /// this logical cluster, and its pod has this uid on the physical cluster. The uid matters because another pod may
    /// have taken the name since. `server` reads every mailbox.
    pub(super) async fn verify(&self, server: Option<Remote>) -> Result<(), Status> {
        let Some(TargetClaim { cluster, namespace, name, uid }) = &self.claim else { return Ok(()) };
        let namespaces = ResourceKind::new("", "v1", "namespaces", "Namespace", false);
        let place = ObjectPath::new(&namespaces, "", namespace);
        let found = mailbox_object(server.as_ref(), self.mailbox, place).await?.unwrap_or_default();
        let locator = found["metadata"]["annotations"][LOCATOR].as_str();
        let locator = locator.and_then(|text| serde_json::from_str::<Locator>(text).ok());
        let is_namespace_of = locator.is_some_and(|locator| locator.logical_cluster == cluster.to_string());
        let found = mailbox_pod(server.as_ref(), self.mailbox, namespace, name).await?.unwrap_or_default();
        let has_uid = found["metadata"]["annotations"][DOWNSTREAM_UID] == **uid;
        if is_namespace_of && has_uid { Ok(()) } else { Err(pod_not_found()) }
    }

    /// Translates a `Location` of the physical cluster into a path for the client.
    pub(super) fn client_location(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let rest = location.to_str().ok()?.strip_prefix(&self.path)?;
        HeaderValue::from_str(&format!("{}{rest}", self.client_path)).ok()
    }
}

/// A pod that a user created. Its location is in the labels of its mailbox object, not in its own.
#[derive(Debug)]
pub(super) struct UserPod {
    cluster: Id,
    name: String,
    uid: String,
    /// The namespaces it may be in on a physical cluster, and the path of the request in each.
    paths: [(String, String); 2],
    client_path: String,
}

impl UserPod {
    pub(super) fn of(request: &ConnectRequest) -> Option<UserPod> {
        let ConnectRequest { cluster, namespace, name, .. } = request;
        let is_user_pod =
            request.group.is_empty() && request.plural == "pods" && !runs_downstream(&request.object);
        // On a physical cluster that is dedicated to one logical cluster, namespaces keep their names.
        let namespaces = [physical_namespace(&cluster.to_string(), namespace), namespace.clone()];
        is_user_pod.then(|| UserPod {
            cluster: *cluster,
            name: name.clone(),
            uid: request.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            paths: namespaces.map(|namespace| {
                let path = downstream_path(request, &namespace, name);
                (namespace, path)
            }),
            client_path: request.address.clone(),
        })
    }

    /// Looks for its mailbox object in every connected mailbox. Each lookup is a read from memory.
    pub(super) async fn find(self, mailboxes: &[Id], server: Option<Remote>) -> Result<StreamTarget, Status> {
        for mailbox in mailboxes {
            for (namespace, path) in &self.paths {
                let found = mailbox_pod(server.as_ref(), *mailbox, namespace, &self.name).await?;
                if found.is_some_and(|found| self.is_placed_as(&found)) {
                    let (path, client_path) = (path.clone(), self.client_path);
                    return Ok(StreamTarget { mailbox: *mailbox, path, client_path, claim: None });
                }
            }
        }
        Err(Status::bad_request(format!(
            "pod {:?} does not run on a physical cluster that is connected to this server",
            self.name
        )))
    }

    fn is_placed_as(&self, mailbox_object: &Value) -> bool {
        is_mailbox_object_of(mailbox_object, self.cluster, &self.uid)
    }
}

/// Returns whether the splitter created a mailbox object for the object with this uid in a logical cluster.
pub(super) fn is_mailbox_object_of(mailbox_object: &Value, cluster: Id, uid: &str) -> bool {
    let metadata = &mailbox_object["metadata"];
    let locator = metadata["annotations"][LOCATOR].as_str();
    let locator = locator.and_then(|text| serde_json::from_str::<Locator>(text).ok());
    metadata["labels"][PLACED] == TRUE
        && locator.is_some_and(|locator| locator.logical_cluster == cluster.to_string() && locator.uid == uid)
}

/// Returns the path of a request on a physical cluster.
fn downstream_path(request: &ConnectRequest, namespace: &str, name: &str) -> String {
    let ConnectRequest { plural, part, .. } = request;
    format!("/api/v1/namespaces/{namespace}/{plural}/{}/{part}", request.port.join(name))
}

async fn mailbox_pod(
    server: Option<&Remote>,
    mailbox: Id,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let pods = ResourceKind::new("", "v1", "pods", "Pod", true);
    mailbox_object(server, mailbox, ObjectPath::new(&pods, namespace, name)).await
}

async fn mailbox_object(
    server: Option<&Remote>,
    mailbox: Id,
    place: ObjectPath<'_>,
) -> Result<Option<Value>, Status> {
    let found = server.ok_or_else(no_server)?.within(mailbox).get(place).await;
    found.map_err(|error| Status::unavailable(error.to_string()))
}

/// Returns whether an object is placed on a physical cluster, or projected from one.
pub(super) fn runs_downstream(object: &Value) -> bool {
    let is_labelled = |label: &str| object["metadata"]["labels"][label] == TRUE;
    is_labelled(PROJECTED) || is_labelled(PLACED)
}

/// Returns whether an object is a projection in a user's logical cluster, not in a mailbox.
pub(super) fn is_projection_for_user(object: &Value) -> bool {
    projected_from(object).is_some()
}

/// Returns the mailbox of a projection in a user's logical cluster, and `<namespace>/<name>` there.
pub(super) fn projected_from(object: &Value) -> Option<(Id, &str)> {
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let is_projected = object["metadata"]["labels"][PROJECTED] == TRUE;
    let mailbox = annotation(MAILBOX).filter(|_| is_projected)?;
    Some((mailbox.parse().ok()?, annotation(DOWNSTREAM_NAME)?))
}

pub(super) fn no_server() -> Status {
    Status::unavailable(
        "this server does not run the tunnels; another server of the same etcd does, try again there",
    )
}

fn pod_not_found() -> Status {
    Status::bad_request("the pod no longer exists on the physical cluster that it was projected from")
}

/// Returns the path of pod or node metrics: `/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods`.
fn metrics_path(request: &ConnectRequest) -> String {
    let mut path = format!("/apis/{}/{}", METRICS.0, METRICS.1);
    if !request.namespace.is_empty() {
        path += &format!("/namespaces/{}", request.namespace);
    }
    path += &format!("/{}", request.plural);
    if !request.name.is_empty() {
        path += &format!("/{}", request.name);
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_projected_pod_names_its_mailbox_and_its_downstream_pod() {
        let id = Id::new(7).to_string();
        let pod = |projected: &str, mailbox: &str, downstream: Value| {
            json!({ "metadata": {
                "labels": { PROJECTED: projected }, "annotations": { MAILBOX: mailbox, DOWNSTREAM_NAME: downstream },
            } })
        };
        let check = |pod: &Value, expected: Option<&str>| {
            assert_eq!(projected_from(pod), expected.map(|downstream| (Id::new(7), downstream)), "{pod}");
        };
        check(&pod(TRUE, &id, json!("shop-x/web-1")), Some("shop-x/web-1"));
        // Objects in a mailbox have no such annotations; without the label, a user may have written them.
        check(&pod(TRUE, &id, Value::Null), None);
        check(&pod("false", &id, json!("shop-x/web-1")), None);
        check(&pod(TRUE, "nowhere", json!("shop-x/web-1")), None);
    }

    /// A mailbox object of another uid or another logical cluster, or without the splitter's label or locator, does not
    /// match.
    #[test]
    fn a_mailbox_object_belongs_to_one_object() {
        let pod = UserPod {
            cluster: Id::new(1),
            name: "one".into(),
            uid: "u".into(),
            paths: Default::default(),
            client_path: String::new(),
        };
        let mailbox_object = |placed: &str, cluster: Id, uid: &str| {
            let locator = json!({ "logicalCluster": cluster.to_string(), "namespace": "shop", "name": "one", "uid": uid });
            json!({ "metadata": {
                "labels": { PLACED: placed }, "annotations": { LOCATOR: locator.to_string() },
            } })
        };
        let check = |object: Value, expected: bool| {
            assert_eq!(pod.is_placed_as(&object), expected, "{object}");
        };
        check(mailbox_object(TRUE, Id::new(1), "u"), true);
        check(mailbox_object(TRUE, Id::new(1), "older"), false);
        check(mailbox_object(TRUE, Id::new(2), "u"), false);
        check(mailbox_object("false", Id::new(1), "u"), false);
        check(json!({ "metadata": { "labels": { PLACED: TRUE } } }), false);
    }

    /// A user who forges these annotations may know the name of a pod, but not its uid.
    #[tokio::test]
    async fn forged_annotations_reach_no_pod() {
        let claim = TargetClaim {
            cluster: Id::new(1),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "guessed".into(),
        };
        let mut target = StreamTarget {
            mailbox: Id::new(7),
            path: "/api/v1/namespaces/shop/pods/web/proxy".into(),
            client_path: "/clusters/root:a/api/v1/namespaces/mine/pods/web/proxy".into(),
            claim: Some(claim),
        };
        let server = |uid: &'static str, cluster: Id| {
            let service = move |request: http::Request<kube::client::Body>| async move {
                let namespace = format!("/clusters/{}/api/v1/namespaces/shop", Id::new(7));
                let annotations = if request.uri().path() == namespace {
                    let locator =
                        json!({ "logicalCluster": cluster.to_string(), "name": "mine", "uid": "n" });
                    json!({ LOCATOR: locator.to_string() })
                } else {
                    assert_eq!(request.uri().path(), format!("{namespace}/pods/web"));
                    json!({ DOWNSTREAM_UID: uid })
                };
                let object = json!({ "metadata": { "name": "x", "annotations": annotations } }).to_string();
                Ok::<_, std::convert::Infallible>(http::Response::new(
                    http_body_util::Full::<bytes::Bytes>::from(object),
                ))
            };
            Remote::new(kube::Client::new(tower::service_fn(service), "default"))
        };
        let (own, other) = (Id::new(1), Id::new(2));
        assert_eq!(target.verify(Some(server("real", own))).await.unwrap_err().code, 400);
        assert_eq!(target.verify(Some(server("guessed", own))).await, Ok(()));
        // The right uid, of a pod in a namespace of another logical cluster.
        assert_eq!(target.verify(Some(server("guessed", other))).await.unwrap_err().code, 400);
        assert_eq!(target.verify(None).await.unwrap_err().code, 503);
        target.claim = None;
        assert_eq!(target.verify(None).await, Ok(()));
        let location = |text: &'static str| target.client_location(&HeaderValue::from_static(text));
        let expected = "/clusters/root:a/api/v1/namespaces/mine/pods/web/proxy/login";
        assert_eq!(location("/api/v1/namespaces/shop/pods/web/proxy/login").unwrap(), expected);
        assert_eq!(location("https://elsewhere.example/"), None);
    }
}
