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
use crate::snapshot::{Member, Subject, World};

/// Where something comes from, and where it belongs.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) member: Arc<Member>,
    pub(super) mailbox: Id,
    /// In the mailbox.
    pub(super) namespace_there: String,
    /// The user's.
    pub(super) cluster: Id,
    pub(super) namespace: String,
}

/// What is not known of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Unknown {
    /// It may be once something happens to this.
    Yet(Subject),
    /// It is nobody's.
    Nobodys,
}

/// The namespace of a user that one of a mailbox stands for.
pub(super) fn home(world: &World, mailbox: Id, namespace: &str) -> Option<(Id, String)> {
    let tables = world.namespace(mailbox, namespace);
    let locator: Locator = serde_json::from_str(tables.annotations.get(LOCATOR)?).ok()?;
    Some((locator.logical_cluster.parse().ok()?, locator.name))
}

pub(super) fn origin(world: &World, source: &Subject) -> Result<Origin, Unknown> {
    let (mailbox, namespace_there) = (source.cluster(), &source.key.namespace);
    let member = world.members().by_mailbox(mailbox).ok_or(Unknown::Nobodys)?;
    let Some((cluster, namespace)) = home(world, mailbox, namespace_there) else {
        let key = Key { cluster: Some(mailbox), namespace: String::new(), name: namespace_there.clone() };
        return Err(Unknown::Yet(Subject { kind: NAMESPACES.into(), key }));
    };
    if !world.clusters().lineage(cluster).contains(&member.home) {
        return Err(Unknown::Nobodys);
    }
    Ok(Origin { member, mailbox, namespace_there: namespace_there.clone(), cluster, namespace })
}

/// Whether a namespace is there and stays.
pub(super) fn stays(world: &World, cluster: Id, namespace: &str) -> bool {
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: namespace.to_owned() };
    let found = world.own.namespaces.get(&key);
    found.is_some_and(|found| !is_being_deleted(&found.read(&world.own.namespaces.kind)))
}
