//! A record of all events of pods on several stand-ins, in one order.
//!
//! Each stand-in has a history of its own, and events of several watches arrive in no common order: of two clusters
//! that were never down at the same time, the second may be reported down before the first is reported up again. So the
//! stores of this witness commit one at a time, and each commit is recorded before the next one begins. A controller
//! that acts on what it read writes later still, so causes are recorded before their effects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use api::meta::is_being_deleted;
use apiserver::keys::ObjectKey;
use apiserver::objects::stored;
use serde_json::Value;
use storage::memory::Memory;
use storage::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
    Store, Watch,
};

use crate::client::condition;

/// Records every commit to the stores that it hands out.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<WitnessLog>);

#[derive(Debug, Default)]
struct WitnessLog {
    commit_turn: tokio::sync::Mutex<()>,
    pod_states: Mutex<Vec<PodState>>,
}

/// The state of a pod after a commit; without `pod` it was deleted.
#[derive(Clone, Debug)]
pub struct PodState {
    pub cluster: String,
    pub name: String,
    pub pod: Option<Value>,
}

impl PodState {
    /// Returns whether the pod is ready and not being deleted.
    pub fn is_ready(&self) -> bool {
        let is_serving = |pod: &Value| condition(pod, "Ready")["status"] == "True" && !is_being_deleted(pod);
        self.pod.as_ref().is_some_and(is_serving)
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let readiness = match (&self.pod, self.is_ready()) {
            (None, _) => "deleted",
            (Some(_), true) => "ready",
            (Some(_), false) => "not ready",
        };
        write!(f, "{} of {} is {readiness}", self.name, self.cluster)
    }
}

impl Witness {
    /// Returns a store for the stand-in of this name.
    pub fn store(&self, cluster: &str) -> Arc<dyn Store> {
        Arc::new(RecordingStore { cluster: cluster.to_owned(), inner: Memory::new(), log: self.0.clone() })
    }

    /// Returns the recorded states in the order of their commits.
    pub fn pod_states(&self) -> Vec<PodState> {
        self.0.pod_states.lock().unwrap().clone()
    }

    /// Returns how many pods existed after each commit, whatever their state.
    pub fn existing(&self) -> Vec<(PodState, usize)> {
        self.counts_after_commits(|state| state.pod.is_some())
    }

    /// Returns how many pods were ready after each commit.
    pub fn ready(&self) -> Vec<(PodState, usize)> {
        self.counts_after_commits(PodState::is_ready)
    }

    fn counts_after_commits(&self, is_counted: fn(&PodState) -> bool) -> Vec<(PodState, usize)> {
        let mut by_pod: BTreeMap<(String, String), bool> = BTreeMap::new();
        let count = |state: PodState| {
            by_pod.insert((state.cluster.clone(), state.name.clone()), is_counted(&state));
            let all = by_pod.values().filter(|is_counted| **is_counted).count();
            (state, all)
        };
        self.pod_states().into_iter().map(count).collect()
    }
}

#[derive(Debug)]
struct RecordingStore {
    cluster: String,
    inner: Memory,
    log: Arc<WitnessLog>,
}

impl RecordingStore {
    fn record(&self, event: &Event) {
        let Some(object_key) = ObjectKey::of(&event.key) else { return };
        if !object_key.collection.group.is_empty() || object_key.collection.plural != "pods" {
            return;
        }
        let pod =
            event.current.as_ref().map(|entry| stored::tree(entry).expect("the server wrote a valid entry"));
        let state = PodState { cluster: self.cluster.clone(), name: object_key.name.to_owned(), pod };
        self.log.pod_states.lock().unwrap().push(state);
    }
}

impl Store for RecordingStore {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        self.inner.get(key)
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        self.inner.list(range, page)
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            let _commit_turn = self.log.commit_turn.lock().await;
            // Memory commits without waiting, so a caller that gives up does so either before this line or after it.
            let result = self.inner.commit(key, expect, change).await;
            result.iter().for_each(|event| self.record(event));
            result
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        self.inner.watch(range, after)
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.inner.compact(through)
    }
}
