//! Reads everything that a placement decision needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::fleet::Distribution;
use controller::remote::CallError;
use jiff::Timestamp;
use serde_json::Value;

use crate::context::Splitter;
use crate::execute::{api_access, grants};
use crate::placement::context::{PlacementContext, exclusive};
use crate::placement::degraded::DegradedTargets;
use crate::placement::estimate::CapacityEstimates;
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::snapshot::placement_index::PolicyVersion;
use crate::snapshot::{MemberCluster, ObjectRef, WatchedKind, mailbox_objects, related};

/// Reads everything about a workload from the caches. What they lack is read from the server: reviews of grants, and
/// service accounts that are not cached.
pub(crate) async fn read_workload<'a>(
    splitter: &Splitter,
    watched: &'a WatchedKind,
    subject: &'a ObjectRef,
    object: &'a Value,
    record: Option<Distribution>,
    policies: PolicyVersion,
) -> Result<PlacementContext<'a>, CallError> {
    let caches = &splitter.caches;
    let cluster = subject.cluster();
    let mailbox_objects = mailbox_objects::list_current(caches, watched, subject, object);
    let members = splitter.visible_from(cluster);
    let api_access = api_access::of(splitter, subject, object, &mailbox_objects).await?;
    let namespace = caches.namespace(cluster, &subject.key.namespace);
    // A physical cluster may have joined since the mailbox objects were read.
    let is_other = |member: &&MailboxObject| !members.iter().any(|one| Arc::ptr_eq(one, &member.member));
    let others = mailbox_objects.iter().filter(|mailbox_object| mailbox_object.is_nearest).filter(is_other);
    let others = others.map(|mailbox_object| mailbox_object.member.clone());
    let reviewed: Vec<Arc<MemberCluster>> = members.iter().cloned().chain(others).collect();
    let permissions = grants::send_permissions(splitter, subject, &namespace, &reviewed).await?;
    let context = PlacementContext {
        watched,
        subject,
        object,
        record,
        mailbox_objects,
        members,
        namespace,
        placements: caches.list_own(&caches.config.placements, cluster),
        overrides: caches.list_own(&caches.config.overrides, cluster),
        policies,
        inherited_placement: caches.clusters().placement(cluster).map(str::to_owned),
        permissions,
        scaled_to: related::scaled_to(caches, subject, object),
        claims: related::claims(caches, subject, object),
        api_access,
        terminating_pods: BTreeMap::new(),
        degraded: DegradedTargets::default(),
        templates: BTreeMap::new(),
        estimates: CapacityEstimates::default(),
        exclusive: exclusive(caches, subject, object),
        readiness: BTreeMap::new(),
        now: Timestamp::now(),
    };
    Ok(context.complete(caches))
}
