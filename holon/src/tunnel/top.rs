//! `kubectl top` in a user's logical cluster: what its pods use, as the physical clusters they run on measured it.
//!
//! ```text
//!   pods of the user ─► which mailbox, which namespace there ─► its physical cluster: PodMetrics ─► under the user's names
//! ```
//!
//! Nothing is told but about pods the user is shown: whoever measures is asked for a namespace, and what belongs to none of
//! the pods is left out. A node is a whole physical cluster, so what it uses is the sum over the nodes there; it is told to
//! those who have a pod on it. A physical cluster that does not answer has nothing measured at the moment.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use api::cluster::Id;
use api::names::BELOW_UID;
use api::quantity::{self, Amounts};
use api::tunnel::METRICS;
use apiserver::connect::Wish;
use apiserver::server::{Body, whole};
use bytes::Bytes;
use controller::remote::{NAMES, Remote};
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};
use splitter::lower::physical_namespace;
use storage::Boxed;

use super::Tunnels;
use super::place::{raised, stands_for};

/// Of one answer of a physical cluster: ten thousand pods. What is measured of one takes half a kilobyte.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Questions under way at once for one client. Others want to be led there, too.
const AT_ONCE: usize = 8;
/// A physical cluster that takes longer has nothing measured at the moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// A namespace of a mailbox, and so of its physical cluster.
type Space = (Id, String);

/// What is known about a namespace there.
#[derive(Default)]
struct There {
    /// The pods of the mailbox, by name.
    pods: HashMap<String, Value>,
    /// What is measured of them, by name; none if nobody says.
    measured: Option<HashMap<String, Value>>,
}

/// Everywhere pods of a logical cluster may be.
struct Everywhere<'a> {
    cluster: Id,
    by_space: BTreeMap<&'a Space, There>,
}

/// What is asked for.
pub(super) struct Question {
    cluster: Id,
    plural: String,
    namespace: String,
    name: String,
    /// As a query: those that are meant, by name or by what they are like.
    chosen: String,
}

impl Question {
    pub(super) fn of(wish: &Wish) -> Result<Question, Status> {
        if wish.method != Method::GET {
            return Err(Status::wrong_method());
        }
        let mut fields = wish.text("fieldSelector").to_owned();
        if !wish.name.is_empty() {
            fields = format!("metadata.name={}", wish.name);
        }
        let pairs = [("labelSelector", wish.text("labelSelector")), ("fieldSelector", &fields)];
        let chosen = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()))
            .finish();
        let [plural, namespace, name] = [&wish.plural, &wish.namespace, &wish.name].map(String::clone);
        Ok(Question { cluster: wish.cluster, plural, namespace, name, chosen })
    }

    /// The pods it is about. Of nodes it is told by the pods that are on them.
    fn pods(&self) -> String {
        match (self.plural.as_str(), self.namespace.as_str()) {
            ("nodes", _) => "/api/v1/pods".to_owned(),
            (_, "") => format!("/api/v1/pods?{}", self.chosen),
            (_, namespace) => format!("/api/v1/namespaces/{namespace}/pods?{}", self.chosen),
        }
    }
}

/// Answers for a logical cluster that is nobody's mailbox.
pub(super) async fn answer(
    tunnels: &Tunnels,
    server: Remote,
    wish: Question,
) -> Result<Response<Body>, Status> {
    let asks_nodes = wish.plural == "nodes";
    let here = server.within(wish.cluster);
    let pods = list(&here, &wish.pods()).await?;
    let mailboxes = tunnels.mailboxes();
    let spaces = spaces(wish.cluster, &pods, &mailboxes);
    let looks: Vec<_> = spaces.iter().map(|space| look(tunnels, &server, space, !asks_nodes)).collect();
    let known: Vec<There> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    let there = Everywhere { cluster: wish.cluster, by_space: spaces.iter().zip(known).collect() };
    let mut items = match asks_nodes {
        true => of_nodes(tunnels, &here, &wish.chosen, &pods, &there).await?,
        false => pods.iter().filter_map(|pod| there.of_pod(pod)).collect(),
    };
    if items.is_empty() && !pods.is_empty() && there.says_nothing(asks_nodes) {
        return Err(Status::unavailable("no physical cluster its pods run on says what they use"));
    }
    let kind = if asks_nodes { "NodeMetrics" } else { "PodMetrics" };
    let api_version = format!("{}/{}", METRICS.0, METRICS.1);
    items.iter_mut().for_each(|item| (item["apiVersion"], item["kind"]) = (json!(api_version), json!(kind)));
    let answer = match wish.name.as_str() {
        "" => {
            json!({ "apiVersion": api_version, "kind": format!("{kind}List"), "metadata": {}, "items": items })
        }
        name => {
            items.pop().ok_or_else(|| Status::not_found(GroupResource::new(METRICS.0, &wish.plural), name))?
        }
    };
    let mut response = Response::new(whole(Full::from(answer.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Where pods of a user may be: where they say they are shown from; those the user made himself say nothing.
fn spaces(cluster: Id, pods: &[Value], mailboxes: &[Id]) -> BTreeSet<Space> {
    let of_pod = |pod: &Value| -> Vec<Space> {
        if let Some((mailbox, below)) = raised(pod) {
            let space = below.split_once('/').map(|(namespace, _)| (mailbox, namespace.to_owned()));
            return space.into_iter().collect();
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        // On a physical cluster that is dedicated to one logical cluster, namespaces keep their names.
        let names = [physical_namespace(&cluster.to_string(), namespace), namespace.to_owned()];
        let at = |mailbox: &Id| names.clone().map(|name| (*mailbox, name));
        mailboxes.iter().flat_map(at).collect()
    };
    pods.iter().flat_map(of_pod).collect()
}

/// Looks up a namespace: which pods the mailbox has, and what they use.
async fn look(tunnels: &Tunnels, server: &Remote, (mailbox, namespace): &Space, measures: bool) -> There {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let Ok(pods) = server.within(*mailbox).read_as(&path, NAMES).await else { return There::default() };
    let pods = by_name(&pods);
    if pods.is_empty() || !measures {
        return There { pods, measured: None };
    }
    let measured = ask(tunnels, *mailbox, &format!("/namespaces/{namespace}/pods")).await;
    There { pods, measured: measured.as_ref().map(by_name) }
}

/// What a physical cluster says it measured; none if it says nothing. Boxed: the compiler cannot tell that many of these
/// together can be sent between threads.
fn ask<'a>(tunnels: &'a Tunnels, mailbox: Id, path: &'a str) -> Boxed<'a, Option<Value>> {
    Box::pin(async move {
        let way = tunnels.way(mailbox).ok()?;
        let _room = way.enter().ok()?;
        let (group, version) = METRICS;
        let request = Request::get(format!("/apis/{group}/{version}{path}")).body(Bytes::new()).ok()?;
        let read = async {
            let answer = way.ask(request, None).await.ok()?;
            let mut pieces = answer.into_body().into_data_stream();
            let mut body = Vec::new();
            while let Some(piece) = pieces.next().await {
                body.extend_from_slice(&piece.ok()?);
                if body.len() > ANSWER_BYTES_MAX {
                    return None;
                }
            }
            // Whoever does not measure says so in a Status.
            serde_json::from_slice(&body).ok().filter(|found: &Value| found["items"].is_array())
        };
        tokio::time::timeout(PATIENCE, read).await.ok()?
    })
}

async fn list(here: &Remote, path: &str) -> Result<Vec<Value>, Status> {
    let found = here.read(path).await.map_err(|error| match error.code() {
        400..500 => Status::bad_request(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    })?;
    Ok(items(&found).cloned().collect())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn by_name(list: &Value) -> HashMap<String, Value> {
    let named = |one: &Value| Some((one["metadata"]["name"].as_str()?.to_owned(), one.clone()));
    items(list).filter_map(named).collect()
}

impl Everywhere<'_> {
    /// The mailbox of a user's pod, what is known of its namespace there, and what it is called there. What a pod says of
    /// itself counts only if the mailbox says the same.
    fn find(&self, pod: &Value) -> Option<(Id, &There, &str)> {
        let metadata = &pod["metadata"];
        let raised = raised(pod);
        self.by_space.iter().find_map(|((mailbox, namespace), known)| {
            let name = match raised {
                Some((at, below)) if at == *mailbox => below.strip_prefix(&**namespace)?.strip_prefix('/')?,
                Some(_) => return None,
                None => metadata["name"].as_str()?,
            };
            let (name, copy) = known.pods.get_key_value(name)?;
            let uid = |object: &Value| object["annotations"][BELOW_UID].as_str().map(str::to_owned);
            let is_it = match raised {
                Some(_) => uid(metadata).is_some() && uid(metadata) == uid(&copy["metadata"]),
                None => stands_for(copy, self.cluster, metadata["uid"].as_str()?),
            };
            is_it.then_some((*mailbox, known, name.as_str()))
        })
    }

    /// Whether no physical cluster was found that could say anything.
    fn says_nothing(&self, about_nodes: bool) -> bool {
        self.by_space.values().all(|there| match about_nodes {
            true => there.pods.is_empty(),
            false => there.measured.is_none(),
        })
    }

    /// What a user's pod uses, under the name the user knows it by.
    fn of_pod(&self, pod: &Value) -> Option<Value> {
        let (_, known, name) = self.find(pod)?;
        let mut measured = known.measured.as_ref()?.get(name)?.clone();
        let metadata = &pod["metadata"];
        measured["metadata"] = json!({
            "name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"],
            "creationTimestamp": measured["metadata"]["creationTimestamp"],
        });
        Some(measured)
    }
}

/// What the nodes a user has pods on use.
async fn of_nodes(
    tunnels: &Tunnels,
    here: &Remote,
    chosen: &str,
    pods: &[Value],
    there: &Everywhere<'_>,
) -> Result<Vec<Value>, Status> {
    let on = |pod: &Value| Some((pod["spec"]["nodeName"].as_str()?.to_owned(), there.find(pod)?.0));
    let mailboxes: BTreeMap<String, Id> = pods.iter().filter_map(on).collect();
    let nodes = list(here, &format!("/api/v1/nodes?{chosen}")).await?;
    let mut measured = Vec::new();
    for node in &nodes {
        let mailbox = node["metadata"]["name"].as_str().and_then(|name| mailboxes.get(name));
        measured.extend(mailbox.map(|mailbox| async move {
            let found = ask(tunnels, *mailbox, "/nodes").await;
            found.and_then(|found| summed(node, &found))
        }));
    }
    Ok(stream::iter(measured).buffered(AT_ONCE).filter_map(std::future::ready).collect().await)
}

/// A node that stands for many.
fn summed(node: &Value, measured: &Value) -> Option<Value> {
    let first = items(measured).next()?;
    let mut usage = Amounts::default();
    items(measured).for_each(|one| quantity::add(&mut usage, &quantity::amounts_of(&one["usage"]), 1));
    let usage: Value =
        usage.iter().map(|(name, amount)| (name.clone(), json!(quantity::exact(name, *amount)))).collect();
    let metadata = json!({ "name": node["metadata"]["name"], "labels": node["metadata"]["labels"] });
    Some(json!({
        "metadata": metadata, "timestamp": first["timestamp"], "window": first["window"], "usage": usage,
    }))
}

#[cfg(test)]
mod tests {
    use api::names::{LOCATOR, LOCATOR_BELOW, MAILBOX, PLACED, PROJECTED, TRUE};

    use super::*;

    fn shown(mailbox: u64, below: &str, uid: &str) -> Value {
        json!({ "metadata": {
            "name": "web-1", "namespace": "shop", "labels": { PROJECTED: TRUE, "app": "web" },
            "annotations": { MAILBOX: Id::new(mailbox).to_string(), LOCATOR_BELOW: below, BELOW_UID: uid },
        } })
    }

    fn there(pods: Value, measured: Value) -> There {
        There {
            pods: by_name(&json!({ "items": pods })),
            measured: Some(by_name(&json!({ "items": measured }))),
        }
    }

    /// Another pod there, another physical cluster, a pod of somebody else's: nothing is told about any of them.
    #[test]
    fn a_pod_is_told_what_it_uses_and_nothing_else() {
        let space = (Id::new(7), "shop-x".to_owned());
        let pods = json!([
            { "metadata": { "name": "web-9", "annotations": { BELOW_UID: "u9" } } },
            { "metadata": { "name": "other", "annotations": { BELOW_UID: "u0" } } },
        ]);
        let measured = json!([
            { "metadata": { "name": "web-9", "namespace": "shop-x" }, "containers": [{ "name": "main" }] },
            { "metadata": { "name": "other", "namespace": "shop-x" }, "containers": [] },
        ]);
        let known = Everywhere { cluster: Id::new(1), by_space: [(&space, there(pods, measured))].into() };
        let told = known.of_pod(&shown(7, "shop-x/web-9", "u9")).unwrap();
        assert_eq!(
            (&told["metadata"]["name"], &told["metadata"]["namespace"]),
            (&json!("web-1"), &json!("shop"))
        );
        assert_eq!(told["containers"], json!([{ "name": "main" }]));
        for made_up in [
            shown(7, "shop-x/other", "guessed"),
            shown(8, "shop-x/web-9", "u9"),
            shown(7, "shop-x/none", "u9"),
        ] {
            assert_eq!(known.of_pod(&made_up), None, "{made_up}");
        }
    }

    #[test]
    fn a_pod_a_user_made_is_where_its_copy_is() {
        let cluster = Id::new(1);
        let bare = json!({ "metadata": { "name": "one", "namespace": "shop", "uid": "u" } });
        let spaces = spaces(cluster, std::slice::from_ref(&bare), &[Id::new(7)]);
        let there_name = physical_namespace(&cluster.to_string(), "shop");
        assert!(spaces.contains(&(Id::new(7), there_name.clone())) && spaces.len() == 2, "{spaces:?}");
        let copy = |uid: &str| {
            let locator = json!({ "logicalCluster": cluster.to_string(), "namespace": "shop", "name": "one", "uid": uid });
            json!([{ "metadata": {
                "name": "one", "labels": { PLACED: TRUE }, "annotations": { LOCATOR: locator.to_string() },
            } }])
        };
        let measured = json!([{ "metadata": { "name": "one" }, "containers": [] }]);
        let space = (Id::new(7), there_name);
        let told = |uid: &str| {
            let by_space = [(&space, there(copy(uid), measured.clone()))].into();
            Everywhere { cluster, by_space }.of_pod(&bare).is_some()
        };
        assert!(told("u") && !told("older"));
    }

    #[test]
    fn a_node_uses_what_the_nodes_it_stands_for_use() {
        let one = |cpu: &str, memory: &str| json!({ "timestamp": "t", "window": "15s", "usage": { "cpu": cpu, "memory": memory } });
        let node = json!({ "metadata": { "name": "east" } });
        let measured = json!({ "items": [one("250m", "2Gi"), one("1", "512Mi")] });
        let told = summed(&node, &measured).unwrap();
        assert_eq!(told["usage"], json!({ "cpu": "1250m", "memory": "2560Mi" }));
        assert_eq!(summed(&node, &json!({ "items": [] })), None);
    }
}
