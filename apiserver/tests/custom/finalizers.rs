//! Names of finalizers of custom objects.

use serde_json::{Value, json};

use super::server::{DEFINITIONS, TestServer, widgets};

const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";

fn widget(finalizers: Value) -> Value {
    json!({
        "apiVersion": "shop.example/v1", "kind": "Widget", "metadata": { "name": "w", "finalizers": finalizers },
    })
}

/// Flux, Argo CD and many other operators have finalizers like `finalizers.fluxcd.io`, without a slash. Their objects
/// were rejected, as Kubernetes rejects such a ConfigMap; for custom kinds Kubernetes accepts them with a warning.
#[tokio::test]
async fn a_finalizer_without_a_domain_is_warned_about_once() {
    let test = TestServer::new().await;
    test.define("", widgets(json!({}))).await;
    let warnings = |headers: &http::HeaderMap| -> Vec<String> {
        headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    let made = test.send("POST", WIDGETS, widget(json!(["plain", "finalizers.fluxcd.io", "x.y/z"]))).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let reported = |name: &str, path: &str| {
        format!(
            "299 - \"metadata.finalizers: \\\"{name}\\\": prefer a domain-qualified finalizer name{path} to avoid \
             accidental conflicts with other finalizer writers\""
        )
    };
    let expected = [reported("finalizers.fluxcd.io", " including a path (/)"), reported("plain", "")];
    assert_eq!(warnings(&made.headers), expected);
    let path = format!("{WIDGETS}/w");
    let patch = json!({ "metadata": { "finalizers": ["plain", "more"] } });
    let patched = test.patch(&path, "application/merge-patch+json", patch.clone()).await;
    assert_eq!((patched.code, warnings(&patched.headers)), (200, vec![reported("more", "")]));
    let repeated = test.patch(&path, "application/merge-patch+json", patch).await;
    assert_eq!((repeated.code, warnings(&repeated.headers)), (200, vec![]));
    let definition = json!({ "metadata": { "finalizers": ["plain"] } });
    let held = test.merge(&format!("{DEFINITIONS}/widgets.shop.example"), definition).await;
    assert_eq!(held["metadata"]["finalizers"], json!(["plain"]));
    // Built-in kinds reject such finalizers.
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "w", "finalizers": ["plain"] } });
    assert_eq!(test.send("POST", "/api/v1/namespaces/default/configmaps", map).await.code, 422);
}
