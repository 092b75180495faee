//! Taking away what was sent to a physical cluster that leaves.
//!
//! ```text
//!   everything placed is deleted in the mailbox ─► the syncer deletes it below ─► definitions, then namespaces ─► the mailbox
//! ```
//!
//! Nothing is deleted below but what is marked for deletion in the mailbox, so this is the same path every other deletion
//! takes. A physical cluster that does not answer keeps what it has, and its PhysicalCluster stays, until it answers or
//! somebody says that it is to be forgotten.

use std::collections::HashSet;

use api::fleet::PhysicalCluster;
use api::meta::is_being_deleted;
use api::names::{DISMISSED, HEARD, PLACED, TRUE};
use controller::discovery::{Served, discover};
use controller::kind::Kind;
use controller::remote::{CallError, Patch, Place, Remote};
use http::Method;
use serde_json::json;

/// Kinds that hold others go after them.
const LAST: [(&str, &str); 2] = [("apiextensions.k8s.io", "customresourcedefinitions"), ("", "namespaces")];

/// Deletes everything that is placed in a mailbox, as far as it may go now. How much is still there.
pub(super) async fn delete_placed(mailbox: &Remote) -> Result<usize, CallError> {
    let is_last = |kind: &Kind| LAST.iter().any(|last| *last == (&*kind.group, &*kind.plural));
    let (last, first): (Vec<Kind>, Vec<Kind>) = kinds(mailbox).await?.into_iter().partition(is_last);
    let mut left = 0;
    for kind in &first {
        left += delete_placed_of(mailbox, kind).await?;
    }
    for (group, plural) in LAST {
        let kind = last.iter().find(|kind| (&*kind.group, &*kind.plural) == (group, plural));
        if let Some(kind) = kind.filter(|_| left == 0) {
            left += delete_placed_of(mailbox, kind).await?;
        }
    }
    Ok(left)
}

/// Deletes what is placed of a kind. How much is still there.
async fn delete_placed_of(mailbox: &Remote, kind: &Kind) -> Result<usize, CallError> {
    let path = format!("{}?labelSelector={PLACED}%3D{TRUE}", kind.path(""));
    let placed = mailbox.read(&path).await?;
    let placed = placed["items"].as_array().map_or(&[][..], Vec::as_slice);
    for object in placed.iter().filter(|object| !is_being_deleted(object)) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let place = Place::new(kind, text("namespace"), text("name"));
        mailbox.delete(place, text("uid")).await?;
        tracing::info!(
            kind = %kind,
            object = %format_args!("{}/{}", text("namespace"), text("name")),
            revision = text("resourceVersion"),
            reason = "the physical cluster is being removed",
            "deleted from the mailbox"
        );
    }
    Ok(placed.len())
}

/// What can be listed and deleted there, each in one version.
async fn kinds(mailbox: &Remote) -> Result<Vec<Kind>, CallError> {
    let served = discover(mailbox).await?;
    let mut seen = HashSet::new();
    let first = |served: &Served| seen.insert((served.kind.group.clone(), served.kind.plural.clone()));
    let found = served.into_iter().filter(|served| served.can(&["list", "delete"])).filter(first);
    Ok(found.map(|served| served.kind).collect())
}

/// What came of telling a syncer that it may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dismissal {
    Requested,
    /// It has heard that.
    Acknowledged,
    /// It never reported, so there is nowhere to say it.
    NoSyncer,
}

/// Tells the syncer of a mailbox, by its report, that nothing is left for it to do.
pub(super) async fn dismiss(
    mailbox: &Remote,
    kind: &Kind,
    report: Option<&PhysicalCluster>,
) -> Result<Dismissal, CallError> {
    let Some(report) = report else { return Ok(Dismissal::NoSyncer) };
    match report.metadata.annotations.get(DISMISSED).map(String::as_str) {
        Some(HEARD) => return Ok(Dismissal::Acknowledged),
        Some(TRUE) => return Ok(Dismissal::Requested),
        _ => {}
    }
    let change = json!({ "metadata": { "annotations": { DISMISSED: TRUE } } });
    mailbox.patch(Place::new(kind, "", &report.metadata.name), Patch::Merge, &change).await?;
    Ok(Dismissal::Requested)
}

/// Deletes the mailbox itself.
pub(super) async fn delete_mailbox(owner: &Remote, kind: &Kind, name: &str) -> Result<(), CallError> {
    let path = format!("{}/{name}", kind.path(""));
    let deleted = owner.text(Method::DELETE, &path, "", Vec::new(), controller::remote::PATIENCE).await;
    match deleted {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
