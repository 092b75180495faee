//! How many pods of an app are ready on all physical clusters together, at every event of their own API servers.
//!
//! Two API servers have no common clock, and events of one may be delivered a little later than those of the other.
//! Apps that are watched have `minReadySeconds`: a source that is deleted only when the target's pods are available is
//! deleted that much later than their Ready events, less the second to which Kubernetes rounds. A smaller error in the
//! order does not matter.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use api::meta::is_being_deleted;
use controller::informer::{Key, News, Scope, View, follow};
use controller::kind::ResourceKind;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::client::until;
use crate::fleet::Fleet;

/// Counts ready pods until it is dropped.
#[derive(Debug)]
pub struct Availability {
    events: Arc<Mutex<Vec<ReadinessEvent>>>,
    watches: Vec<AbortHandle>,
}

/// How many pods of one cluster were ready from an instant on, and the pod whose event it was.
#[derive(Clone, Debug)]
struct ReadinessEvent {
    at: Instant,
    cluster: usize,
    ready: usize,
    pod: String,
}

impl Drop for Availability {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

impl Availability {
    /// Watches the pods labelled `app` in the downstream namespaces of a user's namespace. Returns once all watches
    /// have begun.
    pub async fn watch(fleet: &Fleet, namespace: &str, app: &str) -> Result<Availability> {
        let events: Arc<Mutex<Vec<ReadinessEvent>>> = Arc::default();
        let (mut watches, mut views) = (Vec::new(), Vec::new());
        for (cluster, (_, member)) in fleet.members().enumerate() {
            let view = Arc::new(View::new(ResourceKind::new("", "v1", "pods", "Pod", true)));
            let (client, watched_view, recorded) =
                (member.downstream.0.clone(), view.clone(), events.clone());
            let (downstream_namespace, app) = (Fleet::downstream_namespace(namespace), app.to_owned());
            watches.push(
                tokio::spawn(async move {
                    let mut ready: BTreeMap<Key, bool> = BTreeMap::new();
                    let record_event = Mutex::new(move |view: &View, news: News<'_>| {
                        let (object, pod) = match news {
                            News::Put { now, .. } => (now, now.read(&view.kind)),
                            News::Gone { last, .. } => (last, Value::Null),
                            News::Synced | News::Lost => return,
                        };
                        if object.key.namespace == downstream_namespace {
                            let is_ready = is_ready(&pod, &app);
                            ready.insert(object.key.clone(), is_ready);
                            let ready = ready.values().filter(|ready| **ready).count();
                            let pod = describe(&object.key.name, &pod, is_ready);
                            recorded.lock().unwrap().push(ReadinessEvent {
                                at: Instant::now(),
                                cluster,
                                ready,
                                pod,
                            });
                        }
                    });
                    match follow(client, watched_view, Scope::default(), |view, news| {
                        record_event.lock().unwrap()(view, news)
                    })
                    .await {}
                })
                .abort_handle(),
            );
            views.push(view);
        }
        until("all pods are watched", async || Ok(views.iter().all(|view| view.synced()))).await?;
        Ok(Availability { events, watches })
    }

    /// Returns the lowest number of ready pods at any event since `since`.
    pub fn lowest(&self, since: Instant) -> usize {
        let events = self.events.lock().unwrap().clone();
        let clusters = events.iter().map(|event| event.cluster + 1).max().unwrap_or(0);
        let at = |cluster: usize, at: Instant| {
            let before = events.iter().rfind(|event| event.cluster == cluster && event.at <= at);
            before.map_or(0, |event| event.ready)
        };
        let sum = |event: &ReadinessEvent| (0..clusters).map(|cluster| at(cluster, event.at)).sum();
        events.iter().filter(|event| event.at >= since).map(sum).min().unwrap_or(usize::MAX)
    }

    /// Describes every event since `since`, one per line, for the message of a failed test.
    pub fn timeline(&self, since: Instant) -> String {
        let events = self.events.lock().unwrap();
        let later = events.iter().filter(|event| event.at >= since);
        later.fold(String::new(), |mut text, ReadinessEvent { at, cluster, ready, pod }| {
            let after_ms = at.duration_since(since).as_millis();
            writeln!(text, "{after_ms:>6} ms  cluster {cluster}: {ready} ready  {pod}")
                .expect("writing to a String does not fail");
            text
        })
    }
}

fn describe(name: &str, pod: &Value, is_ready: bool) -> String {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
    if pod.is_null() {
        return format!("{name} deleted");
    }
    format!(
        "{name} ready={is_ready} revision={} phase={} node={} deleted={} owner={}",
        text("/metadata/resourceVersion"),
        text("/status/phase"),
        text("/spec/nodeName"),
        text("/metadata/deletionTimestamp"),
        text("/metadata/ownerReferences/0/uid"),
    )
}

fn is_ready(pod: &Value, app: &str) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    pod["metadata"]["labels"]["app"] == *app
        && !is_being_deleted(pod)
        && conditions
            .into_iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
