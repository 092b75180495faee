//! A kube-rs reflector in this process, and a record of its events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, reflector as reflect, watcher as watch};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch as state_watch;
use tokio::task::JoinHandle;

use crate::InformerReport;
use crate::objects::{InformerState, NAMESPACE, ObjectKind};

/// A running reflector. It is aborted when dropped.
pub(crate) struct ReflectorClient {
    store: Store<ConfigMap>,
    observed: Arc<Mutex<ObservedEvents>>,
    awake: state_watch::Sender<bool>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct ObservedEvents {
    newest: BTreeMap<String, u64>,
    /// Every resource version that was seen.
    versions: BTreeSet<u64>,
    back: u64,
    lists: u64,
    events: u64,
    errors: u64,
}

impl ReflectorClient {
    pub(crate) fn start(client: Client, config: watcher::Config) -> ReflectorClient {
        let (store, writer) = reflector::store();
        let (observed, (awake, mut state_watch)) =
            (Arc::<Mutex<ObservedEvents>>::default(), state_watch::channel(true));
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let mut events = Box::pin(reflect(writer, watch(api, config).default_backoff()));
        let observer = observed.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                observer.lock().unwrap().record_event(&event);
                // While it is asleep, it reads nothing from its connection.
                let _ = state_watch.wait_for(|awake| *awake).await;
            }
        });
        ReflectorClient { store, observed, awake, task }
    }

    pub(crate) fn sleep(&self) {
        self.awake.send_replace(false);
    }

    pub(crate) fn wake(&self) {
        self.awake.send_replace(true);
    }

    /// Returns the versions that were acknowledged to a writer and that a client which never listed again has not seen.
    pub(crate) fn missed(&self, acknowledged: &BTreeSet<u64>) -> Vec<u64> {
        acknowledged.difference(&self.observed.lock().unwrap().versions).copied().collect()
    }

    pub(crate) fn report(&self) -> InformerReport {
        let found = self.store.state().into_iter().map(|map| {
            let value = map.data.as_ref().and_then(|data| data.get("value")).cloned();
            ((ObjectKind::ConfigMap, map.name_any()), (version(&map), value.unwrap_or_default()))
        });
        let state: InformerState = found.collect();
        let observed = self.observed.lock().unwrap();
        let counters = format!("{} events, {} errors", observed.events, observed.errors);
        InformerReport { state, back: observed.back, lists: observed.lists, counters }
    }
}

impl Drop for ReflectorClient {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ObservedEvents {
    fn record_event(&mut self, event: &watcher::Result<Event<ConfigMap>>) {
        match event {
            Ok(Event::Init) => self.lists += 1,
            Ok(Event::InitDone) => {}
            Ok(Event::InitApply(map) | Event::Apply(map) | Event::Delete(map)) => self.record(map),
            // The server is unreachable, or the version was compacted: the watcher recovers by itself.
            Err(_) => self.errors += 1,
        }
    }

    fn record(&mut self, map: &ConfigMap) {
        self.events += 1;
        let version = version(map);
        self.versions.insert(version);
        let newest = self.newest.entry(map.name_any()).or_default();
        self.back += u64::from(version < *newest);
        *newest = version.max(*newest);
    }
}

fn version(map: &ConfigMap) -> u64 {
    map.resource_version().and_then(|text| text.parse().ok()).unwrap_or_default()
}
