//! Physical clusters as objects of a logical cluster: made, read and marked, by the commands that join and leave.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use api::cluster::Path;
use api::names::{FORGET, GROUP, TRUE, VERSION};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use controller::kind::Kind;
use controller::remote::{Patch, Place, Remote};
use serde_json::{Value, json};

use crate::clients::admin::AdminClient;
use crate::state_key;

/// Where the Secret is.
const NAMESPACE: &str = "kube-system";
/// What is in it: how the server reaches the physical cluster, or what seals the state of the syncer there.
const KUBECONFIG: &str = "kubeconfig";
const STATE_KEY: &str = "state-key";
/// Under this name their fields are owned.
const MANAGER: &str = "holon-join";

#[derive(Args)]
pub(crate) struct Where {
    /// Where the server keeps its data
    #[arg(long, default_value = ".holon")]
    pub(crate) data_dir: PathBuf,
    /// The logical cluster it is for, with all that are below
    #[arg(long = "in", value_name = "PATH", default_value = "root")]
    pub(crate) home: Path,
}

impl Where {
    pub(crate) fn physical_clusters(&self) -> String {
        format!("/clusters/{}/apis/{GROUP}/{VERSION}/physicalclusters", self.home)
    }
}

/// Marks a physical cluster so that it leaves without being emptied. The fleet writes its status meanwhile, so this is a
/// patch and not a replacement, which would conflict.
pub(crate) async fn forget(client: &AdminClient, path: &str) -> Result<Value> {
    let change = json!({ "metadata": { "annotations": { FORGET: TRUE } } });
    client.patch(path, &change).await
}

/// Makes a physical cluster known in a logical cluster, with the kubeconfig it is reached by.
pub(crate) async fn known(
    home: &Remote,
    name: &str,
    kubeconfig: &str,
    labels: &[(String, String)],
) -> Result<()> {
    // First, so that it is there when the server looks for it; and then as its object's, so that it goes with that.
    keep(home, name, (KUBECONFIG, kubeconfig), None).await.context("cannot keep the kubeconfig")?;
    let reference = json!({ "namespace": NAMESPACE, "name": secret(name) });
    let made = make(home, name, &json!({ "push": { "secretRef": reference } }), labels).await?;
    keep(home, name, (KUBECONFIG, kubeconfig), Some(&made)).await.context("cannot keep the kubeconfig")
}

/// The Secret beside the object of a physical cluster.
fn secret(name: &str) -> String {
    format!("physical-cluster-{name}")
}

/// Keeps something in the Secret of a physical cluster, which goes with its object.
async fn keep(home: &Remote, name: &str, (key, text): (&str, &str), object: Option<&Value>) -> Result<()> {
    let (kind, secret) = (Kind::new("", "v1", "secrets", "Secret", true), secret(name));
    let owner = |object: &Value| {
        json!([{
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name, "uid": object["metadata"]["uid"],
        }])
    };
    let wanted = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": secret, "ownerReferences": object.map(owner).unwrap_or(json!([])) },
        "data": { key: STANDARD.encode(text) },
    });
    let apply = Patch::Apply { manager: MANAGER };
    home.patch(Place::new(&kind, NAMESPACE, &secret), apply, &wanted).await?;
    Ok(())
}

/// What seals the state of a syncer that dials in: the same whenever its manifest is printed, because with another one it
/// could not read what it has.
pub(crate) async fn state_key(home: &Remote, name: &str, object: &Value) -> Result<String> {
    let kind = Kind::new("", "v1", "secrets", "Secret", true);
    let found = home.get(Place::new(&kind, NAMESPACE, &secret(name))).await?;
    let found = found.as_ref().and_then(|secret| STANDARD.decode(secret["data"][STATE_KEY].as_str()?).ok());
    let key = match found.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(key) => key,
        None => state_key::make(),
    };
    keep(home, name, (STATE_KEY, &key), Some(object)).await.context("cannot keep the key of its state")?;
    Ok(key)
}

pub(crate) async fn make(
    home: &Remote,
    name: &str,
    connection: &Value,
    labels: &[(String, String)],
) -> Result<Value> {
    let object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "PhysicalCluster",
        "metadata": { "name": name, "labels": labels.iter().cloned().collect::<BTreeMap<_, _>>() },
        "spec": { "connection": connection },
    });
    let apply = Patch::Apply { manager: MANAGER };
    let kind = Kind::new(GROUP, VERSION, "physicalclusters", "PhysicalCluster", false);
    let made = home.patch(Place::new(&kind, "", name), apply, &object).await;
    made.with_context(|| format!("cannot make the physical cluster {name}"))
}

/// Whether a physical cluster is there, as a condition.
pub(crate) fn ready(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default()
}
