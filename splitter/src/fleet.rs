//! Physical clusters: their mailboxes, their health and their removal.
//!
//! ```text
//!   logical cluster of the fleet                       mailbox (mailbox-east, below it)
//!   PhysicalCluster east ──creates────────────────────► logical cluster, service account and role of its syncer
//!      status ◄──────── copied, condition Ready ────────  PhysicalCluster east: the syncer's report
//!                                                         Lease holon-syncer:   its heartbeat
//!      deleted ──────────── deletes ──────────────────►  everything that is placed
//! ```
//!
//! One instance reconciles all physical clusters of a server. It follows three kinds in all logical clusters, and
//! works only on events and when a lease expires.

mod health;
mod mailbox;
mod removal;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster::Id;
use api::fleet::{Condition, Connection, PhysicalCluster, PhysicalClusterStatus};
use api::names::{FLEET, FORGET, GROUP, HEARTBEAT, MAILBOX_OF, SPLITTER, TRUE, VERSION, owner_of_mailbox};
use controller::history::History;
use controller::informer::{CachedObject, FollowedView, Follower, Key, News, View};
use controller::kind::ResourceKind;
use controller::queue::{Outcome, Queue};
use controller::remote::{CallError, ObjectPath, Patch, Remote};
use controller::run::work;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Instrument;

use crate::snapshot::CIRCULAR;
pub use crate::snapshot::is_forgotten;

use self::health::{HeartbeatHealth, HeartbeatState, PreviousHealth, evaluate_heartbeat};

/// Physical clusters reconciled at the same time.
const CONCURRENCY: usize = 8;
/// Requeue delay while a physical cluster is being removed.
const REMOVAL_REQUEUE: Duration = Duration::from_secs(2);
/// A running syncer reads the uninstall request within ten seconds. The removal waits no longer than this for a syncer
/// that does not answer.
const UNINSTALL_TIMEOUT: Duration = Duration::from_secs(40);
/// Requeue delay until the caches have observed a write.
const WRITE_REQUEUE: Duration = Duration::from_millis(200);
const HEARTBEAT_EXPIRED: &str = "HeartbeatExpired";
const NEVER_REPORTED: &str = "NeverReported";
const CANNOT_CONNECT: &str = "CannotConnect";
const LEAVING: &str = "Leaving";

/// Reconciles all physical clusters of a server.
#[derive(Debug)]
pub struct Fleet {
    /// Reaches every logical cluster by its id.
    server: Remote,
    physical: Arc<View>,
    /// Only mailboxes: there may be a million other logical clusters.
    logical: Arc<View>,
    leases: Arc<View>,
    follower: Follower,
    queue: Queue<Key>,
    /// The physical cluster by mailbox.
    owners: Mutex<HashMap<Id, Key>>,
    heartbeats: Mutex<HashMap<Key, HeartbeatState>>,
    connection_problems: Mutex<HashMap<Key, ConnectionProblem>>,
    /// Since when each syncer is requested to uninstall itself.
    uninstall_requested: Mutex<HashMap<Id, Instant>>,
}

/// A PhysicalCluster object and its mailbox.
#[derive(Clone, PartialEq, Debug)]
pub struct FleetMember {
    /// The logical cluster that the PhysicalCluster object is in.
    pub owner: Id,
    pub object: PhysicalCluster,
    pub mailbox: Option<Id>,
}

/// Why the server cannot connect to a physical cluster, for its condition Ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionProblem {
    pub message: String,
    /// Whether an earlier connection still works.
    pub is_connected: bool,
}

fn kind_of(resource: api::fleet::Resource) -> ResourceKind {
    ResourceKind::new(GROUP, VERSION, resource.plural, resource.kind, resource.namespaced)
}

impl Fleet {
    /// `server` names no logical cluster; `history` is that of the same server.
    pub fn new(server: Remote, history: Arc<dyn History>) -> Fleet {
        let view = |kind| Arc::new(View::new(kind));
        Fleet {
            server,
            physical: view(kind_of(PhysicalCluster::RESOURCE)),
            logical: view(ResourceKind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false)),
            leases: view(ResourceKind::new("coordination.k8s.io", "v1", "leases", "Lease", true)),
            follower: Follower::new(history),
            queue: Queue::new(),
            owners: Mutex::default(),
            heartbeats: Mutex::default(),
            connection_problems: Mutex::default(),
            uninstall_requested: Mutex::default(),
        }
    }

    /// Runs for as long as it is polled. `changed` is called with every [member](Fleet::member) that may have changed.
    /// Heartbeats and reports change none.
    pub async fn run(&self, changed: impl Fn(Key)) -> Infallible {
        let is_mailbox = |object: &CachedObject| owner_of_mailbox(&object.key.name).is_some();
        let is_heartbeat =
            |object: &CachedObject| object.key.name == HEARTBEAT && object.key.namespace == "kube-system";
        // Mailboxes first: PhysicalClusters in them are reports.
        let views = vec![
            FollowedView::filtered(&self.logical, is_mailbox),
            FollowedView::all(&self.physical),
            FollowedView::filtered(&self.leases, is_heartbeat),
        ];
        let handler = |view: &View, news: News<'_>| self.handle_event(view, &news, &changed);
        let work = async {
            self.follower.reach(0).await;
            work(&self.queue, CONCURRENCY, |key| self.reconcile_item(key)).await
        };
        tokio::select! {
            never = self.follower.run(views, handler) => never,
            never = work => never,
        }
    }

    /// Queues the physical cluster of an event: of itself, its mailbox, its report or its lease.
    fn handle_event(&self, view: &View, news: &News<'_>, changed: impl Fn(Key)) {
        let (object, gone) = match news {
            News::Put { now, .. } => (now, false),
            News::Gone { last, .. } => (last, true),
            // Events before the first sync could not be attributed.
            News::Synced => {
                return self.physical.keys().into_iter().for_each(|key| {
                    self.queue.add(key.clone());
                    changed(key);
                });
            }
            News::Lost => return,
        };
        if view.kind == self.logical.kind {
            let Some(owner) = owner_of_mailbox(&object.key.name) else { return };
            let owner = Key { name: owner.to_owned(), ..object.key.clone() };
            if let Some(id) = mailbox_id(&object.read(&view.kind)) {
                match gone {
                    true => self.owners().remove(&id),
                    false => self.owners().insert(id, owner.clone()),
                };
            }
            self.queue.add(owner.clone());
            changed(owner);
        } else if let Some(reported) = object.key.cluster.and_then(|id| self.cluster_of_mailbox(id)) {
            self.queue.add(reported);
        } else if view.kind == self.physical.kind {
            self.queue.add(object.key.clone());
            changed(object.key.clone());
        }
    }

    /// A physical cluster in the cache.
    pub fn member(&self, key: &Key) -> Option<FleetMember> {
        let owner = key.cluster.filter(|owner| self.cluster_of_mailbox(*owner).is_none())?;
        let object = self.physical.get(key)?.read(&self.physical.kind);
        let object: PhysicalCluster = serde_json::from_value(object).ok()?;
        let mailbox = self.mailbox_of(owner, &object.metadata.name);
        Some(FleetMember { owner, object, mailbox })
    }

    /// Sets or clears the connection problem of a physical cluster. Returns whether it changed.
    pub fn report_problem(&self, key: &Key, problem: Option<ConnectionProblem>) -> bool {
        let mut connection_problems = self.connection_problems();
        let before = match problem.clone() {
            Some(problem) => connection_problems.insert(key.clone(), problem),
            None => connection_problems.remove(key),
        };
        let is_news = before != problem;
        if is_news {
            self.queue.add(key.clone());
        }
        is_news
    }

    fn connection_problems(&self) -> MutexGuard<'_, HashMap<Key, ConnectionProblem>> {
        self.connection_problems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the mailbox of a physical cluster.
    fn mailbox_of(&self, owner: Id, name: &str) -> Option<Id> {
        let key = Key { cluster: Some(owner), namespace: String::new(), name: api::names::mailbox(name) };
        mailbox_id(&self.logical.get(&key)?.read(&self.logical.kind))
    }

    /// The physical cluster of a mailbox.
    fn cluster_of_mailbox(&self, id: Id) -> Option<Key> {
        self.owners().get(&id).cloned()
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<Id, Key>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reconcile_item(&self, key: Key) -> Outcome {
        let span = tracing::error_span!(
            "reconcile",
            object = %format_args!("physicalclusters {key}"),
            revision = tracing::field::Empty
        );
        self.reconcile_key(key).instrument(span).await
    }

    async fn reconcile_key(&self, key: Key) -> Outcome {
        // While the history cannot be read, a lease in the cache is older than the one that the syncer renewed.
        if !self.leases.synced() {
            return Outcome::RequeueAfter(WRITE_REQUEUE);
        }
        match self.reconcile(&key).await {
            Ok(outcome) => outcome,
            // The next reconcile reads the newer version, or finds that the PhysicalCluster is gone.
            Err(error) if error.is_conflict() || error.is_not_found() => Outcome::Failed,
            Err(error) => {
                tracing::warn!(%error, "reconcile failed; it is retried");
                Outcome::Failed
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<Outcome, CallError> {
        let Some(FleetMember { owner, object, mailbox }) = self.member(key) else {
            self.heartbeats().remove(key);
            self.connection_problems().remove(key);
            return Ok(Outcome::Done);
        };
        tracing::Span::current().record("revision", object.metadata.resource_version.as_str());
        let (name, here) = (&object.metadata.name, self.server.within(owner));
        if object.metadata.is_being_deleted() {
            return self.reconcile_removal(&here, &object, mailbox).await;
        }
        let place = ObjectPath::new(&self.physical.kind, "", name);
        if !object.metadata.finalizers.iter().any(|finalizer| finalizer == FLEET) {
            let mut finalizers = object.metadata.finalizers.clone();
            finalizers.push(FLEET.to_owned());
            let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.metadata.resource_version } });
            here.patch(place, Patch::Merge, &change).await?;
            return Ok(Outcome::Done);
        }
        let Some(mailbox) = mailbox else { return self.create_mailbox(&here, &object).await };
        if object.status.as_ref().and_then(|status| status.mailbox.as_deref()) != Some(&*mailbox.to_string())
        {
            apply_bootstrap_objects(&self.server.within(mailbox)).await?;
        }
        let before = object.status.clone().unwrap_or_default();
        let health = self.health(key, mailbox, &before);
        let problem = self.connection_problems().get(key).cloned();
        let status = self.status(mailbox, &object, &before, health, problem);
        self.write(&here, &object, status).await?;
        Ok(match health {
            // A little later, so that the lease has expired then.
            HeartbeatHealth::Alive(left) => Outcome::RequeueAfter(left + Duration::from_millis(100)),
            HeartbeatHealth::NeverReported | HeartbeatHealth::Expired => Outcome::Done,
        })
    }

    /// The lease the syncer of a mailbox renews.
    fn lease(&self, mailbox: Id) -> Option<Arc<CachedObject>> {
        self.leases.get(&Key {
            cluster: Some(mailbox),
            namespace: "kube-system".to_owned(),
            name: HEARTBEAT.to_owned(),
        })
    }

    fn health(&self, key: &Key, mailbox: Id, before: &PhysicalClusterStatus) -> HeartbeatHealth {
        let beat = self.lease(mailbox).map(|lease| lease.version.clone());
        let ready = before.conditions.iter().find(|condition| condition.r#type == "Ready");
        let before = match ready.map(|ready| &*ready.reason) {
            None | Some(NEVER_REPORTED) => PreviousHealth::Nothing,
            Some(CANNOT_CONNECT) if beat.is_none() => PreviousHealth::Nothing,
            // The server has not tested the connection yet. Two heartbeats confirm it.
            Some(HEARTBEAT_EXPIRED | CANNOT_CONNECT) => PreviousHealth::Expired,
            Some(_) => PreviousHealth::Alive,
        };
        let mut heartbeats = self.heartbeats();
        let mut heartbeat = heartbeats.remove(key);
        let health = evaluate_heartbeat(&mut heartbeat, beat.as_deref(), before, Instant::now());
        heartbeats.extend(heartbeat.map(|heartbeat| (key.clone(), heartbeat)));
        health
    }

    /// The last report of a syncer, in its mailbox.
    fn report(&self, mailbox: Id, name: &str) -> Option<PhysicalCluster> {
        let key = Key { cluster: Some(mailbox), namespace: String::new(), name: name.to_owned() };
        let report = self.physical.get(&key)?.read(&self.physical.kind);
        serde_json::from_value(report).ok()
    }

    fn heartbeats(&self) -> MutexGuard<'_, HashMap<Key, HeartbeatState>> {
        self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status: the syncer's report with the condition Ready.
    fn status(
        &self,
        mailbox: Id,
        object: &PhysicalCluster,
        before: &PhysicalClusterStatus,
        health: HeartbeatHealth,
        problem: Option<ConnectionProblem>,
    ) -> PhysicalClusterStatus {
        let report = self.report(mailbox, &object.metadata.name).and_then(|report| report.status);
        let reported = report.as_ref().map_or(&[][..], |report| &report.conditions).to_vec();
        let mut status = report.unwrap_or_else(|| before.clone());
        let reported = |kind: &str| reported.iter().find(|condition| condition.r#type == kind).cloned();
        let other = reported("ClusterIdentity").filter(|condition| condition.status == "False");
        let circular = before
            .conditions
            .iter()
            .find(|condition| condition.r#type == CIRCULAR && condition.status == "True");
        let ready = match circular {
            Some(circular) => ("False", CIRCULAR.to_owned(), circular.message.clone()),
            None => ready(health, other.or_else(|| reported("Ready")), problem),
        };
        let (was, is) = (before.conditions.iter().find(|condition| condition.r#type == "Ready"), ready.0);
        let beat = self.lease(mailbox).map(|lease| lease.read(&self.leases.kind));
        let beat = beat.as_ref().and_then(|lease| lease["spec"]["renewTime"].as_str());
        let is_news = was.is_none_or(|was| was.status != is);
        status.last_heartbeat_time =
            health::displayed_heartbeat(before.last_heartbeat_time.as_deref(), beat, is_news);
        status.conditions.retain(|condition| condition.r#type != "Ready");
        status.conditions.insert(0, condition(&before.conditions, "Ready", ready));
        // The splitter writes this condition: it detects physical clusters that are logical clusters of this server.
        status.conditions.retain(|condition| condition.r#type != CIRCULAR);
        status
            .conditions
            .extend(before.conditions.iter().find(|condition| condition.r#type == CIRCULAR).cloned());
        status.mailbox = Some(mailbox.to_string());
        status.observed_generation = object.metadata.generation;
        status
    }

    async fn write(
        &self,
        owner: &Remote,
        object: &PhysicalCluster,
        status: PhysicalClusterStatus,
    ) -> Result<(), CallError> {
        if object.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let place = ObjectPath::new(&self.physical.kind, "", &object.metadata.name).part("status");
        let status = serde_json::to_value(status).unwrap_or(Value::Null);
        let change = json!([
            { "op": "test", "path": "/metadata/uid", "value": object.metadata.uid },
            { "op": "add", "path": "/status", "value": status },
        ]);
        owner.patch(place, Patch::Json, &change).await.map(drop)
    }

    /// Creates the mailbox.
    async fn create_mailbox(&self, owner: &Remote, object: &PhysicalCluster) -> Result<Outcome, CallError> {
        let (name, kind) = (&object.metadata.name, &self.logical.kind);
        match owner.create(kind, "", &mailbox::logical_cluster(name)).await {
            Ok(_) => return Ok(Outcome::Done),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
        let taken = api::names::mailbox(name);
        let found = owner.get(ObjectPath::new(kind, "", &taken)).await?;
        if found.as_ref().is_none_or(|found| mailbox_id(found).is_some()) {
            return Ok(Outcome::RequeueAfter(WRITE_REQUEUE));
        }
        let why = format!(
            "logical cluster {taken} exists and is not the mailbox of this physical cluster; delete it, or rename the physical cluster"
        );
        self.write(owner, object, without_mailbox(object, &why)).await?;
        Ok(Outcome::RequeueAfter(REMOVAL_REQUEUE))
    }

    /// The reason and message of the step that the removal of a physical cluster waits for.
    async fn removal_blocker(
        &self,
        object: &PhysicalCluster,
        mailbox: Id,
    ) -> Result<Option<(&'static str, String)>, CallError> {
        const ORPHANING: &str = "OrphaningObjects";
        let is_used = object.metadata.finalizers.iter().any(|finalizer| finalizer == SPLITTER);
        if is_used && !is_forgotten(object) {
            let message = "workloads are moved to other targets first, and claims keep their data until they are deleted; \
                 see `kubectl get distributions,pvc -A`";
            return Ok(Some(("Moving", message.to_owned())));
        }
        if is_forgotten(object) {
            // The syncer stops first: it must not take the deletion of the mailbox for a deletion of its objects.
            let conditions = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let is_reported = conditions
                .iter()
                .any(|condition| condition.r#type == LEAVING && condition.reason == ORPHANING);
            return Ok((!is_reported)
                .then(|| (ORPHANING, "objects on the physical cluster are left in place".to_owned())));
        }
        let left = removal::delete_placed(&self.server.within(mailbox), &object.metadata.name).await?;
        if left > 0 {
            let message = format!(
                "{left} objects are still on the physical cluster; to leave them in place, annotate it with {FORGET}={TRUE}"
            );
            return Ok(Some(("DeletingObjects", message)));
        }
        let is_pull = matches!(object.spec.connection, Connection::Pull(_));
        let waits = is_pull && !self.is_syncer_gone(&object.metadata.name, mailbox).await?;
        Ok(waits.then(|| ("UninstallingSyncer", "waiting for the syncer to uninstall itself".to_owned())))
    }

    /// Requests a syncer that dialled in to uninstall itself. Returns whether it has stopped, never ran, or takes too long.
    async fn is_syncer_gone(&self, name: &str, mailbox: Id) -> Result<bool, CallError> {
        let lease = self.lease(mailbox).map(|lease| lease.read(&self.leases.kind));
        let holder = lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let report = self.report(mailbox, name);
        let state =
            removal::request_uninstall(&self.server.within(mailbox), &self.physical.kind, report.as_ref())
                .await?;
        let since = {
            let mut uninstall_requested =
                self.uninstall_requested.lock().unwrap_or_else(PoisonError::into_inner);
            *uninstall_requested.entry(mailbox).or_insert_with(Instant::now)
        };
        let is_gone = holder.is_none_or(str::is_empty)
            || state != removal::UninstallState::Requested
            || since.elapsed() > UNINSTALL_TIMEOUT;
        if is_gone {
            self.uninstall_requested.lock().unwrap_or_else(PoisonError::into_inner).remove(&mailbox);
        }
        Ok(is_gone)
    }

    /// Deletes the objects that were sent to a physical cluster, then its mailbox, then removes the finalizer.
    async fn reconcile_removal(
        &self,
        owner: &Remote,
        object: &PhysicalCluster,
        mailbox: Option<Id>,
    ) -> Result<Outcome, CallError> {
        if !object.metadata.finalizers.iter().any(|finalizer| finalizer == FLEET) {
            return Ok(Outcome::Done);
        }
        if let Some(mailbox) = mailbox {
            if let Some((reason, message)) = self.removal_blocker(object, mailbox).await? {
                let mut status = object.status.clone().unwrap_or_default();
                let leaving = condition(&status.conditions, LEAVING, ("True", reason.to_owned(), message));
                status.conditions.retain(|condition| condition.r#type != LEAVING);
                status.conditions.push(leaving);
                self.write(owner, object, status).await?;
                return Ok(Outcome::RequeueAfter(REMOVAL_REQUEUE));
            }
            removal::delete_mailbox(owner, &self.logical.kind, &api::names::mailbox(&object.metadata.name))
                .await?;
        }
        let finalizers: Vec<&String> =
            object.metadata.finalizers.iter().filter(|one| *one != FLEET).collect();
        let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": object.metadata.resource_version } });
        let place = ObjectPath::new(&self.physical.kind, "", &object.metadata.name);
        owner.patch(place, Patch::Merge, &change).await?;
        Ok(Outcome::Done)
    }
}

/// The condition Ready: from the heartbeat, the syncer's report, and the server's own connection.
fn ready(
    health: HeartbeatHealth,
    reported: Option<Condition>,
    problem: Option<ConnectionProblem>,
) -> (&'static str, String, String) {
    let of = |status, reason: &str, message: &str| (status, reason.to_owned(), message.to_owned());
    match (problem, health, reported) {
        (Some(why), _, _) if !why.is_connected => of("False", CANNOT_CONNECT, &why.message),
        (_, HeartbeatHealth::NeverReported, _) => {
            of("Unknown", NEVER_REPORTED, "the syncer has not reported yet")
        }
        // A syncer renews its lease before it has reached its cluster. Nothing is sent to a cluster that may not exist.
        (_, HeartbeatHealth::Alive(_), None) => {
            of("Unknown", NEVER_REPORTED, "the syncer has not reached the physical cluster yet")
        }
        (_, HeartbeatHealth::Expired, _) => {
            of("Unknown", HEARTBEAT_EXPIRED, "the syncer has not renewed its lease for 40 s")
        }
        (_, HeartbeatHealth::Alive(_), Some(reported)) if reported.status == "False" => {
            of("False", &reported.reason, &reported.message)
        }
        // The syncer still works. The message is for the admin, before it stops working.
        (Some(why), HeartbeatHealth::Alive(_), _) => {
            let message = format!("the current connection works, but a new one would fail: {}", why.message);
            of("True", "Reachable", &message)
        }
        (None, HeartbeatHealth::Alive(_), _) => {
            of("True", "Reachable", "the syncer renews its lease and reaches the cluster")
        }
    }
}

/// The id of a mailbox, if this is one.
fn mailbox_id(object: &Value) -> Option<Id> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let of = text(&object["metadata"]["labels"][MAILBOX_OF])?;
    let name = text(&object["metadata"]["name"])?;
    (owner_of_mailbox(&name) == Some(&of)).then(|| text(&object["status"]["id"])?.parse().ok())?
}

async fn apply_bootstrap_objects(mailbox: &Remote) -> Result<(), CallError> {
    for (kind, namespace, object) in mailbox::bootstrap_objects() {
        let mut object = object;
        object["kind"] = kind.name.clone().into();
        object["apiVersion"] = kind.api_version().into();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let place = ObjectPath::new(&kind, namespace, &name);
        mailbox.patch(place, Patch::Apply { manager: "holon-fleet" }, &object).await?;
    }
    Ok(())
}

fn without_mailbox(object: &PhysicalCluster, why: &str) -> PhysicalClusterStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let ready = condition(&status.conditions, "Ready", ("False", "NoMailbox".to_owned(), why.to_owned()));
    status.conditions.retain(|condition| condition.r#type != "Ready");
    status.conditions.insert(0, ready);
    status
}

/// A condition that keeps its transition time while its status does not change.
fn condition(
    before: &[Condition],
    kind: &str,
    (status, reason, message): (&str, String, String),
) -> Condition {
    Condition::since(before, (kind, status, &reason, &message), &api::meta::time::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_condition_combines_heartbeats_reports_and_connections() {
        let (alive, connection_problems) = (HeartbeatHealth::Alive(Duration::from_secs(1)), |is_connected| {
            Some(ConnectionProblem { message: "there is no Secret".to_owned(), is_connected })
        });
        let reported = |status: &str| {
            Some(Condition::since(&[], ("Ready", status, "Unreachable", "no answer"), "2026-01-01T00:00:00Z"))
        };
        #[track_caller]
        fn check(found: (&str, String, String), expected: (&str, &str, &str)) {
            assert_eq!((found.0, &*found.1, &*found.2), expected);
        }
        let reports = "the syncer renews its lease and reaches the cluster";
        check(
            ready(HeartbeatHealth::NeverReported, None, None),
            ("Unknown", NEVER_REPORTED, "the syncer has not reported yet"),
        );
        check(
            ready(HeartbeatHealth::Expired, None, None),
            ("Unknown", HEARTBEAT_EXPIRED, "the syncer has not renewed its lease for 40 s"),
        );
        check(ready(alive, reported("True"), None), ("True", "Reachable", reports));
        // A wrong address: the cluster was ready before it had ever been reached, and got workloads.
        check(
            ready(alive, None, None),
            ("Unknown", NEVER_REPORTED, "the syncer has not reached the physical cluster yet"),
        );
        check(ready(alive, reported("False"), None), ("False", "Unreachable", "no answer"));
        for health in [HeartbeatHealth::NeverReported, HeartbeatHealth::Expired, alive] {
            check(
                ready(health, reported("True"), connection_problems(false)),
                ("False", CANNOT_CONNECT, "there is no Secret"),
            );
        }
        // Workloads stay on a cluster that still works.
        let but = "the current connection works, but a new one would fail: there is no Secret";
        check(ready(alive, reported("True"), connection_problems(true)), ("True", "Reachable", but));
        check(
            ready(alive, reported("False"), connection_problems(true)),
            ("False", "Unreachable", "no answer"),
        );
    }
}
