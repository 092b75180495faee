//! metrics.k8s.io for `kubectl top`: every simulated container reports a small constant usage.

use std::sync::Arc;

use apiserver::endpoints::connect::ConnectRequest;
use apiserver::http::body::{Body, whole};
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use openapi::meta::status::Status;
use serde_json::{Value, json};

use crate::identity::identity;
use crate::objects::fields::{list, name, namespace, text, time, uid};

/// Responds to a request for PodMetrics or NodeMetrics.
pub(super) async fn respond(stack: Arc<Stack>, request: ConnectRequest) -> Result<Response<Body>, Status> {
    if request.method != Method::GET {
        return Err(Status::wrong_method());
    }
    let selector = percent_encode(request.text("labelSelector"));
    let ns = if request.namespace.is_empty() {
        String::new()
    } else {
        format!("namespaces/{}/", request.namespace)
    };
    let path = format!("/api/v1/{ns}{}?labelSelector={selector}", request.plural);
    let objects = get(&stack, &path).await;
    let kind = if request.plural == "nodes" { "NodeMetrics" } else { "PodMetrics" };
    let is_running = |object: &&Value| kind == "NodeMetrics" || text(object, "/status/phase") == "Running";
    let mut metrics =
        list(&objects, "/items").iter().filter(is_running).map(|object| metrics_of(kind, object));
    let body = match request.name.as_str() {
        "" => json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": format!("{kind}List"), "metadata": {},
            "items": metrics.collect::<Vec<_>>(),
        }),
        requested => metrics.find(|object| name(object) == requested).ok_or_else(|| {
            Status::not_found(
                openapi::meta::status::GroupResource::new("metrics.k8s.io", &request.plural),
                requested,
            )
        })?,
    };
    let mut response = Response::new(whole(Full::from(body.to_string())));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn get(stack: &Arc<Stack>, path: &str) -> Value {
    let request = Request::get(path).body(Full::<Bytes>::default());
    let request = request.expect("a path of valid names is a valid URI");
    let body = stack.respond(identity(), request).await.into_body().collect().await;
    body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default()
}

fn percent_encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns the usage of a pod or a node.
fn metrics_of(kind: &str, object: &Value) -> Value {
    let mut metrics = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": kind,
        "metadata": { "name": name(object), "labels": object["metadata"]["labels"] },
        "timestamp": time(jiff::Timestamp::now()), "window": "15s",
    });
    if kind == "NodeMetrics" {
        metrics["usage"] = json!({ "cpu": "250m", "memory": "2Gi" });
        return metrics;
    }
    metrics["metadata"]["namespace"] = namespace(object).into();
    let containers = list(object, "/spec/containers").iter().map(|container| {
        let seed = format!("{}/{}", uid(object), text(container, "/name"));
        let hash = xxhash_rust::xxh3::xxh3_64(seed.as_bytes());
        let usage = json!({ "cpu": format!("{}m", 1 + hash % 20), "memory": format!("{}Mi", 8 + hash % 56) });
        json!({ "name": container["name"], "usage": usage })
    });
    metrics["containers"] = containers.collect();
    metrics
}
