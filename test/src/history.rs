//! A history of all events of one kind in all logical clusters, in the order of their revisions.
//!
//! A test that samples misses the moment at which something was wrong. This history misses nothing: it is one watch
//! over all logical clusters that begins before the story, and the server has one order of revisions. So a test can
//! check an invariant over all mailboxes at every revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use api::cluster::Id;
use controller::informer::{News, Scope, View, follow};
use controller::kind::Kind;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::client::until;
use crate::fleet::Fleet;

/// An object as of one revision; without `object` it was deleted.
#[derive(Clone, Debug)]
pub struct Entry {
    pub revision: u64,
    pub cluster: Id,
    pub namespace: String,
    pub name: String,
    pub object: Option<Value>,
    /// Whether the object had this state already when the history began.
    pub is_old: bool,
}

/// A history that records until it is dropped.
#[derive(Debug)]
pub struct History {
    entries: Arc<Mutex<Vec<Entry>>>,
    /// Why the history is incomplete: the watch was lost meanwhile.
    gap: Arc<Mutex<Option<&'static str>>>,
    following: AbortHandle,
}

impl Drop for History {
    fn drop(&mut self) {
        self.following.abort();
    }
}

impl History {
    /// Returns once the watch has begun, so that no later event is missed.
    pub async fn of(fleet: &Fleet, kind: Kind) -> Result<History> {
        let entries: Arc<Mutex<Vec<Entry>>> = Arc::default();
        let gap: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let (view, heard, all) = (Arc::new(View::new(kind)), entries.clone(), fleet.all());
        let broken = gap.clone();
        let seen = view.clone();
        let scope = Scope { across: true, ..Scope::default() };
        let following = tokio::spawn(async move {
            let missed = |what| *broken.lock().unwrap() = Some(what);
            let told = |view: &View, news: News<'_>| {
                let (object, value) = match news {
                    News::Put { now, .. } => (now, Some(now.read(&view.kind))),
                    News::Gone { last, witnessed: true } => (last, None),
                    // A history with a gap proves nothing, so reading it fails.
                    News::Gone { .. } => return missed("when something went"),
                    News::Lost => return missed("what was written meanwhile"),
                    News::Synced => return,
                };
                let entry = Entry {
                    revision: object.version.parse().unwrap_or_default(),
                    cluster: object.key.cluster.unwrap_or(Id::ROOT),
                    namespace: object.key.namespace.clone(),
                    name: object.key.name.clone(),
                    object: value,
                    is_old: !view.known(),
                };
                heard.lock().unwrap().push(entry);
            };
            match follow(all, view, scope, told).await {}
        });
        let history = History { entries, gap, following: following.abort_handle() };
        until("the history begins", async || Ok(seen.synced())).await?;
        Ok(history)
    }

    pub async fn of_deployments(fleet: &Fleet) -> Result<History> {
        History::of(fleet, Kind::new("apps", "v1", "deployments", "Deployment", true)).await
    }

    /// Returns the recorded events in the order of their arrival.
    pub fn entries(&self) -> Vec<Entry> {
        self.check_whole();
        self.entries.lock().unwrap().clone()
    }

    fn check_whole(&self) {
        let gap = *self.gap.lock().unwrap();
        assert!(gap.is_none(), "the history has a gap: it is not known {}", gap.unwrap_or_default());
    }

    /// Waits until the history has recorded the object at the resource version of this response.
    pub async fn hears(&self, answer: &Value) -> Result<()> {
        let version = answer["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let version: u64 = version.parse()?;
        until("what was written is heard", async || {
            self.check_whole();
            Ok(self.entries.lock().unwrap().iter().any(|entry| entry.revision >= version))
        })
        .await
    }

    /// Returns every state of a user's object and of its mailbox objects since the history began.
    pub fn moments(&self, namespace: &str, name: &str) -> Vec<Moment> {
        let below = Fleet::below(namespace);
        let mut now = Moment::default();
        let mut moments = Vec::new();
        for entry in self.entries().into_iter().filter(|entry| entry.name == name) {
            if entry.cluster == Id::ROOT && entry.namespace == namespace {
                now.whole = entry.object.unwrap_or_default();
            } else if entry.namespace == below {
                match entry.object {
                    Some(copy) => now.copies.insert(entry.cluster, copy),
                    None => now.copies.remove(&entry.cluster),
                };
            } else {
                continue;
            }
            now.revision = now.revision.max(entry.revision);
            match entry.is_old {
                true => moments = vec![now.clone()],
                false => moments.push(now.clone()),
            }
        }
        moments
    }
}

/// The state of a user's object and of its mailbox objects after one revision.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    pub revision: u64,
    /// The user's object.
    pub whole: Value,
    /// The mailbox objects, by mailbox.
    pub copies: BTreeMap<Id, Value>,
}

impl Moment {
    /// Returns how many replicas the user wants.
    pub fn total(&self) -> u64 {
        self.whole["spec"]["replicas"].as_u64().unwrap_or_default()
    }

    /// Returns how many replicas the mailbox objects ask for in total.
    pub fn asked(&self) -> u64 {
        self.sum("/spec/replicas")
    }

    /// Returns how many replicas the mailbox objects report as available in total.
    pub fn available(&self) -> u64 {
        self.sum("/status/availableReplicas")
    }

    /// Returns how many of the wanted replicas are available. Surplus pods of a rollout do not count.
    pub fn serving(&self) -> u64 {
        let number = |copy: &Value, pointer: &str| copy.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let serving =
            |copy: &Value| number(copy, "/status/availableReplicas").min(number(copy, "/spec/replicas"));
        self.copies.values().map(serving).sum()
    }

    /// Returns how many replicas can exist in total: for each mailbox object the larger of the wanted and the reported
    /// number.
    pub fn most(&self) -> u64 {
        let number = |copy: &Value, pointer: &str| copy.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let most = |copy: &Value| number(copy, "/spec/replicas").max(number(copy, "/status/replicas"));
        self.copies.values().map(most).sum()
    }

    pub fn sum(&self, pointer: &str) -> u64 {
        self.copies.values().filter_map(|copy| copy.pointer(pointer)?.as_u64()).sum()
    }

    /// Describes the state in a few words, for the message of a failed check.
    pub fn told(&self) -> String {
        let number = |copy: &Value, pointer: &str| copy.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let copy = |(mailbox, copy): (&Id, &Value)| {
            let leaves = !copy["metadata"]["deletionTimestamp"].is_null();
            format!(
                "{mailbox}: {} asked, {} there, {} available, template {}{}",
                number(copy, "/spec/replicas"),
                number(copy, "/status/replicas"),
                number(copy, "/status/availableReplicas"),
                copy["metadata"]["annotations"]["holon.dev/template"],
                if leaves { ", leaving" } else { "" },
            )
        };
        let copies: Vec<String> = self.copies.iter().map(copy).collect();
        format!("at {}: {} wanted; {}", self.revision, self.total(), copies.join("; "))
    }
}

/// Checks every pair of consecutive states. Panics with the states before the first pair that `may_be` rejects.
pub fn check(moments: &[Moment], may_be: impl Fn(&Moment, &Moment) -> bool) {
    for (at, pair) in moments.windows(2).enumerate() {
        if !may_be(&pair[0], &pair[1]) {
            let told: Vec<String> = moments[at.saturating_sub(8)..at + 2].iter().map(Moment::told).collect();
            panic!("this must not happen:\n{}", told.join("\n"));
        }
    }
}
