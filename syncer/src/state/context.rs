//! The context that the parts of one syncer share: clients, lease, queue, and the state of objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use api::names::HEARTBEAT;
use controller::informer::{Key, View};
use controller::kind::ResourceKind;
use controller::lease::Lease;
use controller::queue::Queue;
use controller::remote::{ObjectPath, Remote};
use serde_json::Value;
use tokio::sync::Notify;

use crate::mirror::{AnyObject, ClusterIdentity, LastApplied, SyncSnapshot, is_projection};
use crate::state::directory::{StateDirectory, StateHeader, StoredObject};
use crate::state::downstream::DownstreamView;
use crate::state::errors::SyncErrors;
use crate::state::kinds::{KindName, SyncedResource};
use crate::state::waiting::WaitingObjects;

/// The settings of a syncer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the PhysicalCluster.
    pub name: String,
    /// The id of the mailbox.
    pub mailbox: String,
    /// The state directory for the desired objects. Without it, a restarted syncer does nothing until it reaches Holon.
    pub directory: Option<PathBuf>,
    /// Encrypts the stored objects.
    pub encryption_key: Option<[u8; 32]>,
}

/// The kind and key of an object, which are the same in the mailbox and downstream.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ObjectId {
    pub(crate) kind: Arc<KindName>,
    pub(crate) key: Key,
}

impl ObjectId {
    pub(crate) fn new(kind: &KindName, key: Key) -> ObjectId {
        ObjectId { kind: Arc::new(kind.clone()), key }
    }
}

/// A kind that the syncer watches.
#[derive(Debug)]
pub(crate) struct WatchedKind {
    pub(crate) name: Arc<KindName>,
    pub(crate) resource: SyncedResource,
    pub(crate) mailbox: Arc<View>,
    /// `None` while the syncer does not watch it downstream.
    pub(crate) downstream: Option<Arc<DownstreamView>>,
}

/// The state of an object that the syncer keeps between two reconciles.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LastSync {
    pub(crate) sent: Option<LastApplied>,
    /// Fingerprints of the status that was last written into the mailbox, and of the status in the response.
    pub(crate) status: Option<(u64, u64)>,
    /// Fingerprint of the stored object.
    pub(crate) saved: Option<u64>,
    /// Fingerprint of the uid of the deleted downstream object. A view that lags may still have the object.
    pub(crate) deleted: Option<u64>,
}

/// An object in the mailbox and downstream.
#[derive(Debug)]
pub(crate) struct ObjectPair {
    pub(crate) watched: Arc<WatchedKind>,
    pub(crate) mailbox: Option<Value>,
    pub(crate) downstream: Option<Value>,
}

impl ObjectPair {
    /// Returns whether it is or was placed, as opposed to projected.
    pub(crate) fn is_placed(&self, mailbox_id: &str) -> bool {
        let is_ours = |downstream: &Value| AnyObject(downstream).mailbox() == Some(mailbox_id);
        match &self.mailbox {
            Some(object) if is_projection(object) => false,
            Some(object) if AnyObject(object).is_placed() => true,
            _ => self.downstream.as_ref().is_some_and(is_ours),
        }
    }
}

/// The state that the parts of a syncer share.
#[derive(Debug)]
pub(crate) struct SyncerContext {
    pub(crate) settings: Settings,
    pub(crate) mailbox: Remote,
    pub(crate) downstream: Remote,
    pub(crate) lease: Lease,
    pub(crate) queue: Queue<ObjectId>,
    pub(crate) errors: SyncErrors,
    pub(crate) directory: Option<StateDirectory>,
    /// Notified when the set of watched kinds may have to change.
    pub(crate) kinds_changed: Notify,
    /// Notified when the report has changed.
    pub(crate) report_due: Notify,
    /// Namespaces with placed objects. Projected kinds are watched in these only.
    namespaces: RwLock<BTreeSet<String>>,
    /// Whether the last attempt to renew the lease did not reach the mailbox.
    mailbox_unreachable: AtomicBool,
    /// The identity of this syncer in the annotation of namespaces. Empty without a state directory: then the
    /// annotation is not written.
    identity: String,
    /// Whether a namespace downstream names another leader.
    superseded: AtomicBool,
    /// 0: may not write; 1: may write downstream; 2: holds the lease.
    privilege: AtomicU8,
    rediscover: AtomicBool,
    reread_projected: AtomicBool,
    state: Mutex<SyncerState>,
}

#[derive(Debug)]
struct SyncerState {
    watched: BTreeMap<KindName, Arc<WatchedKind>>,
    last_sync: HashMap<ObjectId, LastSync>,
    waiting: WaitingObjects,
    cluster: ClusterIdentity,
    /// How often a check of the cluster's identity was requested.
    identity_checks: u64,
    header: StateHeader,
    /// Objects from the state directory, until the mailbox was listed.
    stored: HashMap<ObjectId, StoredObject>,
    /// Objects that are in the state directory, but no longer in the mailbox.
    orphans: BTreeSet<ObjectId>,
}

impl SyncerContext {
    pub(crate) fn new(
        mailbox: Remote,
        downstream: Remote,
        settings: Settings,
        header: StateHeader,
        stored: Vec<StoredObject>,
    ) -> SyncerContext {
        // A new holder name for every process: the previous one may still be writing.
        let holder = format!("{}-{:016x}", settings.name, rand::random::<u64>());
        let lease = Lease::new(mailbox.clone(), "kube-system", HEARTBEAT, &holder);
        let directory = settings
            .directory
            .clone()
            .map(|directory| StateDirectory::new(directory, settings.encryption_key));
        SyncerContext {
            settings,
            mailbox,
            downstream,
            lease,
            queue: Queue::new(),
            errors: SyncErrors::default(),
            directory,
            kinds_changed: Notify::new(),
            report_due: Notify::new(),
            namespaces: RwLock::new(stored.iter().map(|stored| stored.key().namespace).collect()),
            mailbox_unreachable: AtomicBool::new(false),
            identity: header.identity.clone(),
            superseded: AtomicBool::new(false),
            privilege: AtomicU8::new(0),
            rediscover: AtomicBool::new(false),
            reread_projected: AtomicBool::new(false),
            state: Mutex::new(SyncerState {
                watched: BTreeMap::new(),
                last_sync: HashMap::new(),
                waiting: WaitingObjects::default(),
                cluster: ClusterIdentity::Unknown,
                identity_checks: 0,
                header,
                stored: stored.into_iter().map(|stored| (id(&stored), stored)).collect(),
                orphans: BTreeSet::new(),
            }),
        }
    }

    /// Returns whether this syncer may write downstream: it holds the lease, or it held the lease last and cannot reach
    /// the mailbox, which has the lease.
    pub(crate) fn leads(&self) -> bool {
        let is_mailbox_lost =
            self.mailbox_unreachable.load(Ordering::Relaxed) && self.lease.other().is_none();
        self.lease.leads() || (is_mailbox_lost && !self.is_superseded() && self.state().header.led)
    }

    /// Returns the identity to write downstream, if this syncer holds the lease.
    pub(crate) fn leader(&self) -> Option<&str> {
        Some(&*self.identity).filter(|identity| !identity.is_empty() && self.lease.leads())
    }

    /// Observes the leader that a namespace downstream names. A syncer that cannot reach the mailbox learns of
    /// another leader this way.
    pub(crate) fn observe_leader(&self, leader: Option<&str>) {
        let is_other = leader.is_some_and(|leader| leader != self.identity);
        if is_other && !self.lease.leads() && !self.superseded.swap(true, Ordering::Relaxed) {
            self.report_due.notify_one();
        }
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    /// Resets `superseded`: this syncer holds the lease again.
    pub(crate) fn clear_superseded(&self) {
        self.superseded.store(false, Ordering::Relaxed);
    }

    pub(crate) fn set_mailbox_unreachable(&self, mailbox_unreachable: bool) {
        self.mailbox_unreachable.store(mailbox_unreachable, Ordering::Relaxed);
    }

    pub(crate) fn cluster(&self) -> ClusterIdentity {
        self.state().cluster
    }

    /// Returns the number of requested checks. Read it before a check, and pass it to `set_identity`.
    pub(crate) fn identity_checks(&self) -> u64 {
        self.state().identity_checks
    }

    /// Requests a check of the identity, because the address may lead to another cluster from now on. Nothing is
    /// written until then.
    pub(crate) fn recheck_identity(&self) {
        let mut state = self.state();
        state.identity_checks += 1;
        if state.cluster == ClusterIdentity::Same {
            state.cluster = ClusterIdentity::Unknown;
        }
        drop(state);
        self.report_due.notify_one();
    }

    /// Sets the result of a check that began after this many requests, and returns whether the identity changed. A
    /// result older than the last request is ignored.
    pub(crate) fn set_identity(&self, cluster: ClusterIdentity, identity_checks: u64) -> bool {
        let mut state = self.state();
        state.identity_checks == identity_checks && std::mem::replace(&mut state.cluster, cluster) != cluster
    }

    pub(crate) fn header(&self) -> StateHeader {
        self.state().header.clone()
    }

    /// Changes the header, also in the state directory.
    pub(crate) async fn update_header(&self, change: impl FnOnce(&mut StateHeader)) {
        let (before, after) = {
            let header = &mut self.state().header;
            let before = header.clone();
            change(header);
            (before, header.clone())
        };
        if let Some(directory) = &self.directory
            && before != after
            && let Err(error) = directory.save_header(after).await
        {
            tracing::warn!(%error, "cannot write the header of the state directory");
        }
    }

    pub(crate) fn watched(&self, name: &KindName) -> Option<Arc<WatchedKind>> {
        self.state().watched.get(name).cloned()
    }

    pub(crate) fn watched_kinds(&self) -> Vec<Arc<WatchedKind>> {
        self.state().watched.values().cloned().collect()
    }

    pub(crate) fn set_watched(&self, watched: WatchedKind) {
        self.state().watched.insert((*watched.name).clone(), Arc::new(watched));
    }

    pub(crate) fn unwatch(&self, name: &KindName) {
        self.state().watched.remove(name);
    }

    /// Returns the watched kind with this group and `kind`.
    pub(crate) fn watched_kind(&self, group: &str, kind: &str) -> Option<Arc<WatchedKind>> {
        let state = self.state();
        let mut all = state.watched.values();
        all.find(|watched| watched.name.group == group && watched.resource.kind.name == kind).cloned()
    }

    /// Returns whether all informers are synced, so that an object that is in none of their views does not exist.
    pub(crate) fn is_all_synced(&self) -> bool {
        let is_synced = |kind: &WatchedKind| match &kind.downstream {
            Some(downstream) => kind.mailbox.synced() && downstream.all_synced(),
            // Not watched downstream yet, which starts once an object of it is placed. The views of projected kinds
            // also have objects that are not placed.
            None => {
                kind.mailbox.synced()
                    && (kind.mailbox.is_empty()
                        || kind.name.is_projected()
                        || !kind.resource.is_served_downstream)
            }
        };
        self.watched_kinds().iter().all(|kind| is_synced(kind))
    }

    /// Returns an object in the mailbox and downstream. Until the mailbox was listed, the mailbox object is the stored
    /// one.
    pub(crate) fn pair(&self, id: &ObjectId) -> Option<ObjectPair> {
        let watched = self.watched(&id.kind)?;
        let kind = &watched.resource.kind;
        let mailbox = match watched.mailbox.known() {
            true => watched.mailbox.get(&id.key).map(|object| object.read(kind)),
            false => self.state().stored.get(id).map(|stored| stored.object.clone()),
        };
        let downstream =
            watched.downstream.as_ref().and_then(|downstream| Some(downstream.get(&id.key)?.read(kind)));
        Some(ObjectPair { watched, mailbox, downstream })
    }

    pub(crate) fn snapshot<'a>(&'a self, id: &ObjectId, pair: &'a ObjectPair) -> SyncSnapshot<'a> {
        let is_deleting = pair.mailbox.as_ref().is_some_and(|object| AnyObject(object).is_deleting());
        SyncSnapshot {
            mailbox_id: &self.settings.mailbox,
            mailbox: pair.mailbox.as_ref(),
            downstream: pair.downstream.as_ref(),
            sent: self.last_sync(id).sent,
            mailbox_synced: pair.watched.mailbox.synced(),
            // A kind that is not served has no objects. The syncer reads from the server before it relies on that.
            downstream_synced: !pair.watched.resource.is_served_downstream
                || pair.watched.downstream.as_ref().is_some_and(|view| view.synced(&id.key.namespace)),
            // The last holder of the lease may apply without it, but not delete.
            leads: if is_deleting { self.lease.leads() } else { self.leads() },
            leader: self.leader(),
            cluster: self.cluster(),
        }
    }

    pub(crate) fn last_sync(&self, id: &ObjectId) -> LastSync {
        self.state().last_sync.get(id).copied().unwrap_or_default()
    }

    pub(crate) fn update_last_sync(&self, id: &ObjectId, change: impl FnOnce(&mut LastSync)) {
        change(self.state().last_sync.entry(id.clone()).or_default());
    }

    pub(crate) fn forget(&self, id: &ObjectId) {
        self.state().last_sync.remove(id);
        self.errors.clear(id);
    }

    /// Adds a namespace with placed or projected objects. Returns whether it is new.
    pub(crate) fn add_namespace(&self, namespace: &str) -> bool {
        let is_new = !namespace.is_empty() && !self.has_namespace(namespace);
        if is_new {
            self.namespaces.write().expect("no holder of this lock panics").insert(namespace.to_owned());
        }
        is_new
    }

    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.read().expect("no holder of this lock panics").contains(namespace)
    }

    /// Returns all namespaces with placed or projected objects.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.namespaces.read().expect("no holder of this lock panics").iter().cloned().collect()
    }

    /// Waits: requeues `id` once an object with this uid is known.
    pub(crate) fn wait(&self, uid: &str, id: &ObjectId) {
        self.state().waiting.wait(uid, id);
    }

    pub(crate) fn wake(&self, uid: &str) {
        let woken = self.state().waiting.wake(uid);
        woken.into_iter().for_each(|id| self.queue.add(id));
    }

    /// Forgets the waits of an object that no longer exists.
    pub(crate) fn cancel_waits(&self, id: &ObjectId) {
        self.state().waiting.remove(id);
    }

    /// Requests discovery, because the mailbox or the physical cluster may serve other kinds from now on.
    pub(crate) fn rediscover(&self) {
        self.rediscover.store(true, Ordering::Relaxed);
        self.kinds_changed.notify_one();
    }

    /// Requests a relist of projected kinds: objects of ours may have created some that were skipped when they were
    /// read.
    pub(crate) fn reread_projected(&self) {
        self.reread_projected.store(true, Ordering::Relaxed);
        self.kinds_changed.notify_one();
    }

    /// Returns whether a relist was requested since the last call.
    pub(crate) fn take_reread_projected(&self) -> bool {
        self.reread_projected.swap(false, Ordering::Relaxed)
    }

    /// Returns whether discovery was requested since the last call.
    pub(crate) fn take_rediscover(&self) -> bool {
        self.rediscover.swap(false, Ordering::Relaxed)
    }

    /// Requeues all objects if this syncer has more privileges than before. Without the mailbox, the last holder of the
    /// lease may apply but not delete; the holder may do both.
    pub(crate) fn requeue_all_if_promoted(&self) {
        let privilege = u8::from(self.leads()) + u8::from(self.lease.leads());
        if privilege > self.privilege.swap(privilege, Ordering::Relaxed) {
            self.requeue_all();
        }
    }

    /// Requeues all objects.
    pub(crate) fn requeue_all(&self) {
        for watched in self.watched_kinds() {
            self.requeue_kind(&watched);
        }
    }

    /// Requeues all objects of a kind.
    pub(crate) fn requeue_kind(&self, watched: &WatchedKind) {
        let downstream = watched.downstream.as_ref().map(|downstream| downstream.keys()).unwrap_or_default();
        for key in watched.mailbox.keys().into_iter().chain(downstream) {
            self.queue.add(ObjectId { kind: watched.name.clone(), key });
        }
        let orphans = self.state().orphans.clone();
        let stored = self.stored().into_iter().chain(orphans).filter(|id| id.kind == watched.name);
        stored.for_each(|id| self.queue.add(id));
    }

    /// Requeues all mailbox objects of a namespace.
    pub(crate) fn requeue_namespace(&self, namespace: &str) {
        for watched in self.watched_kinds() {
            let keys = watched.mailbox.keys_in(namespace).into_iter();
            keys.for_each(|key| self.queue.add(ObjectId { kind: watched.name.clone(), key }));
        }
    }

    /// Returns the stored objects of kinds that were not listed in the mailbox yet.
    pub(crate) fn stored(&self) -> Vec<ObjectId> {
        self.state().stored.keys().cloned().collect()
    }

    pub(crate) fn stored_kinds(&self) -> Vec<ResourceKind> {
        self.state().stored.values().map(StoredObject::kind).collect()
    }

    /// Drops the stored objects of a kind after the mailbox was listed. Objects that the mailbox does not have are
    /// requeued as orphans.
    pub(crate) fn drop_stored(&self, name: &KindName) {
        let Some(watched) = self.watched(name) else { return };
        let mut state = self.state();
        let stored = std::mem::take(&mut state.stored).into_iter();
        let (of_kind, others) = stored.partition(|(id, _)| *id.kind == *name);
        state.stored = others;
        let of_kind: HashMap<ObjectId, StoredObject> = of_kind;
        let orphans = of_kind.into_keys().filter(|id| watched.mailbox.get(&id.key).is_none());
        for orphan in orphans {
            self.queue.add(orphan.clone());
            state.orphans.insert(orphan);
        }
    }

    pub(crate) fn is_orphan(&self, id: &ObjectId) -> bool {
        self.state().orphans.contains(id)
    }

    pub(crate) fn forget_orphan(&self, id: &ObjectId) {
        self.state().orphans.remove(id);
    }

    fn state(&self) -> MutexGuard<'_, SyncerState> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

fn id(stored: &StoredObject) -> ObjectId {
    let kind = stored.kind();
    ObjectId::new(&KindName::new(&kind.group, &kind.plural), stored.key())
}

/// Returns the address of an object.
pub(crate) fn place<'a>(pair: &'a WatchedKind, key: &'a Key) -> ObjectPath<'a> {
    ObjectPath::new(&pair.resource.kind, &key.namespace, &key.name)
}

/// Returns the key under which claims without an owner reference wait for a StatefulSet of their namespace.
pub(crate) fn claims_of(namespace: &str) -> String {
    format!("claims in {namespace}")
}
