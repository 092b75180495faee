//! Permissions that are checked again at every send.
//!
//! A record says where an object was placed. It is no permission to run there: a grant is revoked, a cluster is
//! dedicated to another tenant, a pod template requests access to the host. So the mailbox of a physical cluster is
//! written only if all of that allows it now. An object that is not allowed is held: it is neither updated nor deleted
//! there.

use std::collections::{HashMap, HashSet};

use api::cluster::{Id, Path};
use api::fleet::{GroupKind, PodSecurity};
use api::names::VIA;
use controller::kind::ResourceKind;
use serde_json::Value;

use crate::placement::pod_security;
use crate::placement::reservations::ClusterName;
use crate::placement::targets::{Rejection, lacks_kind};
use crate::snapshot::{LabelsAndAnnotations, MemberCluster};

/// Levels of logical clusters that are physical clusters of others. Two or three are common.
const MAILBOXES_MAX: usize = 8;

/// What decides whether objects of a namespace may be sent to a physical cluster.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct SendPermissions {
    /// The path of the logical cluster. None while it is unknown.
    path: Option<Path>,
    /// The physical clusters that the logical cluster may use. A physical cluster that was not reviewed is none of them.
    granted: HashSet<ClusterName>,
    /// The physical clusters that are logical clusters whose own objects could come back here, with their paths.
    circular: HashMap<ClusterName, String>,
    /// The mailboxes that the namespace came through, on this server or another.
    came_through: Vec<String>,
}

fn name_of(member: &MemberCluster) -> ClusterName {
    (member.owner, member.name().to_owned())
}

impl SendPermissions {
    /// `granted` are the physical clusters that the logical cluster may use; `circular` has those whose objects could come
    /// back here.
    pub(crate) fn new(
        path: Option<Path>,
        granted: HashSet<ClusterName>,
        circular: HashMap<ClusterName, String>,
        namespace: &LabelsAndAnnotations,
    ) -> SendPermissions {
        let via = namespace.annotations.get(VIA).map(String::as_str).unwrap_or_default();
        SendPermissions { path, granted, circular, came_through: via.split(',').map(str::to_owned).collect() }
    }

    /// The path of the logical cluster. None while it is unknown.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_ref()
    }

    /// Whether the logical cluster may use a physical cluster.
    pub(crate) fn is_granted(&self, member: &MemberCluster) -> bool {
        self.granted.contains(&name_of(member))
    }

    /// The path of the logical cluster that a physical cluster is, if its objects could come back here.
    pub(crate) fn cycle_through(&self, member: &MemberCluster) -> Option<&str> {
        self.circular.get(&name_of(member)).map(String::as_str)
    }

    /// The path that a physical cluster is dedicated to, if that is another one.
    pub(crate) fn dedicated_elsewhere<'a>(&self, member: &'a MemberCluster) -> Option<&'a str> {
        let to = member.object.spec.dedicated_to.as_deref()?;
        self.path.as_ref().is_none_or(|path| path.as_str() != to).then_some(to)
    }

    /// Why an object may not be sent to a physical cluster, if it may not.
    pub(crate) fn check(
        &self,
        kind: &ResourceKind,
        member: &MemberCluster,
        mailbox: Id,
        desired: &Value,
    ) -> Option<Rejection> {
        if !self.is_granted(member) {
            return Some(Rejection::NotGranted);
        }
        if let Some(path) = self.cycle_through(member) {
            return Some(Rejection::Circular { is: Some(path.to_owned()) });
        }
        let mailbox = mailbox.to_string();
        // More mailboxes than this are taken for an undetected cycle.
        if self.came_through.contains(&mailbox) || self.came_through.len() > MAILBOXES_MAX {
            return Some(Rejection::Circular { is: None });
        }
        if let Some(to) = self.dedicated_elsewhere(member) {
            return Some(Rejection::Dedicated { to: to.to_owned() });
        }
        let kind = GroupKind { group: kind.group.clone(), kind: kind.name.clone() };
        if lacks_kind(&member.object, &kind) {
            return Some(Rejection::KindNotServed(kind));
        }
        let violations = match pod_security::level(&member.object.spec) {
            PodSecurity::Privileged => Vec::new(),
            PodSecurity::Baseline => pod_security::violations(desired),
        };
        (!violations.is_empty()).then_some(Rejection::PodSecurity(violations))
    }
}
