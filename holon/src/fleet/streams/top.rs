//! `kubectl top` in a user's logical cluster: the metrics of its pods, read from the physical clusters that run them.
//!
//! ```text
//!   pods of the user ─► mailbox and namespace of each ─► its physical cluster: PodMetrics ─► under the user's names
//! ```
//!
//! The response has only pods that the user can see: PodMetrics are read by namespace, and those of other pods are
//! dropped. A node of a user's logical cluster is a whole physical cluster, so its metrics are the sum over the nodes
//! there; users with a pod on it see them. A physical cluster that does not answer contributes no metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use api::cluster::Id;
use api::meta::quantity::{self, Amounts};
use api::metrics::METRICS;
use api::names::DOWNSTREAM_UID;
use apiserver::endpoints::connect::ConnectRequest;
use apiserver::http::body::{Body, whole};
use bytes::Bytes;
use controller::remote::{NAMES, Remote};
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use openapi::meta::status::{GroupResource, Status};
use serde_json::{Value, json};
use splitter::transform::physical_namespace;
use storage::Boxed;
use tunnel::Tunnels;

use super::target::{is_mailbox_object_of, projected_from};

/// The limit for one response of a physical cluster: ten thousand pods, at half a kilobyte each.
const RESPONSE_BYTES_MAX: usize = 8 << 20;
/// The number of concurrent requests for one client, which leaves streams for others.
const CONCURRENCY: usize = 8;
/// A physical cluster that takes longer contributes no metrics.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A namespace of a mailbox, and so of its physical cluster.
type MailboxNamespace = (Id, String);

/// The pods of a mailbox's namespace, and their metrics.
#[derive(Default)]
struct NamespaceMetrics {
    /// The pods of the mailbox, by name.
    pods: HashMap<String, Value>,
    /// Their PodMetrics, by name. None if the physical cluster did not answer.
    metrics: Option<HashMap<String, Value>>,
}

/// The metrics of a logical cluster, by the mailbox namespaces in which its pods may run.
struct ClusterMetrics<'a> {
    cluster: Id,
    by_namespace: BTreeMap<&'a MailboxNamespace, NamespaceMetrics>,
}

/// A request for metrics.
pub(super) struct MetricsQuery {
    cluster: Id,
    plural: String,
    namespace: String,
    name: String,
    /// Label and field selector, as a query string.
    selectors: String,
}

impl MetricsQuery {
    pub(super) fn of(request: &ConnectRequest) -> Result<MetricsQuery, Status> {
        if request.method != Method::GET {
            return Err(Status::wrong_method());
        }
        let mut fields = request.text("fieldSelector").to_owned();
        if !request.name.is_empty() {
            fields = format!("metadata.name={}", request.name);
        }
        let pairs = [("labelSelector", request.text("labelSelector")), ("fieldSelector", &fields)];
        let selectors = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()))
            .finish();
        let [plural, namespace, name] =
            [&request.plural, &request.namespace, &request.name].map(String::clone);
        Ok(MetricsQuery { cluster: request.cluster, plural, namespace, name, selectors })
    }

    /// Returns the path of the pods in question. For nodes, all pods decide which nodes the user may see.
    fn pods_path(&self) -> String {
        match (self.plural.as_str(), self.namespace.as_str()) {
            ("nodes", _) => "/api/v1/pods".to_owned(),
            (_, "") => format!("/api/v1/pods?{}", self.selectors),
            (_, namespace) => format!("/api/v1/namespaces/{namespace}/pods?{}", self.selectors),
        }
    }
}

/// Answers for a logical cluster that is not the mailbox of a connected physical cluster.
pub(super) async fn respond(
    tunnels: &Tunnels,
    server: Remote,
    query: MetricsQuery,
) -> Result<Response<Body>, Status> {
    let of_nodes = query.plural == "nodes";
    let remote = server.within(query.cluster);
    let pods = list(&remote, &query.pods_path()).await?;
    let namespaces = mailbox_namespaces(query.cluster, &pods, &tunnels.mailboxes());
    let reads: Vec<_> =
        namespaces.iter().map(|namespace| read_namespace(tunnels, &server, namespace, !of_nodes)).collect();
    let read: Vec<NamespaceMetrics> = stream::iter(reads).buffered(CONCURRENCY).collect().await;
    let by_namespace = namespaces.iter().zip(read).collect();
    let metrics = ClusterMetrics { cluster: query.cluster, by_namespace };
    let mut items = match of_nodes {
        true => node_metrics(tunnels, &remote, &query.selectors, &pods, &metrics).await?,
        false => pods.iter().filter_map(|pod| metrics.of_pod(pod)).collect(),
    };
    if items.is_empty() && !pods.is_empty() && metrics.is_unavailable(of_nodes) {
        return Err(Status::unavailable("no physical cluster that runs these pods serves metrics"));
    }
    let kind = if of_nodes { "NodeMetrics" } else { "PodMetrics" };
    let api_version = format!("{}/{}", METRICS.0, METRICS.1);
    items.iter_mut().for_each(|item| (item["apiVersion"], item["kind"]) = (json!(api_version), json!(kind)));
    let object = match query.name.as_str() {
        "" => {
            json!({ "apiVersion": api_version, "kind": format!("{kind}List"), "metadata": {}, "items": items })
        }
        name => items
            .pop()
            .ok_or_else(|| Status::not_found(GroupResource::new(METRICS.0, &query.plural), name))?,
    };
    let mut response = Response::new(whole(Full::from(object.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Returns the namespaces that may hold the pods of a user: for a projection the namespace that it names, for a pod
/// that the user created one in every mailbox.
fn mailbox_namespaces(cluster: Id, pods: &[Value], mailboxes: &[Id]) -> BTreeSet<MailboxNamespace> {
    let of_pod = |pod: &Value| -> Vec<MailboxNamespace> {
        if let Some((mailbox, downstream)) = projected_from(pod) {
            let found = downstream.split_once('/').map(|(namespace, _)| (mailbox, namespace.to_owned()));
            return found.into_iter().collect();
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        // On a physical cluster that is dedicated to one logical cluster, namespaces keep their names.
        let names = [physical_namespace(&cluster.to_string(), namespace), namespace.to_owned()];
        let in_mailbox = |mailbox: &Id| names.clone().map(|name| (*mailbox, name));
        mailboxes.iter().flat_map(in_mailbox).collect()
    };
    pods.iter().flat_map(of_pod).collect()
}

/// Reads the pods of a mailbox's namespace, and with `metrics` their PodMetrics from the physical cluster.
async fn read_namespace(
    tunnels: &Tunnels,
    server: &Remote,
    (mailbox, namespace): &MailboxNamespace,
    metrics: bool,
) -> NamespaceMetrics {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let Ok(pods) = server.within(*mailbox).read_as(&path, NAMES).await else {
        return NamespaceMetrics::default();
    };
    let pods = by_name(&pods);
    if pods.is_empty() || !metrics {
        return NamespaceMetrics { pods, metrics: None };
    }
    let metrics = read_metrics(tunnels, *mailbox, &format!("/namespaces/{namespace}/pods")).await;
    NamespaceMetrics { pods, metrics: metrics.as_ref().map(by_name) }
}

/// Reads a list of metrics from a physical cluster. `None` if it has none. Boxed: the compiler cannot infer that many
/// of these futures together are Send.
fn read_metrics<'a>(tunnels: &'a Tunnels, mailbox: Id, path: &'a str) -> Boxed<'a, Option<Value>> {
    Box::pin(async move {
        let connection = tunnels.get(mailbox).ok()?;
        let _permit = connection.acquire_stream().ok()?;
        let (group, version) = METRICS;
        let request = Request::get(format!("/apis/{group}/{version}{path}")).body(Bytes::new()).ok()?;
        let read = async {
            let response = connection.send(request, None).await.ok()?;
            let mut chunks = response.into_body().into_data_stream();
            let mut body = Vec::new();
            while let Some(chunk) = chunks.next().await {
                body.extend_from_slice(&chunk.ok()?);
                if body.len() > RESPONSE_BYTES_MAX {
                    return None;
                }
            }
            // A cluster without a metrics server answers with a Status.
            serde_json::from_slice(&body).ok().filter(|found: &Value| found["items"].is_array())
        };
        tokio::time::timeout(READ_TIMEOUT, read).await.ok()?
    })
}

async fn list(remote: &Remote, path: &str) -> Result<Vec<Value>, Status> {
    let found = remote.read(path).await.map_err(|error| match error.code() {
        400..500 => Status::bad_request(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    })?;
    Ok(items(&found).cloned().collect())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn by_name(list: &Value) -> HashMap<String, Value> {
    let entry = |item: &Value| Some((item["metadata"]["name"].as_str()?.to_owned(), item.clone()));
    items(list).filter_map(entry).collect()
}

impl ClusterMetrics<'_> {
    /// Returns the mailbox of a user's pod, and its namespace and name there. The annotations of a projection count
    /// only if the mailbox confirms them.
    fn find(&self, pod: &Value) -> Option<(Id, &NamespaceMetrics, &str)> {
        let metadata = &pod["metadata"];
        let projected = projected_from(pod);
        self.by_namespace.iter().find_map(|((mailbox, namespace), read)| {
            let name = match projected {
                Some((from, path)) if from == *mailbox => {
                    path.strip_prefix(&**namespace)?.strip_prefix('/')?
                }
                Some(_) => return None,
                None => metadata["name"].as_str()?,
            };
            let (name, found) = read.pods.get_key_value(name)?;
            let uid = |object: &Value| object["annotations"][DOWNSTREAM_UID].as_str().map(str::to_owned);
            let matches = match projected {
                Some(_) => uid(metadata).is_some() && uid(metadata) == uid(&found["metadata"]),
                None => is_mailbox_object_of(found, self.cluster, metadata["uid"].as_str()?),
            };
            matches.then_some((*mailbox, read, name.as_str()))
        })
    }

    /// Returns whether no physical cluster could answer.
    fn is_unavailable(&self, of_nodes: bool) -> bool {
        self.by_namespace.values().all(|read| match of_nodes {
            true => read.pods.is_empty(),
            false => read.metrics.is_none(),
        })
    }

    /// Returns the PodMetrics of a user's pod, under the user's name for it.
    fn of_pod(&self, pod: &Value) -> Option<Value> {
        let (_, read, name) = self.find(pod)?;
        let mut metrics = read.metrics.as_ref()?.get(name)?.clone();
        let metadata = &pod["metadata"];
        metrics["metadata"] = json!({
            "name": metadata["name"], "namespace": metadata["namespace"], "labels": metadata["labels"],
            "creationTimestamp": metrics["metadata"]["creationTimestamp"],
        });
        Some(metrics)
    }
}

/// Returns the metrics of the nodes that run pods of the user.
async fn node_metrics(
    tunnels: &Tunnels,
    remote: &Remote,
    selectors: &str,
    pods: &[Value],
    metrics: &ClusterMetrics<'_>,
) -> Result<Vec<Value>, Status> {
    let node_and_mailbox =
        |pod: &Value| Some((pod["spec"]["nodeName"].as_str()?.to_owned(), metrics.find(pod)?.0));
    let mailboxes: BTreeMap<String, Id> = pods.iter().filter_map(node_and_mailbox).collect();
    let nodes = list(remote, &format!("/api/v1/nodes?{selectors}")).await?;
    let mut reads = Vec::new();
    for node in &nodes {
        let mailbox = node["metadata"]["name"].as_str().and_then(|name| mailboxes.get(name));
        reads.extend(mailbox.map(|mailbox| async move {
            let found = read_metrics(tunnels, *mailbox, "/nodes").await;
            found.and_then(|found| sum_nodes(node, &found))
        }));
    }
    Ok(stream::iter(reads).buffered(CONCURRENCY).filter_map(std::future::ready).collect().await)
}

/// Returns the NodeMetrics of a user's node: the sum over the nodes of the physical cluster.
fn sum_nodes(node: &Value, node_metrics: &Value) -> Option<Value> {
    let first = items(node_metrics).next()?;
    let mut usage = Amounts::default();
    items(node_metrics).for_each(|one| quantity::add(&mut usage, &quantity::amounts_of(&one["usage"]), 1));
    let usage: Value =
        usage.iter().map(|(name, amount)| (name.clone(), json!(quantity::exact(name, *amount)))).collect();
    let metadata = json!({ "name": node["metadata"]["name"], "labels": node["metadata"]["labels"] });
    Some(json!({
        "metadata": metadata, "timestamp": first["timestamp"], "window": first["window"], "usage": usage,
    }))
}

#[cfg(test)]
mod tests {
    use api::names::{DOWNSTREAM_NAME, LOCATOR, MAILBOX, PLACED, PROJECTED, TRUE};

    use super::*;

    fn projected(mailbox: u64, downstream: &str, uid: &str) -> Value {
        json!({ "metadata": {
            "name": "web-1", "namespace": "shop", "labels": { PROJECTED: TRUE, "app": "web" },
            "annotations": { MAILBOX: Id::new(mailbox).to_string(), DOWNSTREAM_NAME: downstream, DOWNSTREAM_UID: uid },
        } })
    }

    fn namespace_metrics(pods: Value, metrics: Value) -> NamespaceMetrics {
        NamespaceMetrics {
            pods: by_name(&json!({ "items": pods })),
            metrics: Some(by_name(&json!({ "items": metrics }))),
        }
    }

    /// A projection that names another pod, another physical cluster or a missing pod gets no metrics.
    #[test]
    fn a_projection_gets_the_metrics_of_its_own_pod_only() {
        let namespace = (Id::new(7), "shop-x".to_owned());
        let pods = json!([
            { "metadata": { "name": "web-9", "annotations": { DOWNSTREAM_UID: "u9" } } },
            { "metadata": { "name": "other", "annotations": { DOWNSTREAM_UID: "u0" } } },
        ]);
        let metrics = json!([
            { "metadata": { "name": "web-9", "namespace": "shop-x" }, "containers": [{ "name": "main" }] },
            { "metadata": { "name": "other", "namespace": "shop-x" }, "containers": [] },
        ]);
        let by_namespace = [(&namespace, namespace_metrics(pods, metrics))].into();
        let metrics = ClusterMetrics { cluster: Id::new(1), by_namespace };
        let pod_metrics = metrics.of_pod(&projected(7, "shop-x/web-9", "u9")).unwrap();
        assert_eq!(
            (&pod_metrics["metadata"]["name"], &pod_metrics["metadata"]["namespace"]),
            (&json!("web-1"), &json!("shop"))
        );
        assert_eq!(pod_metrics["containers"], json!([{ "name": "main" }]));
        for forged in [
            projected(7, "shop-x/other", "guessed"),
            projected(8, "shop-x/web-9", "u9"),
            projected(7, "shop-x/none", "u9"),
        ] {
            assert_eq!(metrics.of_pod(&forged), None, "{forged}");
        }
    }

    #[test]
    fn a_pod_that_a_user_created_is_found_by_its_mailbox_object() {
        let cluster = Id::new(1);
        let pod = json!({ "metadata": { "name": "one", "namespace": "shop", "uid": "u" } });
        let namespaces = mailbox_namespaces(cluster, std::slice::from_ref(&pod), &[Id::new(7)]);
        let physical = physical_namespace(&cluster.to_string(), "shop");
        assert!(
            namespaces.contains(&(Id::new(7), physical.clone())) && namespaces.len() == 2,
            "{namespaces:?}"
        );
        let mailbox_object = |uid: &str| {
            let locator = json!({ "logicalCluster": cluster.to_string(), "namespace": "shop", "name": "one", "uid": uid });
            json!([{ "metadata": {
                "name": "one", "labels": { PLACED: TRUE }, "annotations": { LOCATOR: locator.to_string() },
            } }])
        };
        let metrics = json!([{ "metadata": { "name": "one" }, "containers": [] }]);
        let namespace = (Id::new(7), physical);
        let has_metrics = |uid: &str| {
            let by_namespace = [(&namespace, namespace_metrics(mailbox_object(uid), metrics.clone()))].into();
            ClusterMetrics { cluster, by_namespace }.of_pod(&pod).is_some()
        };
        assert!(has_metrics("u") && !has_metrics("older"));
    }

    #[test]
    fn the_metrics_of_a_node_are_the_sum_over_its_physical_cluster() {
        let one = |cpu: &str, memory: &str| json!({ "timestamp": "t", "window": "15s", "usage": { "cpu": cpu, "memory": memory } });
        let node = json!({ "metadata": { "name": "east" } });
        let metrics = json!({ "items": [one("250m", "2Gi"), one("1", "512Mi")] });
        let sum = sum_nodes(&node, &metrics).unwrap();
        assert_eq!(sum["usage"], json!({ "cpu": "1250m", "memory": "2560Mi" }));
        assert_eq!(sum_nodes(&node, &json!({ "items": [] })), None);
    }
}
