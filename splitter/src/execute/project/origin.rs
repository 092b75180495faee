//! The user's namespace that an object in a mailbox belongs to.
//!
//! The splitter annotates every namespace of a mailbox with the user's namespace it stands for. Objects are projected
//! only to logical clusters that can use the physical cluster: the one its PhysicalCluster object is in, and those
//! below it. The owner of a physical cluster can write into its mailbox, so the annotation alone grants nothing.

use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Locator;
use api::meta::is_being_deleted;
use api::names::LOCATOR;
use controller::informer::Key;

use super::NAMESPACES;
use crate::snapshot::{Caches, MemberCluster, ObjectRef};

/// The mailbox of an object, and the user's namespace it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) member: Arc<MemberCluster>,
    pub(super) mailbox: Id,
    /// In the mailbox.
    pub(super) namespace_on: String,
    /// The user's.
    pub(super) cluster: Id,
    pub(super) namespace: String,
}

/// Why a source has no user's namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum OriginError {
    /// It may have one after the next event of this object.
    NotYet(ObjectRef),
    /// It does not belong to a user that may use the physical cluster.
    NotOurs,
}

/// The user's namespace that a namespace of a mailbox stands for.
pub(super) fn user_namespace(caches: &Caches, mailbox: Id, namespace: &str) -> Option<(Id, String)> {
    let tables = caches.namespace(mailbox, namespace);
    let locator: Locator = serde_json::from_str(tables.annotations.get(LOCATOR)?).ok()?;
    Some((locator.logical_cluster.parse().ok()?, locator.name))
}

pub(super) fn origin(caches: &Caches, source: &ObjectRef) -> Result<Origin, OriginError> {
    let (mailbox, namespace_on) = (source.cluster(), &source.key.namespace);
    let member = caches.members().by_mailbox(mailbox).ok_or(OriginError::NotOurs)?;
    let Some((cluster, namespace)) = user_namespace(caches, mailbox, namespace_on) else {
        let key = Key { cluster: Some(mailbox), namespace: String::new(), name: namespace_on.clone() };
        return Err(OriginError::NotYet(ObjectRef { kind: NAMESPACES.into(), key }));
    };
    if !caches.clusters().lineage(cluster).contains(&member.owner) {
        return Err(OriginError::NotOurs);
    }
    Ok(Origin { member, mailbox, namespace_on: namespace_on.clone(), cluster, namespace })
}

/// Whether a namespace exists and is not being deleted.
pub(super) fn is_namespace_active(caches: &Caches, cluster: Id, namespace: &str) -> bool {
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: namespace.to_owned() };
    let found = caches.config.namespaces.get(&key);
    found.is_some_and(|found| !is_being_deleted(&found.read(&caches.config.namespaces.kind)))
}
