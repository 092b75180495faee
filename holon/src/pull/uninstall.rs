//! Uninstalls a syncer after its physical cluster was removed.

use anyhow::{Context, Result};
use api::names::SYNCER_OF;
use controller::kind::ResourceKind;
use controller::remote::{ObjectPath, Patch, Remote};
use serde_json::json;

use super::manifest::SYNCER_NAMESPACE;

/// The annotation in manifests of an older version.
const OLD_SYNCER_OF: &str = "holon.dev/seat-of";

/// Deletes the namespace with everything in it. The ClusterRoleBinding goes with it through an owner reference: if the
/// syncer deleted the binding first, it would lose the right to delete anything else. A namespace that was not created
/// for this mailbox stays.
pub(super) async fn uninstall(downstream: &Remote, mailbox: &str) -> Result<()> {
    let namespaces = ResourceKind::new("", "v1", "namespaces", "Namespace", false);
    let place = ObjectPath::new(&namespaces, "", SYNCER_NAMESPACE);
    let Some(namespace) = downstream.get(place).await? else { return Ok(()) };
    let annotations = &namespace["metadata"]["annotations"];
    if ![SYNCER_OF, OLD_SYNCER_OF].iter().any(|name| annotations[*name] == mailbox) {
        return Ok(());
    }
    let uid = namespace["metadata"]["uid"].as_str().context("the namespace has no uid")?;
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": SYNCER_NAMESPACE, "uid": uid });
    let bindings = ResourceKind::new(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        false,
    );
    let owned = json!({ "metadata": { "ownerReferences": [owner] } });
    match downstream.patch(ObjectPath::new(&bindings, "", SYNCER_NAMESPACE), Patch::Merge, &owned).await {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        _ => {}
    }
    downstream.delete(place, uid).await?;
    Ok(())
}
