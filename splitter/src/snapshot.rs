//! What the splitter knows.
//!
//! ```text
//!   server ──one watch per kind, over all logical clusters──► views ─┬─ of users' objects
//!                                                                     └─ of their copies in mailboxes
//!   LogicalClusters  ──► clusters: who is below whom, which are mailboxes
//!   PhysicalClusters ──► members:  what can be used from where
//! ```
//!
//! Users' logical clusters and mailboxes are logical clusters of one server, so one view of a kind has both: an object and
//! what became of it are seen in the order in which they happened.

pub(crate) mod cache_transform;
mod custom_kinds;
mod cycles;
pub(crate) mod freshness;
mod kinds;
mod logical_clusters;
pub(crate) mod mailbox_objects;
mod member_clusters;
pub(crate) mod placement_index;
pub(crate) mod pod_count;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::cluster::Id;
use api::fleet::{Distribution, Locator, Override, Placement, Resource, StatusRule};
use api::names::{GROUP, LOCATOR, PLACED, PROJECTED, TRUE, VERSION};
use controller::informer::{Key, Object, View};
use controller::kind::Kind;
use controller::remote::Remote;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use custom_kinds::{CustomKind, CustomKinds, KindChange};
pub use kinds::{KindClass, WatchedKind};
pub use logical_clusters::LogicalClusters;
pub use member_clusters::{ClusterChange, MemberCluster, MemberClusters};

/// An object by its kind and place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectRef {
    /// As [`Followed::name`].
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

/// The views of kinds that are not placed themselves.
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
        let ours = |row: Resource| view(Kind::new(GROUP, VERSION, row.plural, row.kind, row.namespaced));
        ConfigCaches {
            physical: ours(api::fleet::PhysicalCluster::RESOURCE),
            logical: view(Kind::new(GROUP, VERSION, "logicalclusters", "LogicalCluster", false)),
            namespaces: view(Kind::new("", "v1", "namespaces", "Namespace", false)),
            distributions: ours(Distribution::RESOURCE),
            placements: ours(Placement::RESOURCE),
            overrides: ours(Override::RESOURCE),
            status_rules: ours(StatusRule::RESOURCE),
            definitions: view(Kind::new(
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "CustomResourceDefinition",
                false,
            )),
        }
    }

    pub fn all(&self) -> [&Arc<View>; 8] {
        [
            &self.physical,
            &self.logical,
            &self.namespaces,
            &self.distributions,
            &self.placements,
            &self.overrides,
            &self.status_rules,
            &self.definitions,
        ]
    }
}

/// Everything that is known.
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

    pub fn clusters(&self) -> RwLockReadGuard<'_, LogicalClusters> {
        read(&self.clusters)
    }

    pub fn clusters_mut(&self) -> RwLockWriteGuard<'_, LogicalClusters> {
        write(&self.clusters)
    }

    /// Whoever looks at [`clusters`](Self::clusters) too looks at them first: two who did it the other way round could wait
    /// for each other.
    pub fn members(&self) -> RwLockReadGuard<'_, MemberClusters> {
        read(&self.members)
    }

    pub fn members_mut(&self) -> RwLockWriteGuard<'_, MemberClusters> {
        write(&self.members)
    }

    /// All kinds that are placed, need to be, or are shown.
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

    /// Follows a custom kind from now on, in this shape. What is known of it in the same shape stays known.
    pub(crate) fn add_kind(&self, shape: CustomKind) {
        let mut kinds = write(&self.kinds);
        // What is built in nobody defines anew.
        let is_kept = |known: &Arc<WatchedKind>| known.class != KindClass::Custom || known.shape() == shape;
        if !kinds.get(shape.kind.to_string().as_str()).is_some_and(is_kept) {
            let watched = Arc::new(WatchedKind::defined(shape));
            kinds.insert(watched.name.clone(), watched);
        }
    }

    /// Whether everything is known that a decision needs. Custom kinds come and go, and have only themselves to wait for.
    pub fn has_synced(&self) -> bool {
        let built_in = |watched: &&Arc<WatchedKind>| watched.class != KindClass::Custom;
        self.config.all().iter().all(|view| view.synced())
            && read(&self.kinds).values().filter(built_in).all(|watched| watched.view.synced())
    }

    /// Whether a logical cluster is known to be a mailbox.
    pub fn is_mailbox(&self, cluster: Id) -> bool {
        self.clusters().is_mailbox(cluster)
    }

    /// The logical cluster that a physical cluster is, by its path, if its own work could be placed there again.
    pub fn cycle_through(&self, member: &MemberCluster) -> Option<String> {
        let clusters = self.clusters();
        // Nearly all are real clusters.
        clusters.with_identity(member.identity()?)?;
        let members = self.members().all(&clusters);
        let id = cycles::closed_by(member, &members, &clusters)?;
        Some(clusters.path(id).map_or_else(|| id.to_string(), |path| path.to_string()))
    }

    /// An object as it is seen now.
    pub fn object(&self, subject: &ObjectRef) -> Option<Value> {
        let watched = self.by_resource(&subject.kind)?;
        watched.get(&subject.key)
    }

    /// All of a kind of our own in one logical cluster.
    pub fn list_own<T: DeserializeOwned>(&self, view: &View, cluster: Id) -> Vec<T> {
        let keys = view.keys_within(cluster, None);
        keys.iter().filter_map(|key| self.get_own(view, key)).collect()
    }

    /// One of a kind of our own.
    pub fn get_own<T: DeserializeOwned>(&self, view: &View, key: &Key) -> Option<T> {
        serde_json::from_str(view.get(key)?.text()).ok()
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
    pub fn of(object: &Object) -> Option<LabelsAndAnnotations> {
        #[derive(Deserialize)]
        struct Whole {
            metadata: LabelsAndAnnotations,
        }
        object.parse::<Whole>().map(|whole| whole.metadata)
    }
}

/// What an object in a mailbox, or one shown to a user, says about where it belongs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PlacementMarks {
    pub is_placed: bool,
    pub is_projected: bool,
    /// Of what is placed.
    pub locator: Option<Locator>,
}

impl PlacementMarks {
    pub fn of(object: &Object) -> PlacementMarks {
        let Some(tables) = LabelsAndAnnotations::of(object) else { return PlacementMarks::default() };
        let has = |name: &str| tables.labels.get(name).is_some_and(|value| value == TRUE);
        PlacementMarks {
            is_placed: has(PLACED),
            is_projected: has(PROJECTED),
            locator: tables.annotations.get(LOCATOR).and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}
