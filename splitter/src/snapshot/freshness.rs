//! Whether what is known is what is so.
//!
//! Kinds are followed one by one, so an object may be seen before the namespace it is in, before the Placement that was
//! applied just before it, or before a physical cluster that has just joined. Whoever decides then decides as if they were
//! not there: the app is sent to the wrong place, and has to be moved as soon as the rest is seen. So before something is
//! decided for the first time, the server is asked; after that, whatever changes is a change, and is followed as one.
//!
//! Many objects that come at once are asked for together: an answer counts for everybody who came before the question.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::cluster::Id;
use controller::informer::{Key, View};
use controller::remote::{CallError, NAMES, Place};
use serde_json::Value;

use crate::controller::{Splitter, lock};
use crate::snapshot::ObjectRef;

/// What was last asked about each logical cluster, for as long as somebody wants to know.
#[derive(Debug, Default)]
pub(crate) struct FreshnessChecks(Mutex<HashMap<Id, Arc<tokio::sync::Mutex<Option<LastCheck>>>>>);

#[derive(Clone, Copy, Debug)]
struct LastCheck {
    at: Instant,
    is_behind: bool,
}

/// Whether something that is said about an object has not been seen yet.
pub(crate) async fn is_behind(splitter: &Splitter, subject: &ObjectRef) -> Result<bool, CallError> {
    let came = Instant::now();
    if misses_namespace(splitter, subject).await? {
        return Ok(true);
    }
    let cluster = subject.cluster();
    let question = lock(&splitter.freshness.0).entry(cluster).or_default().clone();
    let mut last = question.lock().await;
    let answer = match *last {
        Some(last) if last.at > came => Ok(last.is_behind),
        _ => {
            let at = Instant::now();
            let answer = misses_any(splitter, cluster).await;
            *last = answer.as_ref().ok().map(|is_behind| LastCheck { at, is_behind: *is_behind });
            answer
        }
    };
    drop(last);
    let mut questions = lock(&splitter.freshness.0);
    // One is in the table, one is ours.
    if Arc::strong_count(&question) <= 2 {
        questions.remove(&cluster);
    }
    answer
}

async fn misses_namespace(splitter: &Splitter, subject: &ObjectRef) -> Result<bool, CallError> {
    let view = &splitter.caches.config.namespaces;
    let name = &subject.key.namespace;
    let here = splitter.caches.server.within(subject.cluster());
    let namespace = here.get(Place::new(&view.kind, "", name)).await?;
    let key = Key { cluster: subject.key.cluster, namespace: String::new(), name: name.clone() };
    let seen = seen(view, &key);
    Ok(namespace.is_some_and(|namespace| seen.is_none_or(|seen| seen < version(&namespace))))
}

/// Whether a Placement of a logical cluster has not been seen, or a physical cluster that can be used from it.
async fn misses_any(splitter: &Splitter, cluster: Id) -> Result<bool, CallError> {
    let own = &splitter.caches.config;
    let said = versions(splitter, cluster, &own.placements).await?;
    let keys = own.placements.keys_within(cluster, None).into_iter();
    let known = keys.filter_map(|key| Some((key.name.clone(), seen(&own.placements, &key)?))).collect();
    if differs(said, &known) {
        return Ok(true);
    }
    let owners = splitter.caches.clusters().lineage(cluster);
    for owner in owners {
        let said = versions(splitter, owner, &own.physical).await?;
        if differs(said, &splitter.caches.members().versions(owner)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The versions there are of the objects of a logical cluster, by name.
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

fn seen(view: &View, key: &Key) -> Option<u64> {
    view.get(key)?.version.parse().ok()
}

fn differs(said: Versions, known: &Versions) -> bool {
    known.keys().any(|name| !said.contains_key(name))
        || said.into_iter().any(|(name, said)| known.get(&name).is_none_or(|known| *known < said))
}
