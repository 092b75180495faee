//! A record of all events of pods on several stand-ins, in one order.
//!
//! Each stand-in has a history of its own, and events of several watches arrive in no common order: of two clusters
//! that were never down at the same time, the second may be reported down before the first is reported up again. So the
//! stores of this witness commit one at a time, and each commit is recorded before the next one begins. A controller
//! that acts on what it read writes later still, so causes are recorded before their effects.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

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
pub struct Witness(Arc<Seen>);

#[derive(Debug, Default)]
struct Seen {
    turn: tokio::sync::Mutex<()>,
    sights: Mutex<Vec<Sight>>,
}

/// The state of a pod after a commit; without `pod` it was deleted.
#[derive(Clone, Debug)]
pub struct Sight {
    pub cluster: String,
    pub name: String,
    pub pod: Option<Value>,
}

impl Sight {
    /// Returns whether the pod serves: it is ready and not being deleted.
    pub fn is_ready(&self) -> bool {
        let serves = |pod: &Value| {
            condition(pod, "Ready")["status"] == "True" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.pod.as_ref().is_some_and(serves)
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = match (&self.pod, self.is_ready()) {
            (None, _) => "gone",
            (Some(_), true) => "ready",
            (Some(_), false) => "not ready",
        };
        write!(f, "{} of {} is {is}", self.name, self.cluster)
    }
}

impl Witness {
    /// Returns a store for the stand-in of this name.
    pub fn store(&self, cluster: &str) -> Arc<dyn Store> {
        Arc::new(Watched { cluster: cluster.to_owned(), inner: Memory::new(), seen: self.0.clone() })
    }

    /// Returns the recorded states in the order of their commits.
    pub fn sights(&self) -> Vec<Sight> {
        self.0.sights.lock().unwrap().clone()
    }

    /// Returns how many pods existed after each commit, whatever their state.
    pub fn there(&self) -> Vec<(Sight, usize)> {
        self.counted(|sight| sight.pod.is_some())
    }

    /// Returns how many pods were ready after each commit.
    pub fn ready(&self) -> Vec<(Sight, usize)> {
        self.counted(Sight::is_ready)
    }

    fn counted(&self, counts: fn(&Sight) -> bool) -> Vec<(Sight, usize)> {
        let mut counted: BTreeMap<(String, String), bool> = BTreeMap::new();
        let count = |sight: Sight| {
            counted.insert((sight.cluster.clone(), sight.name.clone()), counts(&sight));
            let all = counted.values().filter(|counts| **counts).count();
            (sight, all)
        };
        self.sights().into_iter().map(count).collect()
    }
}

#[derive(Debug)]
struct Watched {
    cluster: String,
    inner: Memory,
    seen: Arc<Seen>,
}

impl Watched {
    fn note(&self, event: &Event) {
        let Some(place) = ObjectKey::of(&event.key) else { return };
        if !place.collection.group.is_empty() || place.collection.plural != "pods" {
            return;
        }
        let pod = event.current.as_ref().map(|entry| stored::tree(entry).expect("the server wrote it"));
        let sight = Sight { cluster: self.cluster.clone(), name: place.name.to_owned(), pod };
        self.seen.sights.lock().unwrap().push(sight);
    }
}

impl Store for Watched {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        self.inner.get(key)
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        self.inner.list(range, page)
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            let _turn = self.seen.turn.lock().await;
            // Memory commits without waiting, so a caller that gives up does so either before this line or after it.
            let done = self.inner.commit(key, expect, change).await;
            done.iter().for_each(|event| self.note(event));
            done
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        self.inner.watch(range, after)
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.inner.compact(through)
    }
}
