//! The kinds of each logical cluster.
//!
//! ```text
//!   watch of definitions ─► logical clusters with changes ─► list of their definitions ─► pool ─► sets of kinds
//!   a kind is not found, or a discovery request ─────────────┘
//! ```
//!
//! Only logical clusters with definitions have an entry. It is always built from a list of all definitions of the
//! logical cluster at one revision, and an older list never replaces a newer one. So it does not matter who lists first
//! or how often.
//!
//! The watch delivers changes within moments. A request that must see all earlier definitions does not wait for the
//! watch but [lists](Registry::fresh) them, because another server on the same store may have written one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use api::cluster::Id;
use controller::tasks::Stop;
use openapi::catalog::resource_info::ResourceInfo;
use storage::{Entry, Page, ReadError, Revision, Store};
use tokio::sync::watch;

use crate::keys::ObjectKey;
use crate::kinds::definition::{DEFINITIONS, Definition};
use crate::kinds::pool::Pool;
use crate::kinds::{Custom, Kinds, Own};

/// Pause before listing again if the store is unavailable.
const PAUSE: Duration = Duration::from_secs(1);
/// Page size when all definitions are listed. They are large.
const PAGE_ENTRIES: usize = 100;

/// The kinds of all logical clusters.
#[derive(Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    /// The kinds that every logical cluster serves.
    common: Arc<Kinds>,
    by_cluster: RwLock<Clusters>,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Clusters {
    /// The logical clusters with definitions.
    served: HashMap<Id, ServedKinds>,
    /// The revision at which one of them last lost its definitions. An older list may still contain these.
    forgotten_at: Revision,
    /// The newest revision of any list so far.
    newest: Revision,
}

/// Whether a list was recent enough to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    Yes,
    TooOld,
}

/// The definitions of a logical cluster by revision. None for a kind that is not served.
type DefinitionRevisions = Vec<(Revision, Option<Custom>)>;

/// The kinds of one logical cluster.
#[derive(Debug)]
struct ServedKinds {
    /// The newest revision at which these were all its definitions.
    at: Revision,
    definitions: DefinitionRevisions,
    /// Watches of custom objects subscribe to this.
    kinds: watch::Sender<Arc<Kinds>>,
}

impl Registry {
    pub fn new(store: Arc<dyn Store>) -> Registry {
        let common = Kinds::built_in().clone();
        Registry { store, common, by_cluster: RwLock::default(), pool: Mutex::default() }
    }

    /// Adds kinds that every logical cluster serves. To be called before the first list.
    pub fn with_own(mut self, own: Own) -> Registry {
        self.common = Kinds::of_server(own);
        self
    }

    /// Returns the kinds that every logical cluster serves.
    pub(crate) fn common(&self) -> &Arc<Kinds> {
        &self.common
    }

    /// Returns the kinds of a logical cluster, as far as the watch has delivered them.
    pub(crate) fn of(&self, cluster: Id) -> Arc<Kinds> {
        match self.read().served.get(&cluster) {
            Some(served) => served.kinds.borrow().clone(),
            None => self.common.clone(),
        }
    }

    /// Returns the kinds of a logical cluster, including all definitions written before the call.
    pub(crate) async fn fresh(&self, cluster: Id) -> Result<Arc<Kinds>, ReadError> {
        loop {
            let read = self.store.list(DEFINITIONS.range(cluster, None), Page::default()).await?;
            if self.set(cluster, read.revision, &read.value.entries) == Noted::Yes {
                return Ok(self.of(cluster));
            }
        }
    }

    /// Looks up something in the kinds of a logical cluster. If it is not found, lists the definitions and looks again.
    pub(crate) async fn find<T>(
        &self,
        cluster: Id,
        find: impl Fn(&Kinds) -> Option<T>,
    ) -> Result<Option<T>, ReadError> {
        match find(&self.of(cluster)) {
            Some(found) => Ok(Some(found)),
            None => Ok(find(&*self.fresh(cluster).await?)),
        }
    }

    /// Returns the kinds of a logical cluster and their changes. None if it has no definitions.
    pub(crate) fn changes(&self, cluster: Id) -> Option<watch::Receiver<Arc<Kinds>>> {
        self.read().served.get(&cluster).map(|served| served.kinds.subscribe())
    }

    /// Returns a revision at or after all changes that are known here.
    pub(crate) fn newest(&self) -> Revision {
        self.read().newest
    }

    /// Returns a custom resource for a request to all logical clusters: that of the first one, by id, that serves it.
    pub(crate) fn anywhere(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceInfo>> {
        let clusters = self.read();
        let serving = clusters.served.iter().filter_map(|(id, served)| {
            Some((id, served.kinds.borrow().find(group, version, plural)?.clone()))
        });
        serving.min_by_key(|(id, _)| **id).map(|(_, resource)| resource)
    }

    /// Lists all definitions. Before that, only [`Registry::fresh`] returns correct kinds.
    pub async fn load(&self) -> Result<Revision, ReadError> {
        let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
        let mut clusters: HashMap<Id, Vec<Entry>> = HashMap::new();
        let revision = loop {
            let read = self.store.list(DEFINITIONS.everywhere(), page.clone()).await?;
            page.at = Some(read.revision);
            page.after = read.value.entries.last().map(|entry| entry.key().clone());
            for entry in read.value.entries {
                if let Some(place) = ObjectKey::of(entry.key()) {
                    clusters.entry(place.cluster).or_default().push(entry);
                }
            }
            if !read.value.more {
                break read.revision;
            }
        };
        // A logical cluster that has no definitions any more loses its kinds.
        let cached: Vec<Id> = self.read().served.keys().copied().collect();
        for cluster in cached {
            clusters.entry(cluster).or_default();
        }
        for (cluster, entries) in clusters {
            if self.set(cluster, revision, &entries) == Noted::TooOld {
                self.fresh(cluster).await?;
            }
        }
        Ok(revision)
    }

    /// Watches the definitions until `stop`.
    pub async fn follow(self: Arc<Self>, mut stop: Stop) -> Result<(), Infallible> {
        let following = async {
            loop {
                let Err(error) = self.follow_definitions().await;
                match error {
                    ReadError::Compacted { .. } => {
                        tracing::info!(
                            "the watch of custom resource definitions fell behind; listing them again"
                        )
                    }
                    error => {
                        tracing::warn!(%error, "cannot read custom resource definitions; trying again");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = following => {}
            () = stop.requested() => {}
        }
        Ok(())
    }

    async fn follow_definitions(&self) -> Result<Infallible, ReadError> {
        let begun = self.load().await?;
        let mut watch = self.store.watch(DEFINITIONS.everywhere(), begun).await?;
        loop {
            let events = watch.next().await?.events;
            let mut clusters: Vec<Id> =
                events.iter().filter_map(|event| Some(ObjectKey::of(&event.key)?.cluster)).collect();
            clusters.sort_unstable();
            clusters.dedup();
            for cluster in clusters {
                self.fresh(cluster).await?;
            }
            // A list that is older than these events and still in progress may contain deleted definitions.
            if let Some(event) = events.last() {
                let mut clusters = self.by_cluster.write().unwrap_or_else(PoisonError::into_inner);
                clusters.forgotten_at = event.revision.max(clusters.forgotten_at);
            }
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Clusters> {
        // No writer panics halfway.
        self.by_cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records all definitions of a logical cluster at a revision.
    pub(super) fn set(&self, cluster: Id, at: Revision, entries: &[Entry]) -> Noted {
        let Some(cached) = self.cached(cluster, at, entries) else {
            // The definitions are the same as before, only the revision is newer.
            let mut clusters = self.by_cluster.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(served) = clusters.served.get_mut(&cluster) {
                served.at = at.max(served.at);
            }
            return Noted::Yes;
        };
        let (definitions, kinds) = self.made(&cached, entries);
        let mut clusters = self.by_cluster.write().unwrap_or_else(PoisonError::into_inner);
        let Clusters { served, forgotten_at, newest } = &mut *clusters;
        *newest = at.max(*newest);
        match served.get_mut(&cluster) {
            Some(served) if served.at >= at => {}
            // Dropping the sender notifies the watches.
            Some(_) if definitions.is_empty() => {
                served.remove(&cluster);
                *forgotten_at = at.max(*forgotten_at);
            }
            Some(served) => {
                (served.at, served.definitions) = (at, definitions);
                served.kinds.send_if_modified(|before| {
                    let is_other = !Arc::ptr_eq(before, &kinds);
                    *before = kinds;
                    is_other
                });
            }
            None if definitions.is_empty() => {}
            None if at < *forgotten_at => return Noted::TooOld,
            None => {
                served.insert(cluster, ServedKinds { at, definitions, kinds: watch::Sender::new(kinds) });
            }
        }
        Noted::Yes
    }

    /// Returns the known kinds by the revisions of their definitions. None if the definitions did not change, or the
    /// list is not newer.
    fn cached(
        &self,
        cluster: Id,
        at: Revision,
        entries: &[Entry],
    ) -> Option<HashMap<Revision, Option<Custom>>> {
        let clusters = self.read();
        let Some(served) = clusters.served.get(&cluster) else {
            return (!entries.is_empty()).then(HashMap::new);
        };
        let revisions = entries.iter().map(Entry::revision);
        let is_same = served.definitions.iter().map(|(revision, _)| *revision).eq(revisions);
        (served.at < at && !is_same).then(|| served.definitions.iter().cloned().collect())
    }

    /// Returns the kinds of these definitions, reusing those that are known.
    fn made(
        &self,
        cached: &HashMap<Revision, Option<Custom>>,
        entries: &[Entry],
    ) -> (DefinitionRevisions, Arc<Kinds>) {
        let custom = |entry: &Entry| match cached.get(&entry.revision()) {
            Some(custom) => custom.clone(),
            None => self.custom(&Definition::of(entry)?),
        };
        let definitions: DefinitionRevisions =
            entries.iter().map(|entry| (entry.revision(), custom(entry))).collect();
        let customs = definitions.iter().filter_map(|(_, custom)| custom.clone()).collect();
        let kinds = self.pool().set(&self.common, customs);
        (definitions, kinds)
    }

    /// Compiles a definition, or returns None if that fails. A large one takes a while, so no lock is held meanwhile.
    fn custom(&self, definition: &Definition<'_>) -> Option<Custom> {
        let cached = self.pool().cached(definition);
        let kind = match cached {
            Some(kind) => kind,
            None => Arc::new(definition.kind()?),
        };
        Some(self.pool().custom(definition, kind))
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
