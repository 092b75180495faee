//! PhysicalCluster objects and their Secrets, as `holon join`, `leave` and `dev` write and read them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use api::cluster::Path;
use api::names::{FORGET, GROUP, TRUE, VERSION};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use controller::kind::ResourceKind;
use controller::remote::{ObjectPath, Patch, Remote};
use serde_json::{Value, json};

use crate::clients::admin::AdminClient;
use crate::state_key;

/// The namespace of the Secret.
const NAMESPACE: &str = "kube-system";
/// Keys of the Secret: the kubeconfig of the physical cluster, and the key that encrypts the state of a syncer there.
const KUBECONFIG: &str = "kubeconfig";
const STATE_KEY: &str = "state-key";
/// The field manager.
const MANAGER: &str = "holon-join";

#[derive(Args)]
pub(crate) struct PhysicalClusterLocation {
    /// The data directory of the server
    #[arg(long, default_value = ".holon")]
    pub(crate) data_dir: PathBuf,
    /// The logical cluster in which the physical cluster is registered; it and all logical clusters below can use it
    #[arg(long = "in", value_name = "PATH", default_value = "root")]
    pub(crate) home: Path,
}

impl PhysicalClusterLocation {
    pub(crate) fn physical_clusters(&self) -> String {
        format!("/clusters/{}/apis/{GROUP}/{VERSION}/physicalclusters", self.home)
    }
}

/// Marks a physical cluster as leaving without deletion of its objects. The fleet controller writes the status
/// meanwhile, so this is a patch: an update would conflict.
pub(crate) async fn forget(client: &AdminClient, path: &str) -> Result<Value> {
    let change = json!({ "metadata": { "annotations": { FORGET: TRUE } } });
    client.patch(path, &change).await
}

/// Registers a physical cluster that the server connects to, with its kubeconfig.
pub(crate) async fn register_push(
    home: &Remote,
    name: &str,
    kubeconfig: &str,
    labels: &[(String, String)],
) -> Result<()> {
    // The Secret is written twice: first without an owner, so that it exists when the server reads the object, then
    // with the object as its owner, so that it is deleted with that.
    write_secret(home, name, (KUBECONFIG, kubeconfig), None)
        .await
        .context("cannot write the Secret with the kubeconfig")?;
    let reference = json!({ "namespace": NAMESPACE, "name": secret_name(name) });
    let applied =
        apply_physical_cluster(home, name, &json!({ "push": { "secretRef": reference } }), labels).await?;
    write_secret(home, name, (KUBECONFIG, kubeconfig), Some(&applied))
        .await
        .context("cannot write the Secret with the kubeconfig")
}

/// Returns the name of the Secret of a physical cluster.
fn secret_name(name: &str) -> String {
    format!("physical-cluster-{name}")
}

/// Writes a key of the Secret of a physical cluster. The PhysicalCluster owns the Secret.
async fn write_secret(
    home: &Remote,
    name: &str,
    (key, text): (&str, &str),
    object: Option<&Value>,
) -> Result<()> {
    let (kind, secret) = (ResourceKind::new("", "v1", "secrets", "Secret", true), secret_name(name));
    let owner = |object: &Value| {
        json!([{
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name, "uid": object["metadata"]["uid"],
        }])
    };
    let desired = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": secret, "ownerReferences": object.map(owner).unwrap_or(json!([])) },
        "data": { key: STANDARD.encode(text) },
    });
    let apply = Patch::Apply { manager: MANAGER };
    home.patch(ObjectPath::new(&kind, NAMESPACE, &secret), apply, &desired).await?;
    Ok(())
}

/// Returns the key that encrypts the state of a pull syncer. Every manifest has the same one, because with another one
/// the syncer could not read its state.
pub(crate) async fn state_key(home: &Remote, name: &str, object: &Value) -> Result<String> {
    let kind = ResourceKind::new("", "v1", "secrets", "Secret", true);
    let found = home.get(ObjectPath::new(&kind, NAMESPACE, &secret_name(name))).await?;
    let found = found.as_ref().and_then(|secret| STANDARD.decode(secret["data"][STATE_KEY].as_str()?).ok());
    let key = match found.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(key) => key,
        None => state_key::generate(),
    };
    write_secret(home, name, (STATE_KEY, &key), Some(object))
        .await
        .context("cannot write the Secret with the key of its state")?;
    Ok(key)
}

pub(crate) async fn apply_physical_cluster(
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
    let kind = ResourceKind::new(GROUP, VERSION, "physicalclusters", "PhysicalCluster", false);
    let applied = home.patch(ObjectPath::new(&kind, "", name), apply, &object).await;
    applied.with_context(|| format!("cannot create the physical cluster {name}"))
}

/// Returns the condition Ready of a physical cluster.
pub(crate) fn ready_condition(object: &Value) -> Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == "Ready").cloned().unwrap_or_default()
}
