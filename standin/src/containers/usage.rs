//! What `kubectl top` is told: containers that do not exist use a little of everything, each always the same.

use std::sync::Arc;

use apiserver::endpoints::connect::Wish;
use apiserver::http::body::{Body, whole};
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use openapi::meta::status::Status;
use serde_json::{Value, json};

use crate::hands::identity;
use crate::object::{list, name, namespace, text, time, uid};

/// The answer to a request for the use of pods or nodes.
pub(super) async fn answer(stack: Arc<Stack>, wish: Wish) -> Result<Response<Body>, Status> {
    if wish.method != Method::GET {
        return Err(Status::wrong_method());
    }
    let selector = form_urlencoded(wish.text("labelSelector"));
    let space =
        if wish.namespace.is_empty() { String::new() } else { format!("namespaces/{}/", wish.namespace) };
    let path = format!("/api/v1/{space}{}?labelSelector={selector}", wish.plural);
    let all = read(&stack, &path).await;
    let kind = if wish.plural == "nodes" { "NodeMetrics" } else { "PodMetrics" };
    let is_running = |object: &&Value| kind == "NodeMetrics" || text(object, "/status/phase") == "Running";
    let mut measured = list(&all, "/items").iter().filter(is_running).map(|object| measure(kind, object));
    let answer = match wish.name.as_str() {
        "" => json!({
            "apiVersion": "metrics.k8s.io/v1beta1", "kind": format!("{kind}List"), "metadata": {},
            "items": measured.collect::<Vec<_>>(),
        }),
        wanted => measured.find(|object| name(object) == wanted).ok_or_else(|| {
            Status::not_found(
                openapi::meta::status::GroupResource::new("metrics.k8s.io", &wish.plural),
                wanted,
            )
        })?,
    };
    let mut response = Response::new(whole(Full::from(answer.to_string())));
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn read(stack: &Stack, path: &str) -> Value {
    let request = Request::get(path).body(Full::<Bytes>::default());
    let request = request.expect("paths are made of names, which have only letters that paths may have");
    let body = stack.respond(identity(), request).await.into_body().collect().await;
    body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok()).unwrap_or_default()
}

fn form_urlencoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// What a pod or a node uses.
fn measure(kind: &str, object: &Value) -> Value {
    let mut measured = json!({
        "apiVersion": "metrics.k8s.io/v1beta1", "kind": kind,
        "metadata": { "name": name(object), "labels": object["metadata"]["labels"] },
        "timestamp": time(jiff::Timestamp::now()), "window": "15s",
    });
    if kind == "NodeMetrics" {
        measured["usage"] = json!({ "cpu": "250m", "memory": "2Gi" });
        return measured;
    }
    measured["metadata"]["namespace"] = namespace(object).into();
    let containers = list(object, "/spec/containers").iter().map(|container| {
        let whose = format!("{}/{}", uid(object), text(container, "/name"));
        let chance = xxhash_rust::xxh3::xxh3_64(whose.as_bytes());
        let usage =
            json!({ "cpu": format!("{}m", 1 + chance % 20), "memory": format!("{}Mi", 8 + chance % 56) });
        json!({ "name": container["name"], "usage": usage })
    });
    measured["containers"] = containers.collect();
    measured
}
