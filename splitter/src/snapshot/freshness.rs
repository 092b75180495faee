//! Checks that the caches are current before the first decision about an object.
//!
//! Every kind has its own watch, so an object may be observed before its namespace, before a Placement that was
//! applied just before it, or before a physical cluster that has just joined. A decision without those would send the
//! workload to the wrong cluster, and it would have to move as soon as they are observed. So before the first decision
//! about an object the splitter reads them from the server. Later changes arrive as events.
//!
//! Objects that are created together share a check: its result is valid for every reconcile that started before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::cluster::Id;
use controller::informer::{Key, View};
use controller::remote::{CallError, NAMES, ObjectPath};
use serde_json::Value;

use crate::controller::{Splitter, lock};
use crate::snapshot::ObjectRef;

/// The last check of each logical cluster, for as long as a reconcile waits for it.
#[derive(Debug, Default)]
pub(crate) struct FreshnessChecks(Mutex<HashMap<Id, Arc<tokio::sync::Mutex<Option<LastCheck>>>>>);

#[derive(Clone, Copy, Debug)]
struct LastCheck {
    at: Instant,
    is_behind: bool,
}

/// Whether the caches lack something that decides about an object: its namespace, a Placement or a physical cluster.
pub(crate) async fn is_behind(splitter: &Splitter, subject: &ObjectRef) -> Result<bool, CallError> {
    let started = Instant::now();
    if misses_namespace(splitter, subject).await? {
        return Ok(true);
    }
    let cluster = subject.cluster();
    let check = lock(&splitter.freshness.0).entry(cluster).or_default().clone();
    let mut last = check.lock().await;
    let result = match *last {
        Some(last) if last.at > started => Ok(last.is_behind),
        _ => {
            let at = Instant::now();
            let result = misses_any(splitter, cluster).await;
            *last = result.as_ref().ok().map(|is_behind| LastCheck { at, is_behind: *is_behind });
            result
        }
    };
    drop(last);
    let mut checks = lock(&splitter.freshness.0);
    // One reference is in the map, one is this call's.
    if Arc::strong_count(&check) <= 2 {
        checks.remove(&cluster);
    }
    result
}

async fn misses_namespace(splitter: &Splitter, subject: &ObjectRef) -> Result<bool, CallError> {
    let view = &splitter.caches.config.namespaces;
    let name = &subject.key.namespace;
    let here = splitter.caches.server.within(subject.cluster());
    let namespace = here.get(ObjectPath::new(&view.kind, "", name)).await?;
    let key = Key { cluster: subject.key.cluster, namespace: String::new(), name: name.clone() };
    let cached_version = cached_version(view, &key);
    Ok(namespace.is_some_and(|namespace| {
        cached_version.is_none_or(|cached_version| cached_version < version(&namespace))
    }))
}

/// Whether the caches lack a Placement of a logical cluster, or a physical cluster that is visible from it.
async fn misses_any(splitter: &Splitter, cluster: Id) -> Result<bool, CallError> {
    let own = &splitter.caches.config;
    let live = versions(splitter, cluster, &own.placements).await?;
    let keys = own.placements.keys_within(cluster, None).into_iter();
    let cached =
        keys.filter_map(|key| Some((key.name.clone(), cached_version(&own.placements, &key)?))).collect();
    if differs(live, &cached) {
        return Ok(true);
    }
    let owners = splitter.caches.clusters().lineage(cluster);
    for owner in owners {
        let live = versions(splitter, owner, &own.physical).await?;
        if differs(live, &splitter.caches.members().versions(owner)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The resource versions of the objects of a logical cluster, by name.
type Versions = HashMap<String, u64>;

async fn versions(splitter: &Splitter, cluster: Id, view: &View) -> Result<Versions, CallError> {
    let list = splitter.caches.server.within(cluster).read_as(&view.kind.path(""), NAMES).await?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items
        .map(|one| (one["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(one)))
        .collect())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn cached_version(view: &View, key: &Key) -> Option<u64> {
    view.get(key)?.version.parse().ok()
}

fn differs(live: Versions, cached: &Versions) -> bool {
    cached.keys().any(|name| !live.contains_key(name))
        || live.into_iter().any(|(name, live)| cached.get(&name).is_none_or(|cached| *cached < live))
}
