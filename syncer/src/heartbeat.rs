//! The heartbeat of a syncer: its lease, and its report about the physical cluster.
//!
//! The syncer renews the lease continuously. The report is the status of the PhysicalCluster of this name in the
//! mailbox, written when it changes.
//!
//! The uid in the report identifies the physical cluster. With a kubeconfig of another cluster, the syncer would find
//! none of its objects and apply them all; so if the uid differs, it writes nothing. An address may also lead to
//! another cluster from one moment to the next. So when the syncer loses a watch downstream, or misses an object there,
//! it checks the identity before it writes anything else; and it checks again right before a step that cannot be
//! undone.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use api::fleet::{Condition, PhysicalCluster, PhysicalClusterStatus};
use api::meta::time;
use api::names::{GROUP, VERSION};
use controller::kind::ResourceKind;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::inventory::ClusterInventory;
use crate::mirror::ClusterIdentity;
use crate::state::context::SyncerContext;
use crate::state::kinds::discover;

/// How often the syncer reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// The minimum between two reports. It is also the interval while the identity of the cluster is unknown, because
/// nothing is written before that.
const REPORT_MIN_INTERVAL: Duration = Duration::from_secs(1);
/// How often the inventory is counted, which lists all pods.
const COUNT_EVERY: Duration = Duration::from_secs(60);

/// Holds the lease while it is polled.
pub(crate) async fn hold_lease(context: Arc<SyncerContext>) -> Infallible {
    let led = std::sync::atomic::AtomicBool::new(false);
    let renewed = |attempt: Result<bool, &CallError>| {
        // A mailbox that rejects the credential counts as unreachable: it cannot tell this syncer to stop either.
        context.set_mailbox_unreachable(
            attempt.as_ref().is_err_and(|error| !error.is_answer() || error.code() == 401),
        );
        if let Ok(true) = attempt {
            context.clear_superseded();
        }
        let leads = attempt.unwrap_or_else(|_| context.lease.leads());
        if led.swap(leads, std::sync::atomic::Ordering::Relaxed) != leads {
            match leads {
                true => tracing::info!("acquired the lease of the mailbox"),
                false => tracing::info!("lost the lease of the mailbox"),
            };
            context.report_due.notify_one();
        }
        context.requeue_all_if_promoted();
    };
    context.lease.hold(renewed).await
}

/// Reports while it is polled.
pub(crate) async fn report(context: Arc<SyncerContext>) -> Infallible {
    let mut reporter = Reporter { context, inventory: None, counted_at: None, written: None };
    loop {
        reporter.report_once().await;
        let is_identified = reporter.context.cluster() != ClusterIdentity::Unknown;
        sleep(REPORT_MIN_INTERVAL).await;
        let wait = sleep(if is_identified { REPORT_EVERY - REPORT_MIN_INTERVAL } else { Duration::ZERO });
        tokio::select! {
            () = wait => {}
            () = reporter.context.report_due.notified() => {}
        }
    }
}

struct Reporter {
    context: Arc<SyncerContext>,
    inventory: Option<ClusterInventory>,
    counted_at: Option<Instant>,
    /// The status that the mailbox has.
    written: Option<PhysicalClusterStatus>,
}

fn kind() -> ResourceKind {
    let resource = PhysicalCluster::RESOURCE;
    ResourceKind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced)
}

impl Reporter {
    async fn report_once(&mut self) {
        let identity_checks = self.context.identity_checks();
        let read_uid = ClusterInventory::cluster_uid(&self.context.downstream).await;
        if let Ok(uid) = &read_uid {
            self.identify(uid, identity_checks).await;
        }
        if read_uid.is_ok() && self.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            match self.count().await {
                Ok(inventory) => {
                    self.inventory = Some(inventory);
                    self.counted_at = Some(Instant::now());
                }
                Err(error) => tracing::warn!(%error, "cannot count the inventory of the physical cluster"),
            }
        }
        let led = self.context.lease.leads();
        let is_known = led || self.context.lease.other().is_some() || self.context.is_superseded();
        if self.context.header().led != led && is_known {
            self.context.update_header(|header| header.led = led).await;
        }
        if led && let Err(error) = self.write_report(read_uid.as_ref().err()).await {
            self.written = None;
            tracing::warn!(%error, "cannot write the report into the mailbox");
        }
    }

    async fn count(&self) -> Result<ClusterInventory, CallError> {
        let mut inventory = ClusterInventory::count(&self.context.downstream).await?;
        inventory.kinds = discover(&self.context.downstream).await?.report();
        Ok(inventory)
    }

    /// Compares the uid with the recorded one: in the mailbox or, if it does not answer, in the state directory.
    async fn identify(&mut self, uid: &str, identity_checks: u64) {
        let recorded = match self.read().await {
            Ok(status) => {
                let recorded = status.uid.clone().or_else(|| self.context.header().cluster);
                self.written = Some(status);
                recorded
            }
            Err(error) => match self.context.header().cluster {
                Some(recorded) => Some(recorded),
                None => {
                    return tracing::warn!(%error, "cannot verify the identity of the physical cluster");
                }
            },
        };
        let cluster = match recorded {
            Some(recorded) if recorded != uid => ClusterIdentity::Other,
            _ => ClusterIdentity::Same,
        };
        if cluster == ClusterIdentity::Same {
            self.context.update_header(|header| header.cluster = Some(uid.to_owned())).await;
        }
        if self.context.set_identity(cluster, identity_checks) {
            tracing::info!(?cluster, uid, "checked the identity of the physical cluster");
            self.context.requeue_all();
        }
    }

    async fn read(&self) -> Result<PhysicalClusterStatus, CallError> {
        let kind = kind();
        let object =
            self.context.mailbox.get(ObjectPath::new(&kind, "", &self.context.settings.name)).await?;
        let status = object.map(|mut object| object["status"].take()).unwrap_or_default();
        Ok(serde_json::from_value(status).unwrap_or_default())
    }

    async fn write_report(&mut self, unreachable: Option<&CallError>) -> Result<(), CallError> {
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
        let header = self.context.header();
        let identity = self.context.cluster();
        // The inventory of another cluster is not reported.
        if let Some(inventory) = self.inventory.as_ref().filter(|_| identity == ClusterIdentity::Same) {
            status.version = Some(inventory.version.clone());
            status.nodes = inventory.nodes;
            status.capacity = inventory.capacity.quantities();
            status.allocatable = inventory.allocatable.quantities();
            status.requested = inventory.requested.quantities();
            status.quotas = inventory.quotas.clone();
            status.kinds = inventory.kinds.clone();
            status.classes = inventory.classes.clone();
        }
        if identity == ClusterIdentity::Same {
            status.uid = header.cluster;
        }
        status.mailbox = Some(self.context.settings.mailbox.clone());
        status.conditions = merge_conditions(&before.conditions, &self.conditions(identity, unreachable));
        status
    }

    /// Returns the conditions of the report.
    fn conditions(&self, identity: ClusterIdentity, unreachable: Option<&CallError>) -> Vec<ConditionUpdate> {
        let ready = match unreachable {
            None => ConditionUpdate::new("Ready", "True", "Reachable", "the physical cluster answers"),
            Some(error) => ConditionUpdate::new("Ready", "False", "Unreachable", &error.to_string()),
        };
        let identity = match identity {
            ClusterIdentity::Same => {
                ConditionUpdate::new("ClusterIdentity", "True", "Same", "this is the cluster that was joined")
            }
            ClusterIdentity::Other => {
                let message = "the kubeconfig leads to another cluster than the one that was joined; \
                               nothing is written there";
                ConditionUpdate::new("ClusterIdentity", "False", "OtherCluster", message)
            }
            ClusterIdentity::Unknown => ConditionUpdate::new(
                "ClusterIdentity",
                "Unknown",
                "Unknown",
                "the identity of the cluster is not verified yet",
            ),
        };
        let synced = match self.context.errors.summary() {
            (0, _) => {
                ConditionUpdate::new("Synced", "True", "InSync", "every object is in sync with the mailbox")
            }
            (count, summary) => ConditionUpdate::new(
                "Synced",
                "False",
                "SyncErrors",
                &format!("{count} objects are not in sync:\n{summary}"),
            ),
        };
        // Until the first count, the condition stays.
        let counted = self.inventory.as_ref().map(|inventory| match inventory.forbidden.is_empty() {
            true => ConditionUpdate::new("Counted", "True", "Counted", "nodes, pods and quotas were counted"),
            false => ConditionUpdate::new("Counted", "False", "Forbidden", &inventory.forbidden.join("\n")),
        });
        [ready, identity, synced].into_iter().chain(counted).collect()
    }

    async fn write(&self, status: &PhysicalClusterStatus) -> Result<(), CallError> {
        let (kind, name) = (kind(), &self.context.settings.name);
        let place = ObjectPath::new(&kind, "", name);
        if self.context.mailbox.get(place).await?.is_none() {
            let object = json!({
                "apiVersion": kind.api_version(), "kind": kind.name, "metadata": { "name": name }, "spec": {},
            });
            self.context.mailbox.create(&kind, "", &object).await?;
        }
        let status = serde_json::to_value(status).unwrap_or(Value::Null);
        let change = json!([{ "op": "add", "path": "/status", "value": status }]);
        self.context.mailbox.patch(place.part("status"), Patch::Json, &change).await.map(drop)
    }
}

struct ConditionUpdate {
    r#type: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl ConditionUpdate {
    fn new(
        r#type: &'static str,
        status: &'static str,
        reason: &'static str,
        message: &str,
    ) -> ConditionUpdate {
        ConditionUpdate { r#type, status, reason, message: message.to_owned() }
    }
}

/// Merges conditions: keeps transition times, and conditions that others wrote.
fn merge_conditions(before: &[Condition], updates: &[ConditionUpdate]) -> Vec<Condition> {
    let others = before.iter().filter(|old| updates.iter().all(|new| new.r#type != old.r#type)).cloned();
    let now = time::now();
    let ours = updates
        .iter()
        .map(|new| Condition::since(before, (new.r#type, new.status, new.reason, &new.message), &now));
    ours.chain(others).collect()
}
