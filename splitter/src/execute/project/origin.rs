//! Whose something in a mailbox is.
//!
//! The namespace it is in says so: the splitter wrote there which namespace of which logical cluster it stands for. A
//! physical cluster shows things only to those who can use it: to the logical cluster its object is in, and to all below
//! that. Whoever has a physical cluster of his own has its mailbox too, and may write there what he likes.

use std::sync::Arc;

use api::cluster::Id;
use api::fleet::Locator;
use api::meta::is_being_deleted;
use api::names::LOCATOR;
use controller::informer::Key;

use super::NAMESPACES;
use crate::snapshot::{Caches, MemberCluster, ObjectRef};

/// Where something comes from, and where it belongs.
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

/// What is not known of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum OriginError {
    /// It may be once something happens to this.
    NotYet(ObjectRef),
    /// It is nobody's.
    NotOurs,
}

/// The namespace of a user that one of a mailbox stands for.
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

/// Whether a namespace is there and stays.
pub(super) fn is_namespace_active(caches: &Caches, cluster: Id, namespace: &str) -> bool {
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: namespace.to_owned() };
    let found = caches.config.namespaces.get(&key);
    found.is_some_and(|found| !is_being_deleted(&found.read(&caches.config.namespaces.kind)))
}
