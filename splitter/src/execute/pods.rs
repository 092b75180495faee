//! Pods in mailboxes that change what is known about their workload.

use controller::informer::{CachedObject, Key};
use serde_json::Value;

use crate::context::{Splitter, WorkItem, lock};
use crate::placement::context::table;
use crate::placement::estimate::unschedulable;
use crate::policy::Labels;
use crate::snapshot::mailbox_objects;
use crate::snapshot::placement_index::PlacementEntry;

/// Queues the workload of an unschedulable pod, now and when it has waited long enough. The status of a workload does
/// not say why pods are unavailable.
pub(crate) fn handle_pod(splitter: &Splitter, pod: &CachedObject) {
    let Some(read) = pod.parse::<Value>().filter(|pod| unschedulable(pod).is_some()) else { return };
    enqueue_pod_makers(splitter, pod, &read, |_| true);
}

/// Queues a migrating workload after one of its pods terminated, because it may wait for that.
pub(crate) fn handle_deleted_pod(splitter: &Splitter, pod: &CachedObject) {
    if let Some(read) = pod.parse::<Value>() {
        enqueue_pod_makers(splitter, pod, &read, PlacementEntry::is_moving);
    }
}

/// Queues the workloads of a pod's namespace that create such pods.
fn enqueue_pod_makers(
    splitter: &Splitter,
    pod: &CachedObject,
    read: &Value,
    matches: fn(&PlacementEntry) -> bool,
) {
    let namespaces = &splitter.caches.config.namespaces;
    let key = Key { namespace: String::new(), name: pod.key.namespace.clone(), ..pod.key.clone() };
    let locator =
        namespaces.get(&key).and_then(|found| mailbox_objects::locator(&found.read(&namespaces.kind)));
    let Some(of) = locator else { return };
    let Ok(cluster) = of.logical_cluster.parse() else { return };
    let labels = table(&read["metadata"]["labels"]);
    let has = |own: &Labels| own.iter().all(|(name, value)| labels.get(name) == Some(value));
    let placement_index = lock(&splitter.placement_index);
    let makes = |entry: &PlacementEntry| matches(entry) && entry.pod_labels.as_ref().is_some_and(has);
    let apps = placement_index.within(cluster, &of.name).filter(|(_, entry)| makes(entry));
    apps.for_each(|(app, _)| splitter.queue.add(WorkItem::Object(app.clone())));
}
