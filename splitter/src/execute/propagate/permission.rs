//! Permissions that are checked again at every send.
//!
//! A record says where an object was placed. It is no permission to run there: a grant is revoked, a cluster is
//! dedicated to another tenant, a pod template requests access to the host. So the mailbox of a physical cluster is
//! written only if all of that allows it now. An object that is not allowed is held: it is neither updated nor deleted
//! there.

use api::cluster::Id;
use api::fleet::{GroupKind, PodSecurity};
use api::names::VIA;
use controller::remote::CallError;
use serde_json::Value;

use crate::controller::Splitter;
use crate::placement::grants;
use crate::placement::pod_security;
use crate::placement::targets::{Rejection, lacks_kind};
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::snapshot::{ObjectRef, WatchedKind};

/// Why an object may not be sent to a physical cluster, if it may not.
pub(super) async fn check(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    mailbox_object: &MailboxObject,
    desired: &Value,
) -> Result<Option<Rejection>, CallError> {
    let members = std::slice::from_ref(&mailbox_object.member);
    if !grants::refused(splitter, subject.cluster(), members).await?.is_empty() {
        return Ok(Some(Rejection::NotGranted));
    }
    if let Some(path) = splitter.caches.cycle_through(&mailbox_object.member) {
        return Ok(Some(Rejection::Circular { is: Some(path) }));
    }
    if came_through(splitter, subject, mailbox_object.mailbox) {
        return Ok(Some(Rejection::Circular { is: None }));
    }
    let cluster = &mailbox_object.member.object;
    let path = splitter.caches.clusters().path(subject.cluster());
    let is_other = |to: &&String| path.as_ref().is_none_or(|path| path.as_str() != to.as_str());
    if let Some(to) = cluster.spec.dedicated_to.as_ref().filter(is_other) {
        return Ok(Some(Rejection::Dedicated { to: to.clone() }));
    }
    let kind = GroupKind { group: watched.kind.group.clone(), kind: watched.kind.name.clone() };
    if lacks_kind(cluster, &kind) {
        return Ok(Some(Rejection::KindNotServed(kind)));
    }
    let violations = match pod_security::level(&cluster.spec) {
        PodSecurity::Privileged => Vec::new(),
        PodSecurity::Baseline => pod_security::violations(desired),
    };
    Ok((!violations.is_empty()).then_some(Rejection::PodSecurity(violations)))
}

/// Whether the namespace of an object was itself sent through a mailbox, by this server or another. More than
/// [`MAILBOXES_MAX`] mailboxes are taken for an undetected cycle.
fn came_through(splitter: &Splitter, subject: &ObjectRef, mailbox: Id) -> bool {
    let namespace = splitter.caches.namespace(subject.cluster(), &subject.key.namespace);
    let via = namespace.annotations.get(VIA).map(String::as_str).unwrap_or_default();
    let mailbox = mailbox.to_string();
    via.split(',').any(|passed| passed == mailbox) || via.split(',').count() > MAILBOXES_MAX
}

/// Levels of logical clusters that are physical clusters of others. Two or three are common.
const MAILBOXES_MAX: usize = 8;
