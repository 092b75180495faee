//! The caches of the splitter, and what is derived from them.
//!
//! ```text
//!   history of the server, of all logical clusters ──────────► caches ─┬─ of users' objects
//!                                                                      └─ of mailbox objects
//!   LogicalClusters  ──► clusters: their tree, which are mailboxes
//!   PhysicalClusters ──► members:  which are visible from where
//! ```
//!
//! Users' logical clusters and mailboxes are logical clusters of one server, so one cache of a kind has both: an object
//! and its mailbox objects are observed in the order in which they were written.

mod custom_kinds;
mod cycles;
pub(crate) mod followed;
mod kinds;
mod logical_clusters;
pub(crate) mod mailbox_objects;
mod member_clusters;
pub(crate) mod placement_index;
pub(crate) mod pod_count;
pub(crate) mod policy_index;
pub(crate) mod record;
pub(crate) mod related;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::cluster::Id;
use api::fleet::{Distribution, Locator, Override, Placement, Resource, StatusRule};
use api::names::{GROUP, LOCATOR, PLACED, PLACEMENT, PROJECTED, TRUE, VERSION};
use controller::informer::{CachedObject, FollowedView, Key, View};
use controller::kind::ResourceKind;
use controller::remote::Remote;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::placement_index::PolicyVersion;
pub(crate) use custom_kinds::{CustomKind, CustomKinds, KindChange};
pub use kinds::{KindClass, WatchedKind};
pub use logical_clusters::LogicalClusters;
pub(crate) use member_clusters::CIRCULAR;
pub use member_clusters::{ClusterChange, MemberCluster, MemberClusters, is_forgotten};

/// Refers to an object by resource, logical cluster, namespace and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    /// As [`WatchedKind::name`].
    pub kind: Arc<str>,
    pub key: Key,
}

impl ObjectRef {
    pub fn cluster(&self) -> Id {
        self.key.cluster.unwrap_or(Id::ROOT)
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// Caches of the kinds that configure the splitter and are not placed themselves.
#[derive(Debug)]
pub struct ConfigCaches {
    pub physical: Arc<View>,
    pub logical: Arc<View>,
    pub namespaces: Arc<View>,
    pub distributions: Arc<View>,
    pub placements: Arc<View>,
    pub overrides: Arc<View>,
    pub status_rules: Arc<View>,
    pub definitions: Arc<View>,
}

impl ConfigCaches {
    fn new() -> ConfigCaches {
        let view = |kind| Arc::new(View::new(kind));
        let ours =
            |row: Resource| view(ResourceKind::new(GROUP, VERSION, row.plural, row.kind, row.namespaced));
        ConfigCaches {
            physical: ours(api::fleet::PhysicalCluster::RESOURCE),
            logical: view(ResourceKind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false)),
            namespaces: view(ResourceKind::new("", "v1", "namespaces", "Namespace", false)),
            distributions: ours(Distribution::RESOURCE),
            placements: ours(Placement::RESOURCE),
            overrides: ours(Override::RESOURCE),
            status_rules: ours(StatusRule::RESOURCE),
            definitions: view(ResourceKind::new(
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "CustomResourceDefinition",
                false,
            )),
        }
    }

    /// Logical clusters first: whether one is a mailbox decides what the objects in it mean.
    pub fn all(&self) -> [&Arc<View>; 8] {
        [
            &self.logical,
            &self.physical,
            &self.namespaces,
            &self.distributions,
            &self.placements,
            &self.overrides,
            &self.status_rules,
            &self.definitions,
        ]
    }
}

/// The caches of the splitter: one per watched kind, and what is derived from LogicalClusters and PhysicalClusters.
#[derive(Debug)]
pub struct Caches {
    /// Reaches every logical cluster by its id.
    pub server: Remote,
    pub config: ConfigCaches,
    kinds: RwLock<BTreeMap<Arc<str>, Arc<WatchedKind>>>,
    clusters: RwLock<LogicalClusters>,
    members: RwLock<MemberClusters>,
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Caches {
    pub fn new(server: Remote) -> Caches {
        Caches {
            server,
            config: ConfigCaches::new(),
            kinds: RwLock::new(kinds::built_in()),
            clusters: RwLock::default(),
            members: RwLock::default(),
        }
    }

    /// All views of kinds that are known from the start.
    pub(crate) fn followed_views(&self) -> Vec<FollowedView> {
        let kinds = self.watched_kinds();
        let views = self.config.all().into_iter().chain(kinds.iter().map(|watched| &watched.view));
        views.map(followed::followed).collect()
    }

    pub fn clusters(&self) -> RwLockReadGuard<'_, LogicalClusters> {
        read(&self.clusters)
    }

    pub fn clusters_mut(&self) -> RwLockWriteGuard<'_, LogicalClusters> {
        write(&self.clusters)
    }

    /// A caller that also locks [`clusters`](Self::clusters) locks that first. Two callers with different orders could
    /// deadlock.
    pub fn members(&self) -> RwLockReadGuard<'_, MemberClusters> {
        read(&self.members)
    }

    pub fn members_mut(&self) -> RwLockWriteGuard<'_, MemberClusters> {
        write(&self.members)
    }

    /// All watched kinds: workloads, their dependencies, and projected kinds.
    pub fn watched_kinds(&self) -> Vec<Arc<WatchedKind>> {
        read(&self.kinds).values().cloned().collect()
    }

    pub fn by_resource(&self, name: &str) -> Option<Arc<WatchedKind>> {
        read(&self.kinds).get(name).cloned()
    }

    pub fn by_group_kind(&self, group: &str, kind: &str) -> Option<Arc<WatchedKind>> {
        let of = |one: &&Arc<WatchedKind>| one.kind.group == group && one.kind.name == kind;
        read(&self.kinds).values().find(of).cloned()
    }

    /// Whether the splitter follows built-in kinds of a group.
    pub(crate) fn has_built_in_group(&self, group: &str) -> bool {
        let built_in =
            |watched: &Arc<WatchedKind>| watched.class != KindClass::Custom && watched.kind.group == group;
        self.config.all().iter().any(|view| view.kind.group == group)
            || read(&self.kinds).values().any(built_in)
    }

    /// Adds a custom kind, or replaces it if its shape changed. A kind of the same shape keeps its cache.
    pub(crate) fn add_kind(&self, shape: CustomKind) {
        let mut kinds = write(&self.kinds);
        // A definition cannot replace a built-in kind.
        let is_unchanged =
            |known: &Arc<WatchedKind>| known.class != KindClass::Custom || known.shape() == shape;
        if !kinds.get(shape.kind.to_string().as_str()).is_some_and(is_unchanged) {
            let watched = Arc::new(WatchedKind::defined(shape));
            kinds.insert(watched.name.clone(), watched);
        }
    }

    /// Whether a logical cluster is a mailbox.
    pub fn is_mailbox(&self, cluster: Id) -> bool {
        self.clusters().is_mailbox(cluster)
    }

    /// The path of the logical cluster that a physical cluster is, if its own objects could be placed there again.
    pub fn cycle_through(&self, member: &MemberCluster) -> Option<String> {
        let clusters = self.clusters();
        // Returns early: nearly all physical clusters are real ones.
        clusters.with_identity(member.identity()?)?;
        let members = self.members().all(&clusters);
        let id = cycles::closed_by(member, &members, &clusters)?;
        Some(clusters.path(id).map_or_else(|| id.to_string(), |path| path.to_string()))
    }

    /// An object as the cache has it.
    pub fn object(&self, subject: &ObjectRef) -> Option<Value> {
        let watched = self.by_resource(&subject.kind)?;
        watched.get(&subject.key)
    }

    /// All objects of one of Holon's kinds in a logical cluster.
    pub fn list_own<T: DeserializeOwned>(&self, view: &View, cluster: Id) -> Vec<T> {
        let keys = view.keys_within(cluster, None);
        keys.iter().filter_map(|key| self.get_own(view, key)).collect()
    }

    /// An object of one of Holon's kinds. An invalid one counts as absent.
    pub fn get_own<T: DeserializeOwned>(&self, view: &View, key: &Key) -> Option<T> {
        let warn = |error: &serde_json::Error| {
            tracing::warn!(kind = %view.kind, object = %key, %error, "cannot decode the object, which is ignored");
        };
        view.get(key)?.try_parse().inspect_err(warn).ok()
    }

    /// The version of all that decides about every object of a namespace: its labels and its placement, that of its logical
    /// cluster, and Placements. A change of any of these queues all objects of the namespace.
    pub(crate) fn policies(&self, cluster: Id, namespace: &str) -> PolicyVersion {
        let mut hasher = DefaultHasher::new();
        let metadata = self.namespace(cluster, namespace);
        (&metadata.labels, metadata.annotations.get(PLACEMENT)).hash(&mut hasher);
        self.clusters().placement(cluster).hash(&mut hasher);
        let placements = self.list_own::<Placement>(&self.config.placements, cluster);
        let versions = placements.into_iter().map(|one| (one.metadata.uid, one.metadata.generation));
        versions.collect::<BTreeSet<_>>().hash(&mut hasher);
        hasher.finish()
    }

    /// Labels and annotations of a namespace.
    pub fn namespace(&self, cluster: Id, name: &str) -> LabelsAndAnnotations {
        let key = Key { cluster: Some(cluster), namespace: String::new(), name: name.to_owned() };
        self.config
            .namespaces
            .get(&key)
            .and_then(|found| LabelsAndAnnotations::of(&found))
            .unwrap_or_default()
    }
}

/// The labels and annotations of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LabelsAndAnnotations {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl LabelsAndAnnotations {
    pub fn of(object: &CachedObject) -> Option<LabelsAndAnnotations> {
        #[derive(Deserialize)]
        struct ObjectMetadata {
            metadata: LabelsAndAnnotations,
        }
        object.parse::<ObjectMetadata>().map(|object| object.metadata)
    }
}

/// The labels and annotations that identify the user's object of a mailbox object or a projection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacementMarks {
    pub is_placed: bool,
    pub is_projected: bool,
    /// Of a placed object.
    pub locator: Option<Locator>,
}

impl PlacementMarks {
    pub fn of(object: &CachedObject) -> PlacementMarks {
        let Some(metadata) = LabelsAndAnnotations::of(object) else { return PlacementMarks::default() };
        let has = |name: &str| metadata.labels.get(name).is_some_and(|value| value == TRUE);
        PlacementMarks {
            is_placed: has(PLACED),
            is_projected: has(PROJECTED),
            locator: metadata.annotations.get(LOCATOR).and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}
