//! A typical controller written with kube: on every reconcile it applies a child and a status, without a check whether
//! that is necessary.
//!
//! ```text
//!   Garden ──► reconcile ──► apply ConfigMap, apply status
//!                 ▲                      │ no difference: no write, no event
//!                 └── event of a change ◄┘
//! ```
//!
//! The controller converges, it reverts changes of others, and then it reconciles without a single write. With a server
//! that stored unchanged objects, its own writes would trigger it forever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};

/// How many reconciles must happen without a write.
const RECONCILES: usize = 40;
/// How long a wait may take before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

struct Gardener {
    client: Client,
    gardens: ApiResource,
    reconciles: AtomicUsize,
}

fn definition() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": { "type": "object", "properties": { "plant": { "type": "string" } } },
            "status": {
                "type": "object",
                "properties": {
                    "plant": { "type": "string" },
                    "conditions": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                        "items": {
                            "type": "object", "required": ["type"],
                            "properties": { "type": { "type": "string" }, "status": { "type": "string" } },
                        },
                    },
                },
            },
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gardens.example.com" },
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": { "plural": "gardens", "singular": "garden", "kind": "Garden" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} }, "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

/// Applies the complete desired child and status, every time.
async fn reconcile(garden: Arc<DynamicObject>, context: Arc<Gardener>) -> Result<Action, kube::Error> {
    let (name, plant) = (garden.name_any(), garden.data["spec"]["plant"].clone());
    let params = PatchParams::apply("gardener").force();
    let child = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "garden": name }, "ownerReferences": [garden.controller_owner_ref(&context.gardens)] },
        "data": { "plant": plant },
    });
    let children: Api<ConfigMap> = Api::default_namespaced(context.client.clone());
    children.patch(&name, &params, &Patch::Apply(&child)).await?;
    let status = json!({
        "apiVersion": "example.com/v1",
        "kind": "Garden",
        "status": { "plant": plant, "conditions": [{ "type": "Planted", "status": "True" }] },
    });
    let gardens: Api<DynamicObject> = Api::default_namespaced_with(context.client.clone(), &context.gardens);
    gardens.patch_status(&name, &params, &Patch::Apply(&status)).await?;
    context.reconciles.fetch_add(1, Ordering::Relaxed);
    Ok(Action::requeue(Duration::from_millis(20)))
}

/// Prints the error, in case the test fails, and retries.
fn error_policy(_: Arc<DynamicObject>, error: &kube::Error, _: Arc<Gardener>) -> Action {
    println!("{error}");
    Action::requeue(Duration::from_millis(100))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_applies_unchanged_objects_writes_nothing() -> Result<()> {
    let server = scenarios::holon::start(&[])?;
    let config = Kubeconfig::read_from(server.kubeconfig_file("root"))?;
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    let gardens = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Garden"));
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &gardens);
    define(&client, &api).await?;

    let context =
        Gardener { client: client.clone(), gardens: gardens.clone(), reconciles: AtomicUsize::new(0) };
    let context = Arc::new(context);
    let children: Api<ConfigMap> = Api::default_namespaced(client);
    let running = Controller::new_with(api.clone(), watcher::Config::default(), gardens.clone())
        .owns(children.clone(), watcher::Config::default())
        .run(reconcile, error_policy, context.clone())
        .for_each(|_| std::future::ready(()));
    let running = tokio::spawn(running);

    let mut garden = DynamicObject::new("front", &gardens);
    garden.data = json!({ "spec": { "plant": "rose" } });
    api.create(&PostParams::default(), &garden).await?;
    until("the rose is planted", async || is_planted(&api, &children, "rose").await).await?;
    check_no_writes(&api, &children, &context).await?;

    let change = json!({ "spec": { "plant": "tulip" } });
    api.patch("front", &PatchParams::default(), &Patch::Merge(&change)).await?;
    until("the tulip is planted", async || is_planted(&api, &children, "tulip").await).await?;
    // Changes of others to applied fields are undone; fields of others stay.
    let weeds = json!({ "data": { "plant": "weed", "gnome": "yes" } });
    children.patch("front", &PatchParams::default(), &Patch::Merge(&weeds)).await?;
    until("the weeds are removed", async || is_planted(&api, &children, "tulip").await).await?;
    let data = children.get("front").await?.data.context("data")?;
    assert_eq!(data.get("gnome").map(String::as_str), Some("yes"), "{data:?}");
    check_no_writes(&api, &children, &context).await?;
    running.abort();
    Ok(())
}

/// Creates the kind, and waits until it is served.
async fn define(client: &Client, api: &Api<DynamicObject>) -> Result<()> {
    let definitions = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
    ));
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &definitions);
    definitions.create(&PostParams::default(), &serde_json::from_value(definition())?).await?;
    until("gardens are served", async || Ok(api.list(&Default::default()).await.is_ok())).await
}

async fn is_planted(api: &Api<DynamicObject>, children: &Api<ConfigMap>, plant: &str) -> Result<bool> {
    let child = children.get_opt("front").await?.and_then(|child| child.data).unwrap_or_default();
    let status = api.get("front").await?.data["status"].clone();
    Ok(child.get("plant").is_some_and(|found| found == plant) && status["plant"] == plant)
}

/// Checks that many reconciles cause no write.
async fn check_no_writes(
    api: &Api<DynamicObject>,
    children: &Api<ConfigMap>,
    context: &Gardener,
) -> Result<()> {
    // A reconcile in progress may have begun before the last change.
    let reconciles = || context.reconciles.load(Ordering::Relaxed);
    let settled = reconciles() + 2;
    until("a reconcile has finished", async || Ok(reconciles() >= settled)).await?;
    let versions = async || -> Result<_> {
        let (garden, child) = (api.get("front").await?, children.get("front").await?);
        Ok((garden.meta().resource_version.clone(), child.meta().resource_version.clone()))
    };
    let (before, until_reconcile) = (versions().await?, reconciles() + RECONCILES);
    until("the controller has reconciled often enough", async || Ok(reconciles() >= until_reconcile)).await?;
    assert_eq!(versions().await?, before, "{RECONCILES} reconciles without a change wrote an object");
    Ok(())
}

async fn until(description: &str, predicate: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let begun = tokio::time::Instant::now();
    while !predicate().await? {
        if begun.elapsed() > PATIENCE {
            bail!("timed out after {PATIENCE:?} waiting until {description}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
