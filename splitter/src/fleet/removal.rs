//! Deletes the objects that were sent to a physical cluster that is being removed.
//!
//! ```text
//!   placed objects are deleted in the mailbox ─► the syncer deletes them downstream ─► definitions, then namespaces ─► the mailbox
//! ```
//!
//! The syncer only deletes objects that are being deleted in the mailbox, so this is the path of every other deletion.
//! A physical cluster that does not answer keeps its objects, and its PhysicalCluster stays, until it answers or is
//! annotated to be forgotten.

use std::collections::HashSet;

use api::fleet::PhysicalCluster;
use api::meta::is_being_deleted;
use api::names::{ACKNOWLEDGED, PLACED, TRUE, UNINSTALL};
use controller::discovery::{Served, discover};
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use http::Method;
use serde_json::json;

use crate::snapshot::mailbox_objects::locator;

/// Definitions and namespaces are deleted after the objects in them.
const LAST: [(&str, &str); 2] = [("apiextensions.k8s.io", "customresourcedefinitions"), ("", "namespaces")];

/// Deletes all placed objects of the mailbox of a physical cluster, as far as they may be deleted now. Returns how
/// many are left.
pub(super) async fn delete_placed(mailbox: &Remote, physical_cluster: &str) -> Result<usize, CallError> {
    let is_last = |kind: &ResourceKind| LAST.iter().any(|last| *last == (&*kind.group, &*kind.plural));
    let (last, first): (Vec<ResourceKind>, Vec<ResourceKind>) =
        kinds(mailbox).await?.into_iter().partition(is_last);
    let mut left = 0;
    for kind in &first {
        left += delete_placed_of(mailbox, kind, physical_cluster).await?;
    }
    for (group, plural) in LAST {
        let kind = last.iter().find(|kind| (&*kind.group, &*kind.plural) == (group, plural));
        if let Some(kind) = kind.filter(|_| left == 0) {
            left += delete_placed_of(mailbox, kind, physical_cluster).await?;
        }
    }
    Ok(left)
}

/// Deletes the placed objects of a kind. Returns how many are left.
async fn delete_placed_of(
    mailbox: &Remote,
    kind: &ResourceKind,
    physical_cluster: &str,
) -> Result<usize, CallError> {
    let path = format!("{}?labelSelector={PLACED}%3D{TRUE}", kind.path(""));
    let placed = mailbox.read(&path).await?;
    let placed = placed["items"].as_array().map_or(&[][..], Vec::as_slice);
    for object in placed.iter().filter(|object| !is_being_deleted(object)) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let place = ObjectPath::new(kind, text("namespace"), text("name"));
        mailbox.delete(place, text("uid")).await?;
        tracing::info!(
            kind = %kind,
            object = %format_args!("{}/{}", text("namespace"), text("name")),
            logical_cluster = locator(object).map(|locator| locator.logical_cluster),
            revision = text("resourceVersion"),
            from = physical_cluster,
            reason = "the physical cluster is being removed",
            "deleted from the mailbox"
        );
    }
    Ok(placed.len())
}

/// The kinds that can be listed and deleted, each in one version.
async fn kinds(mailbox: &Remote) -> Result<Vec<ResourceKind>, CallError> {
    let served = discover(mailbox).await?;
    let mut seen = HashSet::new();
    let first = |served: &Served| seen.insert((served.kind.group.clone(), served.kind.plural.clone()));
    let found = served.into_iter().filter(|served| served.can(&["list", "delete"])).filter(first);
    Ok(found.map(|served| served.kind).collect())
}

/// The state of the request that a syncer uninstalls itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UninstallState {
    Requested,
    /// The syncer has read it.
    Acknowledged,
    /// It never reported, so there is no object to annotate.
    NoSyncer,
}

/// Requests the syncer of a mailbox to uninstall itself, with an annotation on its report.
pub(super) async fn request_uninstall(
    mailbox: &Remote,
    kind: &ResourceKind,
    report: Option<&PhysicalCluster>,
) -> Result<UninstallState, CallError> {
    let Some(report) = report else { return Ok(UninstallState::NoSyncer) };
    match report.metadata.annotations.get(UNINSTALL).map(String::as_str) {
        Some(ACKNOWLEDGED) => return Ok(UninstallState::Acknowledged),
        Some(TRUE) => return Ok(UninstallState::Requested),
        _ => {}
    }
    let change = json!({ "metadata": { "annotations": { UNINSTALL: TRUE } } });
    mailbox.patch(ObjectPath::new(kind, "", &report.metadata.name), Patch::Merge, &change).await?;
    Ok(UninstallState::Requested)
}

/// Deletes the mailbox itself.
pub(super) async fn delete_mailbox(owner: &Remote, kind: &ResourceKind, name: &str) -> Result<(), CallError> {
    let path = format!("{}/{name}", kind.path(""));
    let deleted = owner.text(Method::DELETE, &path, "", Vec::new(), controller::remote::PATIENCE).await;
    match deleted {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
