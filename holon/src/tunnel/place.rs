//! Where something runs: on which physical cluster, and what it is called there.
//!
//! ```text
//!   in a mailbox:                 the physical cluster it is the mailbox of, under the same name
//!   in a user's logical cluster:  where the pod that is shown there is: MAILBOX, LOCATOR_BELOW, BELOW_UID
//!   a user's own pod:             where the copy is that stands for it: PLACED, LOCATOR
//! ```

use api::cluster::Id;
use api::fleet::Locator;
use api::names::{BELOW_UID, LOCATOR, LOCATOR_BELOW, MAILBOX, PLACED, PROJECTED, TRUE};
use api::tunnel::METRICS;
use apiserver::connect::Wish;
use controller::kind::Kind;
use controller::remote::{self, Remote};
use http::HeaderValue;
use openapi::meta::status::Status;
use serde_json::Value;
use splitter::lower::physical_namespace;

#[derive(Debug)]
pub(super) struct Place {
    pub(super) mailbox: Id,
    /// Of what is asked for, there.
    pub(super) path: String,
    /// The same as the client wrote it.
    shown: String,
    /// What has to be so in the mailbox, if it is said by an object outside of it.
    claim: Option<Claim>,
}

#[derive(Debug)]
struct Claim {
    /// The logical cluster that says so.
    cluster: Id,
    namespace: String,
    name: String,
    uid: String,
}

impl Place {
    pub(super) fn of(wish: &Wish) -> Result<Place, Status> {
        let Wish { cluster, namespace, name, plural, .. } = wish;
        let shown = wish.address.clone();
        if wish.group == METRICS.0 {
            return Ok(Place { mailbox: *cluster, path: measured(wish), shown, claim: None });
        }
        if !runs(&wish.object) {
            let kind = plural.strip_suffix('s').unwrap_or(plural);
            return Err(Status::bad_request(format!("{kind} {name:?} does not run on a physical cluster")));
        }
        let path = |namespace: &str, name: &str| below(wish, namespace, name);
        let Some((mailbox, below)) = raised(&wish.object) else {
            return Ok(Place { mailbox: *cluster, path: path(namespace, name), shown, claim: None });
        };
        let (namespace, name) = below.split_once('/').ok_or_else(elsewhere)?;
        let uid = wish.object["metadata"]["annotations"][BELOW_UID].as_str().ok_or_else(elsewhere)?;
        let path = path(namespace, name);
        let [namespace, name, uid] = [namespace, name, uid].map(str::to_owned);
        Ok(Place { mailbox, path, shown, claim: Some(Claim { cluster: *cluster, namespace, name, uid }) })
    }

    /// Whether the pod there is the one that the pod here shows. Labels and annotations here can be forged, so the mailbox,
    /// where only our controllers write, has to agree: the namespace there stands for one of this logical cluster, and the pod
    /// there has this uid on its physical cluster. Another pod may have taken its name meanwhile. `server` reaches all
    /// mailboxes.
    pub(super) async fn verify(&self, server: Option<Remote>) -> Result<(), Status> {
        let Some(Claim { cluster, namespace, name, uid }) = &self.claim else { return Ok(()) };
        let namespaces = Kind::new("", "v1", "namespaces", "Namespace", false);
        let place = remote::Place::new(&namespaces, "", namespace);
        let found = object(server.as_ref(), self.mailbox, place).await?.unwrap_or_default();
        let locator = found["metadata"]["annotations"][LOCATOR].as_str();
        let locator = locator.and_then(|text| serde_json::from_str::<Locator>(text).ok());
        let is_theirs = locator.is_some_and(|locator| locator.logical_cluster == cluster.to_string());
        let found = pod(server.as_ref(), self.mailbox, namespace, name).await?.unwrap_or_default();
        let is_it = found["metadata"]["annotations"][BELOW_UID] == **uid;
        if is_theirs && is_it { Ok(()) } else { Err(elsewhere()) }
    }

    /// Where something is that the physical cluster says is there, as the client reaches it.
    pub(super) fn seen(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let rest = location.to_str().ok()?.strip_prefix(&self.path)?;
        HeaderValue::from_str(&format!("{}{rest}", self.shown)).ok()
    }
}

/// A pod that its user made. It bears no marks: what stands for it in a mailbox does, and only the server puts them there.
#[derive(Debug)]
pub(super) struct Bare {
    cluster: Id,
    name: String,
    uid: String,
    /// What is asked for, in each namespace it may be in below: the path there.
    paths: [(String, String); 2],
    shown: String,
}

impl Bare {
    pub(super) fn of(wish: &Wish) -> Option<Bare> {
        let Wish { cluster, namespace, name, .. } = wish;
        let is_bare = wish.group.is_empty() && wish.plural == "pods" && !runs(&wish.object);
        // On a physical cluster that is dedicated to one logical cluster, namespaces keep their names.
        let namespaces = [physical_namespace(&cluster.to_string(), namespace), namespace.clone()];
        is_bare.then(|| Bare {
            cluster: *cluster,
            name: name.clone(),
            uid: wish.object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            paths: namespaces.map(|namespace| {
                let path = below(wish, &namespace, name);
                (namespace, path)
            }),
            shown: wish.address.clone(),
        })
    }

    /// Where it runs. Each mailbox is asked for the one copy it might have, which costs a look into memory.
    pub(super) async fn find(self, mailboxes: &[Id], server: Option<Remote>) -> Result<Place, Status> {
        for mailbox in mailboxes {
            for (namespace, path) in &self.paths {
                let copy = pod(server.as_ref(), *mailbox, namespace, &self.name).await?;
                if copy.is_some_and(|copy| self.is_stood_for_by(&copy)) {
                    let path = path.clone();
                    return Ok(Place { mailbox: *mailbox, path, shown: self.shown, claim: None });
                }
            }
        }
        Err(Status::bad_request(format!(
            "pod {:?} does not run on a physical cluster that is connected to this server",
            self.name
        )))
    }

    fn is_stood_for_by(&self, copy: &Value) -> bool {
        stands_for(copy, self.cluster, &self.uid)
    }
}

/// Whether something in a mailbox was put there for an object of a logical cluster, and for no other of its name.
pub(super) fn stands_for(copy: &Value, cluster: Id, uid: &str) -> bool {
    let metadata = &copy["metadata"];
    let locator = metadata["annotations"][LOCATOR].as_str();
    let locator = locator.and_then(|text| serde_json::from_str::<Locator>(text).ok());
    metadata["labels"][PLACED] == TRUE
        && locator.is_some_and(|locator| locator.logical_cluster == cluster.to_string() && locator.uid == uid)
}

/// What is asked for, as it is called below.
fn below(wish: &Wish, namespace: &str, name: &str) -> String {
    let Wish { plural, part, .. } = wish;
    format!("/api/v1/namespaces/{namespace}/{plural}/{}/{part}", wish.port.join(name))
}

/// A pod in a mailbox.
async fn pod(
    server: Option<&Remote>,
    mailbox: Id,
    namespace: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let pods = Kind::new("", "v1", "pods", "Pod", true);
    object(server, mailbox, remote::Place::new(&pods, namespace, name)).await
}

/// An object in a mailbox.
async fn object(
    server: Option<&Remote>,
    mailbox: Id,
    place: remote::Place<'_>,
) -> Result<Option<Value>, Status> {
    let found = server.ok_or_else(no_server)?.within(mailbox).get(place).await;
    found.map_err(|error| Status::unavailable(error.to_string()))
}

/// Whether an object runs somewhere because Holon says so, or is shown because it does.
pub(super) fn runs(object: &Value) -> bool {
    let is_marked = |label: &str| object["metadata"]["labels"][label] == TRUE;
    is_marked(PROJECTED) || is_marked(PLACED)
}

/// Whether it is shown to a user, and not in a mailbox.
pub(super) fn is_raised(object: &Value) -> bool {
    raised(object).is_some()
}

/// The mailbox of what is shown to a user, and `<namespace>/<name>` there.
pub(super) fn raised(object: &Value) -> Option<(Id, &str)> {
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let is_shown = object["metadata"]["labels"][PROJECTED] == TRUE;
    let mailbox = annotation(MAILBOX).filter(|_| is_shown)?;
    Some((mailbox.parse().ok()?, annotation(LOCATOR_BELOW)?))
}

pub(super) fn no_server() -> Status {
    Status::unavailable("this server looks after no physical clusters")
}

fn elsewhere() -> Status {
    Status::bad_request("the pod is no longer where it is shown to be")
}

/// What is known about the use of pods or nodes: `/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods`.
fn measured(wish: &Wish) -> String {
    let mut path = format!("/apis/{}/{}", METRICS.0, METRICS.1);
    if !wish.namespace.is_empty() {
        path += &format!("/namespaces/{}", wish.namespace);
    }
    path += &format!("/{}", wish.plural);
    if !wish.name.is_empty() {
        path += &format!("/{}", wish.name);
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_shown_to_a_user_says_where_it_is() {
        let id = Id::new(7).to_string();
        let pod = |projected: &str, mailbox: &str, below: Value| {
            json!({ "metadata": {
                "labels": { PROJECTED: projected }, "annotations": { MAILBOX: mailbox, LOCATOR_BELOW: below },
            } })
        };
        let check = |pod: &Value, expected: Option<&str>| {
            assert_eq!(raised(pod), expected.map(|below| (Id::new(7), below)), "{pod}");
        };
        check(&pod(TRUE, &id, json!("shop-x/web-1")), Some("shop-x/web-1"));
        // In a mailbox there are no such annotations, and without the label anybody may have written them.
        check(&pod(TRUE, &id, Value::Null), None);
        check(&pod("false", &id, json!("shop-x/web-1")), None);
        check(&pod(TRUE, "nowhere", json!("shop-x/web-1")), None);
    }

    /// Another pod of the name, another logical cluster's, or one that nobody placed there: none of them is it.
    #[test]
    fn a_copy_stands_for_one_object() {
        let pod = Bare {
            cluster: Id::new(1),
            name: "one".into(),
            uid: "u".into(),
            paths: Default::default(),
            shown: String::new(),
        };
        let copy = |placed: &str, cluster: Id, uid: &str| {
            let locator = json!({ "logicalCluster": cluster.to_string(), "namespace": "shop", "name": "one", "uid": uid });
            json!({ "metadata": {
                "labels": { PLACED: placed }, "annotations": { LOCATOR: locator.to_string() },
            } })
        };
        let check = |copy: Value, expected: bool| {
            assert_eq!(pod.is_stood_for_by(&copy), expected, "{copy}");
        };
        check(copy(TRUE, Id::new(1), "u"), true);
        check(copy(TRUE, Id::new(1), "older"), false);
        check(copy(TRUE, Id::new(2), "u"), false);
        check(copy("false", Id::new(1), "u"), false);
        check(json!({ "metadata": { "labels": { PLACED: TRUE } } }), false);
    }

    /// Whoever made these up knows the name of a pod, and not its uid.
    #[tokio::test]
    async fn nobody_gets_anywhere_by_saying_where() {
        let claim = Claim {
            cluster: Id::new(1),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "guessed".into(),
        };
        let mut place = Place {
            mailbox: Id::new(7),
            path: "/api/v1/namespaces/shop/pods/web/proxy".into(),
            shown: "/clusters/root:a/api/v1/namespaces/mine/pods/web/proxy".into(),
            claim: Some(claim),
        };
        let asked = |uid: &'static str, cluster: Id| {
            let service = move |request: http::Request<kube::client::Body>| async move {
                let namespace = format!("/clusters/{}/api/v1/namespaces/shop", Id::new(7));
                let annotations = if request.uri().path() == namespace {
                    let locator =
                        json!({ "logicalCluster": cluster.to_string(), "name": "mine", "uid": "n" });
                    json!({ LOCATOR: locator.to_string() })
                } else {
                    assert_eq!(request.uri().path(), format!("{namespace}/pods/web"));
                    json!({ BELOW_UID: uid })
                };
                let object = json!({ "metadata": { "name": "x", "annotations": annotations } }).to_string();
                Ok::<_, std::convert::Infallible>(http::Response::new(
                    http_body_util::Full::<bytes::Bytes>::from(object),
                ))
            };
            Remote::new(kube::Client::new(tower::service_fn(service), "default"))
        };
        let (own, other) = (Id::new(1), Id::new(2));
        assert_eq!(place.verify(Some(asked("real", own))).await.unwrap_err().code, 400);
        assert_eq!(place.verify(Some(asked("guessed", own))).await, Ok(()));
        // The right uid, of a pod in a namespace that stands for somebody else's.
        assert_eq!(place.verify(Some(asked("guessed", other))).await.unwrap_err().code, 400);
        assert_eq!(place.verify(None).await.unwrap_err().code, 503);
        place.claim = None;
        assert_eq!(place.verify(None).await, Ok(()));
        let seen = |location: &'static str| place.seen(&HeaderValue::from_static(location));
        let expected = "/clusters/root:a/api/v1/namespaces/mine/pods/web/proxy/login";
        assert_eq!(seen("/api/v1/namespaces/shop/pods/web/proxy/login").unwrap(), expected);
        assert_eq!(seen("https://elsewhere.example/"), None);
    }
}
