//! A simulated cluster runs a Deployment: `cargo run -p standin --example deployment`.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use standin::{Options, Standin};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let standin = Standin::start(Options::new("east")).await?;
    println!("{} listens at {}", standin.name(), standin.address());

    let labels = json!({ "app": "web" });
    let web: Deployment = serde_json::from_value(json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "nginx" }] } },
        },
    }))?;
    let deployments = Api::default_namespaced(standin.client());
    deployments.create(&PostParams::default(), &web).await?;
    while deployments.get("web").await?.status.and_then(|status| status.ready_replicas) != Some(3) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for pod in Api::<Pod>::default_namespaced(standin.client()).list(&ListParams::default()).await? {
        let node = pod.spec.and_then(|spec| spec.node_name);
        println!("{} runs on {}", pod.metadata.name.unwrap_or_default(), node.unwrap_or_default());
    }
    Ok(())
}
