//! What all reconcilers share: the caches, the indexes, the work queue, and what was reserved or written.

mod own_writes;
mod projection_index;
mod terminating;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::cluster::Id;
use api::names::{PLACEMENT, PROJECTED, TRUE};
use controller::history::History;
use controller::informer::{Follower, Key};
use controller::queue::Queue;
use controller::remote::Remote;
use controller::repeated_lines::RepeatedLines;
use serde_json::Value;

use crate::placement::reservations::{CapacityReservations, ClusterName};
use crate::snapshot::followed::followed;
use crate::snapshot::placement_index::PlacementIndex;
use crate::snapshot::policy_index::{PlacementCounts, PolicyKind};
use crate::snapshot::{Caches, CustomKinds, KindClass, MemberCluster, ObjectRef, WatchedKind};
use own_writes::OwnWrites;
use projection_index::ProjectionIndex;
use terminating::TerminatingNamespaces;

/// Delay that turns many events into one reconcile: of a Placement that counts its records, or of objects that wait for
/// capacity.
pub(crate) const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Requeue delay while something else has to be done first.
pub(crate) const PREREQUISITE_REQUEUE: Duration = Duration::from_millis(50);
/// The uid and generation of a policy.
type PolicyGeneration = (String, Option<i64>);

/// The address of this server for pods, and the certificate authority they verify it with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiEndpoint {
    pub host: String,
    pub port: u16,
    /// The PEM certificate of the authority that signed the serving certificate.
    pub authority: String,
}

/// A service account in a user's logical cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceAccountRef {
    pub cluster: Id,
    pub namespace: String,
    pub name: String,
}

/// A key in the work queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum WorkItem {
    /// A user's object.
    Object(ObjectRef),
    /// An object that is projected from a mailbox, by its key in the mailbox or in the user's logical cluster.
    Projected(ObjectRef),
    /// A PhysicalCluster: whether any record has it as a target.
    PhysicalCluster(Id, String),
    /// The Nodes of a logical cluster: the physical clusters it uses.
    Nodes(Id),
    /// The Secrets with which pods of a service account reach their logical cluster.
    ApiAccess(ServiceAccountRef),
    /// Which logical clusters may use the physical clusters that are registered in this one.
    Grants(Id),
    /// A user's namespace: its annotation with the targets, and its empty namespaces in mailboxes.
    Namespace(Id, String),
    /// A Placement, Override or StatusRule: its conditions and counts.
    Policy(PolicyKind, Id, String),
}

impl From<&ObjectRef> for WorkItem {
    fn from(object: &ObjectRef) -> WorkItem {
        WorkItem::Object(object.clone())
    }
}

impl From<&ServiceAccountRef> for WorkItem {
    fn from(account: &ServiceAccountRef) -> WorkItem {
        WorkItem::ApiAccess(account.clone())
    }
}

impl WorkItem {
    pub(crate) fn logical_cluster(&self) -> Id {
        match self {
            WorkItem::Object(object) | WorkItem::Projected(object) => object.cluster(),
            WorkItem::ApiAccess(account) => account.cluster,
            WorkItem::PhysicalCluster(cluster, _)
            | WorkItem::Nodes(cluster)
            | WorkItem::Grants(cluster)
            | WorkItem::Namespace(cluster, _)
            | WorkItem::Policy(_, cluster, _) => *cluster,
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkItem::Object(object) => write!(f, "{object}"),
            WorkItem::Projected(source) => write!(f, "projection of {source}"),
            WorkItem::PhysicalCluster(cluster, name) => write!(f, "physicalclusters {cluster}/{name}"),
            WorkItem::Nodes(cluster) => write!(f, "nodes of {cluster}"),
            WorkItem::ApiAccess(account) => {
                write!(f, "serviceaccounts {}/{}/{}", account.cluster, account.namespace, account.name)
            }
            WorkItem::Grants(cluster) => write!(f, "grants of {cluster}"),
            WorkItem::Namespace(cluster, name) => write!(f, "namespaces {cluster}/{name}"),
            WorkItem::Policy(policy, cluster, name) => write!(f, "{policy:?} {cluster}/{name}"),
        }
    }
}

/// The answers of the SubjectAccessReviews about the verb `use`.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// By physical cluster and logical cluster.
    pub(crate) answers: Mutex<HashMap<(ClusterName, Id), bool>>,
    /// A hash of the roles and bindings of an owner at the last reviews.
    pub(crate) policies: Mutex<HashMap<Id, u64>>,
}

/// Keeps mailboxes in the state that users' logical clusters request, and reports the results to users.
#[derive(Debug)]
pub struct Splitter {
    pub caches: Caches,
    pub queue: Queue<WorkItem>,
    /// The address at which pods reach this server. None if the server was started without one.
    pub(crate) api_endpoint: Option<ApiEndpoint>,
    /// Which logical clusters may use which physical clusters.
    pub(crate) grants: Grants,
    pub(crate) placement_index: Mutex<PlacementIndex>,
    pub(crate) reservations: Mutex<CapacityReservations>,
    pub(crate) placement_counts: Mutex<PlacementCounts>,
    /// Objects that wait for capacity on some physical cluster.
    pub(crate) waiting_for_capacity: Mutex<HashSet<ObjectRef>>,
    /// Which projections exist, and which wait for their owner.
    pub(crate) projections: ProjectionIndex,
    /// Keeps the caches equal to the history of the server.
    pub(crate) follower: Follower,
    /// Writes of the reconciles in progress.
    pub(crate) own_writes: OwnWrites,
    /// Namespaces of mailboxes that are being deleted.
    pub(crate) terminating: TerminatingNamespaces,
    /// Warnings and held objects that were logged in the last minute.
    pub(crate) repeated: RepeatedLines,
    /// A hash of the labels and the placement annotation of each namespace: only a change of those affects its objects.
    pub(crate) namespaces: Mutex<HashMap<Key, u64>>,
    /// The uid and generation of each policy. A change of its status is no change of the policy.
    pub(crate) policies: Mutex<HashMap<(PolicyKind, Id, String), PolicyGeneration>>,
    /// Which logical clusters define which custom kinds.
    pub(crate) definitions: Mutex<CustomKinds>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Splitter {
    /// `server` names no logical cluster; `history` is that of the same server.
    pub fn new(server: Remote, history: Arc<dyn History>) -> Splitter {
        Splitter {
            caches: Caches::new(server),
            queue: Queue::new(),
            api_endpoint: None,
            grants: Grants::default(),
            placement_index: Mutex::default(),
            reservations: Mutex::default(),
            placement_counts: Mutex::default(),
            waiting_for_capacity: Mutex::default(),
            projections: ProjectionIndex::default(),
            follower: Follower::new(history),
            own_writes: OwnWrites::default(),
            terminating: TerminatingNamespaces::default(),
            repeated: RepeatedLines::default(),
            namespaces: Mutex::default(),
            policies: Mutex::default(),
            definitions: Mutex::default(),
        }
    }

    /// Lets pods reach their logical cluster at this address.
    pub fn with_api_endpoint(self, api_endpoint: ApiEndpoint) -> Splitter {
        Splitter { api_endpoint: Some(api_endpoint), ..self }
    }

    /// The physical clusters that are visible from a logical cluster.
    pub(crate) fn visible_from(&self, cluster: Id) -> Vec<Arc<MemberCluster>> {
        let clusters = self.caches.clusters();
        self.caches.members().visible_from(cluster, &clusters)
    }

    /// Queues the objects that wait for capacity, after some became free. The delay batches several releases.
    pub(crate) fn enqueue_waiting_for_capacity(&self) {
        let short: Vec<ObjectRef> = lock(&self.waiting_for_capacity).drain().collect();
        short.into_iter().for_each(|subject| self.queue.add_after(WorkItem::Object(subject), BATCH_DELAY));
    }

    /// Lists the objects of a custom kind again: it is followed in another version, or served in further ones.
    pub(crate) fn list_again(&self, name: &str) {
        let custom = self.caches.by_resource(name).filter(|watched| watched.class == KindClass::Custom);
        custom.into_iter().for_each(|watched| self.follower.follow(followed(&watched.view)));
    }

    /// Queues every object that may be placed, of all logical clusters, of one, or of one namespace.
    pub(crate) fn enqueue_all(&self, cluster: Option<Id>, namespace: Option<&str>) {
        let placed = |watched: &&Arc<WatchedKind>| watched.class != KindClass::Projected;
        self.caches
            .watched_kinds()
            .iter()
            .filter(placed)
            .for_each(|watched| self.enqueue_kind(watched, cluster, namespace));
    }

    pub(crate) fn enqueue_kind(&self, watched: &WatchedKind, cluster: Option<Id>, namespace: Option<&str>) {
        let keys = match cluster {
            Some(cluster) => watched.view.keys_within(cluster, namespace),
            None => watched.view.keys(),
        };
        let clusters = self.caches.clusters();
        for key in keys.into_iter().filter(|key| key.cluster.is_some_and(|id| !clusters.is_mailbox(id))) {
            self.queue.add(WorkItem::Object(ObjectRef { kind: watched.name.clone(), key }));
        }
    }

    /// Whether all workloads of a namespace that could need a dependency are in the placement index.
    pub(crate) fn is_indexed(&self, cluster: api::cluster::Id, namespace: &str) -> bool {
        let is_workload =
            |watched: &WatchedKind| matches!(watched.class, KindClass::Workload | KindClass::Custom);
        self.caches.watched_kinds().iter().filter(|watched| is_workload(watched)).all(|watched| {
            watched.view.forbidden().is_some()
                || watched.view.synced()
                    && watched.view.keys_within(cluster, Some(namespace)).into_iter().all(|key| {
                        let subject = ObjectRef { kind: watched.name.clone(), key };
                        let known = lock(&self.placement_index).get(&subject).is_some();
                        known
                            || watched
                                .get(&subject.key)
                                .is_none_or(|object| !has_own_placement(self, watched, &subject, &object))
                    })
        })
    }

    /// Queues all objects of a kind in a namespace.
    pub(crate) fn enqueue_kind_in_namespace(&self, kind: &str, cluster: api::cluster::Id, namespace: &str) {
        let Some(watched) = self.caches.by_resource(kind) else { return };
        for key in watched.view.keys_within(cluster, Some(namespace)) {
            self.queue.add(WorkItem::Object(ObjectRef { kind: watched.name.clone(), key }));
        }
    }
}

/// Whether an object has a placement of its own, and does not follow others.
pub(crate) fn has_own_placement(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
) -> bool {
    let metadata = &object["metadata"];
    if metadata["labels"][PROJECTED] == TRUE {
        return false;
    }
    let members = splitter.visible_from(subject.cluster());
    // Without physical clusters, a logical cluster only stores objects.
    if members.is_empty() {
        return false;
    }
    let is_annotated = metadata["annotations"][PLACEMENT].is_string();
    match watched.class {
        KindClass::Workload => !is_owned_by_workload(object),
        KindClass::Custom => {
            let served = |member: &Arc<MemberCluster>| {
                let status = member.object.status.as_ref();
                let kinds = status.map_or(&[][..], |status| &status.kinds);
                kinds.iter().any(|kind| kind.group == watched.kind.group && kind.kind == watched.kind.name)
            };
            is_annotated || members.iter().any(served)
        }
        KindClass::Dependency | KindClass::FollowsPods => is_annotated,
        KindClass::Projected => false,
    }
}

/// Controllers of these kinds create objects of others of them. The placement of the owner decides for the owned object.
const WORKLOAD_OWNERS: &[&str] =
    &["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"];

fn is_owned_by_workload(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| {
        owner["controller"] == true
            && owner["kind"].as_str().is_some_and(|kind| WORKLOAD_OWNERS.contains(&kind))
    })
}
