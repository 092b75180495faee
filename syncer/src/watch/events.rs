//! The objects that an event of an informer requeues.

use std::sync::Arc;

use api::names::DOWNSTREAM_UID;
use controller::informer::{CachedObject, News, View};
use controller::kind::ResourceKind;

use crate::mirror::{AnyObject, LED_BY, is_projection};
use crate::state::context::{ObjectId, SyncerContext, claims_of};
use crate::state::kinds::KindName;

/// Handles an event of the mailbox.
pub(super) fn on_mailbox_event(context: &SyncerContext, name: &Arc<KindName>, view: &View, news: News<'_>) {
    match news {
        News::Put { now: current, new } => {
            if new {
                on_mailbox_object_added(context, name, &view.kind, current);
            }
            if name.is_definitions() {
                context.rediscover();
            }
            // It is the first object of its kind, or of a kind that is not watched by label.
            let is_first = view.len() == 1 || (new && name.is_mixed());
            let watched = context.watched(name).and_then(|kind| kind.downstream.clone());
            let is_per_namespace =
                watched.as_ref().is_some_and(|downstream| new && downstream.is_per_namespace());
            if is_per_namespace || (is_first && watched.is_none()) {
                context.kinds_changed.notify_one();
            }
            context.queue.add(ObjectId { kind: name.clone(), key: current.key.clone() });
        }
        News::Gone { last, .. } => context.queue.add(ObjectId { kind: name.clone(), key: last.key.clone() }),
        News::Synced => {
            context.drop_stored(name);
            on_synced(context, name);
            context.kinds_changed.notify_one();
        }
        News::Lost => {}
    }
}

fn on_mailbox_object_added(
    context: &SyncerContext,
    name: &KindName,
    kind: &ResourceKind,
    stored: &CachedObject,
) {
    let object = stored.read(kind);
    if let Some(uid) = AnyObject(&object).annotation(DOWNSTREAM_UID).filter(|_| is_projection(&object)) {
        context.add_namespace(&stored.key.namespace);
        return context.wake(uid);
    }
    if !AnyObject(&object).is_placed() {
        return;
    }
    // The object may have been applied earlier, while its kind could not be listed, and may have created others since.
    if context.add_namespace(&stored.key.namespace) && AnyObject(&object).has_finalizer() {
        context.reread_projected();
    }
    if name.is_stateful_sets() {
        context.wake(&claims_of(&stored.key.namespace));
    }
    let downstream = context.watched(name).and_then(|watched| watched.downstream.as_ref()?.get(&stored.key));
    if let Some(downstream) = downstream {
        context.wake(&downstream.uid);
    }
}

/// Handles an event of the physical cluster.
pub(super) fn on_downstream_event(
    context: &SyncerContext,
    name: &Arc<KindName>,
    view: &View,
    news: News<'_>,
) {
    match news {
        News::Put { now: current, new } => {
            if name.is_namespaces() {
                context.observe_leader(AnyObject(&current.read(&view.kind)).annotation(LED_BY));
            }
            context.queue.add(ObjectId { kind: name.clone(), key: current.key.clone() });
            if new {
                context.wake(&current.uid);
            }
            if new && name.is_namespaces() {
                context.requeue_namespace(&current.key.name);
            }
        }
        News::Gone { last, witnessed } => {
            // A relist may miss the object because another cluster answered it.
            if !witnessed {
                context.recheck_identity();
            }
            context.queue.add(ObjectId { kind: name.clone(), key: last.key.clone() });
        }
        News::Synced => {
            on_synced(context, name);
            context.kinds_changed.notify_one();
        }
        News::Lost if view.forbidden().is_some() => on_forbidden(context, name),
        // The next connection may reach another cluster.
        News::Lost => context.recheck_identity(),
    }
}

/// Handles a forbidden list: each object reports it, and per-namespace informers may still find objects.
fn on_forbidden(context: &SyncerContext, name: &KindName) {
    if let Some(watched) = context.watched(name) {
        context.requeue_kind(&watched);
    }
    context.kinds_changed.notify_one();
}

/// Requeues the objects of a synced kind. If all kinds are synced, also requeues projections whose owner was unknown.
fn on_synced(context: &SyncerContext, name: &KindName) {
    let all_synced = context.is_all_synced();
    for watched in context.watched_kinds() {
        if *watched.name == *name || (all_synced && watched.name.is_projected()) {
            context.requeue_kind(&watched);
        }
    }
}
