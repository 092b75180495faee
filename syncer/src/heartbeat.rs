//! That we are there, which physical cluster this is, and what it has.
//!
//! The heartbeat itself is the lease, renewed whoever looks. Beside it is the report: the PhysicalCluster of this name in the
//! mailbox, whose status says what was seen. It is written when it changes.
//!
//! The uid in the report is how the physical cluster is known again. A kubeconfig that leads to another one finds nothing
//! of ours there, and would fill it; so with another uid nothing is written at all. The same may happen under way, when an
//! address leads elsewhere from one moment to the next. So whoever loses sight of what is below, or misses something there,
//! has it asked again before anything else is written; and whatever could not be undone is done by those who have just
//! asked themselves.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::fleet::{Condition, PhysicalCluster, PhysicalClusterStatus};
use api::meta::time;
use api::names::{GROUP, VERSION};
use controller::kind::Kind;
use controller::remote::{CallError, Patch, Place};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kinds::discover;
use crate::mirror::Cluster;
use crate::seen::Seen;
use crate::sides::Sides;

/// How often we look.
const BEAT: Duration = Duration::from_secs(10);
/// Never more often than this; and so often until it is known which cluster this is, because until then nothing works.
const BEAT_FIRST: Duration = Duration::from_secs(1);
/// How often everything there is counted. Every pod is read for it.
const COUNT: Duration = Duration::from_secs(60);

/// Holds the lease, for as long as it is polled.
pub(crate) async fn hold(sides: Arc<Sides>) -> Infallible {
    let led = std::sync::atomic::AtomicBool::new(false);
    let told = |attempt: Result<bool, &CallError>| {
        // Who is no longer known cannot be told to stop either.
        sides.set_cut_off(attempt.as_ref().is_err_and(|error| !error.is_answer() || error.code() == 401));
        if let Ok(true) = attempt {
            sides.succeed();
        }
        let leads = attempt.unwrap_or_else(|_| sides.lease.leads());
        if led.swap(leads, std::sync::atomic::Ordering::Relaxed) != leads {
            tracing::info!(leads, "the lease of the mailbox");
            sides.beat.notify_one();
        }
        sides.look_again_if_led();
    };
    sides.lease.hold(told).await
}

/// Looks and reports, for as long as it is polled.
pub(crate) async fn beat(sides: Arc<Sides>) -> Infallible {
    let mut beat = Beat { sides, seen: None, counted: None, written: None };
    loop {
        beat.once().await;
        let known = beat.sides.cluster() != Cluster::Unknown;
        sleep(BEAT_FIRST).await;
        let wait = sleep(if known { BEAT - BEAT_FIRST } else { Duration::ZERO });
        tokio::select! {
            () = wait => {}
            () = beat.sides.beat.notified() => {}
        }
    }
}

struct Beat {
    sides: Arc<Sides>,
    seen: Option<Seen>,
    counted: Option<Instant>,
    /// What is in the mailbox.
    written: Option<PhysicalClusterStatus>,
}

fn kind() -> Kind {
    let resource = PhysicalCluster::RESOURCE;
    Kind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced)
}

impl Beat {
    async fn once(&mut self) {
        let doubts = self.sides.doubts();
        let looked = Seen::whose(&self.sides.below).await;
        if let Ok(uid) = &looked {
            self.identify(uid, doubts).await;
        }
        if looked.is_ok() && self.counted.is_none_or(|at| at.elapsed() >= COUNT) {
            match self.count().await {
                Ok(seen) => {
                    self.seen = Some(seen);
                    self.counted = Some(Instant::now());
                }
                Err(error) => tracing::warn!(%error, "cannot count what the physical cluster has"),
            }
        }
        let led = self.sides.lease.leads();
        let is_known = led || self.sides.lease.other().is_some() || self.sides.is_superseded();
        if self.sides.about().led != led && is_known {
            self.sides.change_about(|about| about.led = led).await;
        }
        if led && let Err(error) = self.report(looked.as_ref().err()).await {
            self.written = None;
            tracing::warn!(%error, "cannot report to the mailbox");
        }
    }

    async fn count(&self) -> Result<Seen, CallError> {
        let mut seen = Seen::count(&self.sides.below).await?;
        seen.kinds = discover(&self.sides.below).await?.report();
        Ok(seen)
    }

    /// Compares with what is recorded: in the mailbox or, when it does not answer, on disk.
    async fn identify(&mut self, uid: &str, doubts: u64) {
        let recorded = match self.read().await {
            Ok(status) => {
                let recorded = status.uid.clone().or_else(|| self.sides.about().cluster);
                self.written = Some(status);
                recorded
            }
            Err(error) => match self.sides.about().cluster {
                Some(recorded) => Some(recorded),
                None => {
                    return tracing::warn!(%error, "cannot find out whether this is the same physical cluster");
                }
            },
        };
        let cluster = match recorded {
            Some(recorded) if recorded != uid => Cluster::Other,
            _ => Cluster::Same,
        };
        if cluster == Cluster::Same {
            self.sides.change_about(|about| about.cluster = Some(uid.to_owned())).await;
        }
        if self.sides.set_cluster(cluster, doubts) {
            tracing::info!(?cluster, uid, "which physical cluster this is");
            self.sides.look_at_all();
        }
    }

    async fn read(&self) -> Result<PhysicalClusterStatus, CallError> {
        let kind = kind();
        let found = self.sides.mailbox.get(Place::new(&kind, "", &self.sides.settings.name)).await?;
        let status = found.map(|mut object| object["status"].take()).unwrap_or_default();
        Ok(serde_json::from_value(status).unwrap_or_default())
    }

    async fn report(&mut self, unreachable: Option<&CallError>) -> Result<(), CallError> {
        let before = match self.written.take() {
            Some(written) => written,
            None => self.read().await?,
        };
        let after = self.status(&before, unreachable);
        if after != before {
            self.write(&after).await?;
        }
        self.written = Some(after);
        Ok(())
    }

    fn status(
        &self,
        before: &PhysicalClusterStatus,
        unreachable: Option<&CallError>,
    ) -> PhysicalClusterStatus {
        let mut status = before.clone();
        let about = self.sides.about();
        let same = self.sides.cluster();
        // What another cluster has is not this one's.
        if let Some(seen) = self.seen.as_ref().filter(|_| same == Cluster::Same) {
            status.version = Some(seen.version.clone());
            status.nodes = seen.nodes;
            status.capacity = seen.capacity.quantities();
            status.allocatable = seen.allocatable.quantities();
            status.requested = seen.requested.quantities();
            status.quotas = seen.quotas.clone();
            status.kinds = seen.kinds.clone();
            status.classes = seen.classes.clone();
        }
        if same == Cluster::Same {
            status.uid = about.cluster;
        }
        status.mailbox = Some(self.sides.settings.mailbox.clone());
        status.conditions = conditions(&before.conditions, &self.conditions(same, unreachable));
        status
    }

    /// Type, whether it is so, reason, message.
    fn conditions(&self, same: Cluster, unreachable: Option<&CallError>) -> Vec<Said> {
        let ready = match unreachable {
            None => Said::new("Ready", "True", "Reachable", "the physical cluster answers"),
            Some(error) => Said::new("Ready", "False", "Unreachable", &error.to_string()),
        };
        let identity = match same {
            Cluster::Same => {
                Said::new("ClusterIdentity", "True", "Same", "this is the cluster that was joined")
            }
            Cluster::Other => {
                let message = "the kubeconfig leads to another cluster than the one that was joined; \
                               nothing is written there";
                Said::new("ClusterIdentity", "False", "OtherCluster", message)
            }
            Cluster::Unknown => Said::new(
                "ClusterIdentity",
                "Unknown",
                "Unknown",
                "not found out since it was last lost sight of",
            ),
        };
        let synced = match self.sides.troubles.told() {
            (0, _) => Said::new("Synced", "True", "AsAsked", "everything is as the mailbox asks"),
            (count, told) => Said::new("Synced", "False", "Held", &format!("{count} not as asked:\n{told}")),
        };
        // Until it was counted, what was said before stays.
        let counted = self.seen.as_ref().map(|seen| match seen.refused.is_empty() {
            true => Said::new("Counted", "True", "Counted", "nodes, pods and quotas are counted"),
            false => Said::new("Counted", "False", "Forbidden", &seen.refused.join("\n")),
        });
        [ready, identity, synced].into_iter().chain(counted).collect()
    }

    async fn write(&self, status: &PhysicalClusterStatus) -> Result<(), CallError> {
        let (kind, name) = (kind(), &self.sides.settings.name);
        let place = Place::new(&kind, "", name);
        if self.sides.mailbox.get(place).await?.is_none() {
            let object = json!({
                "apiVersion": kind.api_version(), "kind": kind.name, "metadata": { "name": name }, "spec": {},
            });
            self.sides.mailbox.create(&kind, "", &object).await?;
        }
        let status = serde_json::to_value(status).unwrap_or(Value::Null);
        let change = json!([{ "op": "add", "path": "/status", "value": status }]);
        self.sides.mailbox.patch(place.part("status"), Patch::Json, &change).await.map(drop)
    }
}

struct Said {
    r#type: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Said {
    fn new(r#type: &'static str, status: &'static str, reason: &'static str, message: &str) -> Said {
        Said { r#type, status, reason, message: message.to_owned() }
    }
}

/// With the times at which they began to be so. What others say stays.
fn conditions(before: &[Condition], said: &[Said]) -> Vec<Condition> {
    let others = before.iter().filter(|old| said.iter().all(|new| new.r#type != old.r#type)).cloned();
    let now = time::now();
    let ours = said
        .iter()
        .map(|new| Condition::since(before, (new.r#type, new.status, new.reason, &new.message), &now));
    ours.chain(others).collect()
}
