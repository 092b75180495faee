//! A history of all events of one kind in all logical clusters, in the order of their revisions.
//!
//! A test that samples can miss a short violation of an invariant. This history misses nothing: it is one watch over
//! all logical clusters that begins before the test's first write, and the server has one order of revisions. So a test
//! can check an invariant over all mailboxes at every revision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use api::cluster::Id;
use api::meta::is_being_deleted;
use controller::informer::{News, Scope, View, follow};
use controller::kind::ResourceKind;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::client::until;
use crate::fleet::Fleet;

/// An object as of one revision; without `object` it was deleted.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
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
    entries: Arc<Mutex<Vec<HistoryEntry>>>,
    /// Why the history is incomplete, if the watch was interrupted.
    gap: Arc<Mutex<Option<&'static str>>>,
    watch: AbortHandle,
}

impl Drop for History {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl History {
    /// Returns once the watch has begun, so that no later event is missed.
    pub async fn of(fleet: &Fleet, kind: ResourceKind) -> Result<History> {
        let entries: Arc<Mutex<Vec<HistoryEntry>>> = Arc::default();
        let gap: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let (view, recorded, all) = (Arc::new(View::new(kind)), entries.clone(), fleet.all());
        let watch_gap = gap.clone();
        let watched_view = view.clone();
        let scope = Scope { across: true, ..Scope::default() };
        let watch = tokio::spawn(async move {
            let mark_gap = |reason| *watch_gap.lock().unwrap() = Some(reason);
            let record_event = |view: &View, news: News<'_>| {
                let (object, value) = match news {
                    News::Put { now, .. } => (now, Some(now.read(&view.kind))),
                    News::Gone { last, witnessed: true } => (last, None),
                    // A history with a gap proves nothing, so reading it fails.
                    News::Gone { .. } => {
                        return mark_gap("an object was deleted while the watch was interrupted");
                    }
                    News::Lost => return mark_gap("the watch was lost"),
                    News::Synced => return,
                };
                let entry = HistoryEntry {
                    revision: object.version.parse().unwrap_or_default(),
                    cluster: object.key.cluster.unwrap_or(Id::ROOT),
                    namespace: object.key.namespace.clone(),
                    name: object.key.name.clone(),
                    object: value,
                    is_old: !view.known(),
                };
                recorded.lock().unwrap().push(entry);
            };
            match follow(all, view, scope, record_event).await {}
        });
        let history = History { entries, gap, watch: watch.abort_handle() };
        until("the watch of the history is synced", async || Ok(watched_view.synced())).await?;
        Ok(history)
    }

    pub async fn of_deployments(fleet: &Fleet) -> Result<History> {
        History::of(fleet, ResourceKind::new("apps", "v1", "deployments", "Deployment", true)).await
    }

    /// Returns the recorded events in the order of their arrival.
    pub fn entries(&self) -> Vec<HistoryEntry> {
        self.check_complete();
        self.entries.lock().unwrap().clone()
    }

    fn check_complete(&self) {
        let gap = *self.gap.lock().unwrap();
        assert!(gap.is_none(), "the history has a gap: {}", gap.unwrap_or_default());
    }

    /// Waits until the history has recorded the object at the resource version of this response.
    pub async fn until_observed(&self, response: &Value) -> Result<()> {
        let version = response["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let version: u64 = version.parse()?;
        until("the history has observed the write", async || {
            self.check_complete();
            Ok(self.entries.lock().unwrap().iter().any(|entry| entry.revision >= version))
        })
        .await
    }

    /// Returns every state of a user's object and of its mailbox objects since the history began.
    pub fn moments(&self, namespace: &str, name: &str) -> Vec<Moment> {
        let downstream = Fleet::downstream_namespace(namespace);
        let mut now = Moment::default();
        let mut moments = Vec::new();
        for entry in self.entries().into_iter().filter(|entry| entry.name == name) {
            if entry.cluster == Id::ROOT && entry.namespace == namespace {
                now.user_object = entry.object.unwrap_or_default();
            } else if entry.namespace == downstream {
                match entry.object {
                    Some(object) => now.mailbox_objects.insert(entry.cluster, object),
                    None => now.mailbox_objects.remove(&entry.cluster),
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
    pub user_object: Value,
    /// The mailbox objects, by mailbox.
    pub mailbox_objects: BTreeMap<Id, Value>,
}

impl Moment {
    /// Returns the replicas that the user requests.
    pub fn total(&self) -> u64 {
        self.user_object["spec"]["replicas"].as_u64().unwrap_or_default()
    }

    /// Returns the sum of the replicas that the mailbox objects request.
    pub fn requested(&self) -> u64 {
        self.sum("/spec/replicas")
    }

    /// Returns the sum of the available replicas that the mailbox objects report.
    pub fn available(&self) -> u64 {
        self.sum("/status/availableReplicas")
    }

    /// Returns how many of the desired replicas are available. Surplus pods of a rollout do not count.
    pub fn serving(&self) -> u64 {
        let number =
            |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let serving = |object: &Value| {
            number(object, "/status/availableReplicas").min(number(object, "/spec/replicas"))
        };
        self.mailbox_objects.values().map(serving).sum()
    }

    /// Returns how many replicas can exist in total: for each mailbox object the larger of the desired and the
    /// reported number.
    pub fn max_possible(&self) -> u64 {
        let number =
            |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let max_possible =
            |object: &Value| number(object, "/spec/replicas").max(number(object, "/status/replicas"));
        self.mailbox_objects.values().map(max_possible).sum()
    }

    pub fn sum(&self, pointer: &str) -> u64 {
        self.mailbox_objects.values().filter_map(|object| object.pointer(pointer)?.as_u64()).sum()
    }

    /// Describes the state in a few words, for the message of a failed check.
    pub fn describe(&self) -> String {
        let number =
            |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let describe_object = |(mailbox, object): (&Id, &Value)| {
            let suffix = if is_being_deleted(object) { ", being deleted" } else { "" };
            format!(
                "{mailbox}: {} requested, {} exist, {} available, template {}{}",
                number(object, "/spec/replicas"),
                number(object, "/status/replicas"),
                number(object, "/status/availableReplicas"),
                object["metadata"]["annotations"]["holon.dev/template"],
                suffix,
            )
        };
        let lines: Vec<String> = self.mailbox_objects.iter().map(describe_object).collect();
        format!("at {}: {} desired; {}", self.revision, self.total(), lines.join("; "))
    }
}

/// Checks every pair of consecutive states. Panics with the states before the first pair that `is_allowed` rejects.
pub fn check(moments: &[Moment], is_allowed: impl Fn(&Moment, &Moment) -> bool) {
    for (at, pair) in moments.windows(2).enumerate() {
        if !is_allowed(&pair[0], &pair[1]) {
            let recent: Vec<String> =
                moments[at.saturating_sub(8)..at + 2].iter().map(Moment::describe).collect();
            panic!("the last of these states breaks the invariant:\n{}", recent.join("\n"));
        }
    }
}
