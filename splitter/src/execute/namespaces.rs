//! The namespaces in mailboxes that belong to a user's namespace: their labels, and their deletion.
//!
//! A mailbox namespace is created with the first object that is sent to it, and deleted when it is empty and no object
//! has the cluster as target. Deleting a namespace deletes its objects, so nothing may be sent there meanwhile: a
//! sender updates the placement index before it checks for a deletion here, and a deletion is announced here before it
//! checks the placement index.

use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use api::fleet::{Role, Target};
use api::meta::is_being_deleted;
use api::names::TARGETS;
use controller::informer::Key;
use controller::queue::Outcome;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use crate::context::{Splitter, WorkItem, lock};
use crate::execute::dependencies::TargetsByCluster;
use crate::execute::propagate;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::{KindClass, MemberCluster, PlacementMarks, WatchedKind};

/// Requeue delay while a mailbox namespace that is no longer needed still has objects.
const NAMESPACE_REQUEUE: Duration = Duration::from_secs(1);

impl Splitter {
    /// Whether the namespace of a mailbox object is being deleted, so that nothing can be sent to it.
    pub(crate) fn is_namespace_terminating(&self, mailbox_object: &MailboxObject) -> bool {
        let view = &self.caches.config.namespaces;
        let name = (mailbox_object.mailbox, mailbox_object.namespace.clone());
        if lock(&self.terminating.0).contains(&name) {
            return true;
        }
        let key = Key { cluster: Some(mailbox_object.mailbox), namespace: String::new(), name: name.1 };
        let present = view.get(&key).map(|present| present.read(&view.kind));
        present.is_some_and(|present| is_being_deleted(&present))
    }

    /// Queues the objects of a namespace after one of its mailbox namespaces was deleted.
    pub(crate) fn enqueue_namespace(&self, cluster: Id, namespace: &str) {
        let waiting: Vec<_> =
            lock(&self.placement_index).within(cluster, namespace).map(|(it, _)| it.clone()).collect();
        waiting.into_iter().for_each(|subject| self.queue.add(WorkItem::Object(subject)));
    }

    /// The targets of all objects in a namespace.
    fn places(&self, cluster: Id, namespace: &str) -> TargetsByCluster {
        let mut places = TargetsByCluster::new();
        for (_, entry) in lock(&self.placement_index).within(cluster, namespace) {
            for target in &entry.targets {
                let role = places.get(&target.cluster).map_or(target.role, |known: &Target| {
                    if known.role == Role::Steady { Role::Steady } else { target.role }
                });
                let place = Target { cluster: target.cluster.clone(), role, share: None };
                places.insert(target.cluster.clone(), place);
            }
        }
        places
    }
}

/// Writes the targets of a user's namespace into its annotation, and deletes its empty mailbox namespaces.
pub(crate) async fn reconcile(splitter: &Splitter, cluster: Id, name: &str) -> Result<Outcome, CallError> {
    let caches = &splitter.caches;
    let places = splitter.places(cluster, name);
    let targets: Vec<Target> = places.values().cloned().collect();
    let key = Key { cluster: Some(cluster), namespace: String::new(), name: name.to_owned() };
    let kind = &caches.config.namespaces.kind;
    if let Some(own) = caches.config.namespaces.get(&key) {
        let recorded = caches.namespace(cluster, name).annotations.get(TARGETS).cloned();
        let desired = (!targets.is_empty()).then(|| crate::placement::explain::sentence(&targets));
        if recorded != desired {
            let change = json!({ "metadata": { "uid": own.uid, "annotations": { TARGETS: desired } } });
            caches
                .server
                .within(cluster)
                .patch(ObjectPath::new(kind, "", name), Patch::Merge, &change)
                .await?;
        }
        let own = own.read(kind);
        for member in
            splitter.visible_from(cluster).iter().filter(|member| places.contains_key(member.name()))
        {
            if let Some((mailbox, mailbox_namespace)) =
                find_mailbox_namespace(splitter, member, cluster, name)
            {
                propagate::update_namespace_labels(splitter, member, mailbox, &own, &mailbox_namespace)
                    .await?;
            }
        }
    }
    delete_unused(splitter, cluster, name, &places).await
}

/// The mailbox namespace of a user's namespace on a physical cluster, unless it is being deleted.
fn find_mailbox_namespace(
    splitter: &Splitter,
    member: &MemberCluster,
    cluster: Id,
    name: &str,
) -> Option<(Id, Value)> {
    let view = &splitter.caches.config.namespaces;
    let mailbox = member.mailbox()?;
    let namespace = mailbox_objects::namespace_on(member, cluster, name);
    let mailbox_namespace =
        view.get(&Key { cluster: Some(mailbox), namespace: String::new(), name: namespace })?;
    let mailbox_namespace = mailbox_namespace.read(&view.kind);
    let of = mailbox_objects::locator(&mailbox_namespace)?;
    let is_ours = of.logical_cluster == cluster.to_string() && of.name == name;
    (is_ours && !is_being_deleted(&mailbox_namespace)).then_some((mailbox, mailbox_namespace))
}

/// Deletes the mailbox namespaces of a namespace that are empty and not needed by a target.
async fn delete_unused(
    splitter: &Splitter,
    cluster: Id,
    name: &str,
    places: &TargetsByCluster,
) -> Result<Outcome, CallError> {
    let caches = &splitter.caches;
    let members = {
        let clusters = caches.clusters();
        caches.members().all(&clusters)
    };
    let visible = splitter.visible_from(cluster);
    let is_nearest = |member: &MemberCluster| visible.iter().any(|one| one.mailbox() == member.mailbox());
    let is_place = |places: &TargetsByCluster, member: &MemberCluster| {
        places.contains_key(member.name()) && is_nearest(member)
    };
    let own_key = Key { cluster: Some(cluster), namespace: String::new(), name: name.to_owned() };
    let exists = caches.config.namespaces.get(&own_key).is_some();
    let mut is_waiting = false;
    for member in members.iter().filter(|member| !is_place(places, member)) {
        let Some((mailbox, mailbox_namespace)) = find_mailbox_namespace(splitter, member, cluster, name)
        else {
            continue;
        };
        let text = |field: &str| mailbox_namespace["metadata"][field].as_str().unwrap_or_default();
        let namespace = text("name");
        // Projections are deleted with the namespace. While the user's namespace exists, projected claims keep it,
        // because of their data.
        let holds = |watched: &Arc<WatchedKind>| {
            let is_placed =
                |key: &Key| watched.view.get(key).is_some_and(|one| !PlacementMarks::of(&one).is_projected);
            let keys = watched.view.keys_within(mailbox, Some(namespace));
            watched.class != KindClass::Projected && keys.iter().any(|key| exists || is_placed(key))
        };
        if !splitter.is_indexed(cluster, name) || caches.watched_kinds().iter().any(holds) {
            is_waiting = true;
            continue;
        }
        // Deleting the mailbox namespace deletes the data of its claims, so the user's namespace is read from the
        // server: the cache may be stale.
        let own = ObjectPath::new(&caches.config.namespaces.kind, "", name);
        if !exists && caches.server.within(cluster).get(own).await?.is_some() {
            is_waiting = true;
            continue;
        }
        let _emptying = splitter.terminating.begin(mailbox, namespace);
        // An object may have been placed there since.
        if is_place(&splitter.places(cluster, name), member) {
            continue;
        }
        let place = ObjectPath::new(&caches.config.namespaces.kind, "", namespace);
        caches.server.within(mailbox).delete(place, text("uid")).await?;
        tracing::info!(
            object = %own_key,
            logical_cluster = %cluster,
            revision = text("resourceVersion"),
            from = member.name(),
            reason = "the namespace has no objects",
            "deleted the namespace from the mailbox"
        );
    }
    Ok(if is_waiting { Outcome::RequeueAfter(NAMESPACE_REQUEUE) } else { Outcome::Done })
}
