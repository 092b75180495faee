//! Taking away what was applied for a syncer, when its physical cluster has left.

use anyhow::{Context, Result};
use api::names::SEAT_OF;
use controller::kind::Kind;
use controller::remote::{Patch, Place, Remote};
use serde_json::json;

use super::manifest::HERE;

/// Deletes the namespace, and with it everything in it; and the right to do so afterwards, which goes with the namespace,
/// because whoever gives that up first cannot delete anything any more. What is not marked as made for this mailbox stays.
pub(super) async fn depart(below: &Remote, mailbox: &str) -> Result<()> {
    let namespaces = Kind::new("", "v1", "namespaces", "Namespace", false);
    let place = Place::new(&namespaces, "", HERE);
    let Some(namespace) = below.get(place).await? else { return Ok(()) };
    if namespace["metadata"]["annotations"][SEAT_OF] != mailbox {
        return Ok(());
    }
    let uid = namespace["metadata"]["uid"].as_str().context("a namespace without a uid")?;
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": HERE, "uid": uid });
    let bindings =
        Kind::new("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false);
    let owned = json!({ "metadata": { "ownerReferences": [owner] } });
    match below.patch(Place::new(&bindings, "", HERE), Patch::Merge, &owned).await {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => {}
    }
    below.delete(place, uid).await?;
    Ok(())
}
