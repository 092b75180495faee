//! Which logical cluster serves what.
//!
//! ```text
//!   definitions change ─► follow: whose? ─► read those of that logical cluster ─► pool ─► its set of kinds
//!   a kind is not found, or discovery is asked for ─────────┘
//! ```
//!
//! There is an entry for each logical cluster that defines something, and none for the others. It always comes from
//! reading all definitions of that logical cluster at one revision, and an older reading never replaces a newer one;
//! so it does not matter who reads first, or how often.
//!
//! Following brings news within moments. A request that must not miss a definition from before it does not
//! wait for it, but [reads](Registry::fresh): on a store of several servers another one may have written it.

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

/// Before reading again when the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// Definitions read together when everything is read. They are large.
const PAGE_ENTRIES: usize = 100;

/// Finds the kinds of a logical cluster.
#[derive(Debug)]
pub struct Registry {
    store: Arc<dyn Store>,
    /// What every logical cluster serves.
    common: Arc<Kinds>,
    by_cluster: RwLock<Clusters>,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Clusters {
    /// Of those that define something.
    served: HashMap<Id, Served>,
    /// When one of them last ceased to. A read from before that may contain it.
    forgotten_at: Revision,
    /// Everything noted is of this revision, or older.
    newest: Revision,
}

/// Whether a reading was new enough to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    Yes,
    TooOld,
}

/// The definitions of a logical cluster by the revisions they were written at; none for what is not served.
type Written = Vec<(Revision, Option<Custom>)>;

/// What one logical cluster serves.
#[derive(Debug)]
struct Served {
    /// When this was all there was.
    at: Revision,
    written: Written,
    /// A watch of objects of a kind also watches this.
    kinds: watch::Sender<Arc<Kinds>>,
}

impl Registry {
    pub fn new(store: Arc<dyn Store>) -> Registry {
        let common = Kinds::built_in().clone();
        Registry { store, common, by_cluster: RwLock::default(), pool: Mutex::default() }
    }

    /// Every logical cluster also serves these. To be said before anything is read.
    pub fn with_own(mut self, own: Own) -> Registry {
        self.common = Kinds::of_server(own);
        self
    }

    /// What every logical cluster serves, whatever it defines.
    pub(crate) fn common(&self) -> &Arc<Kinds> {
        &self.common
    }

    /// The kinds of a logical cluster, as far as the watch has delivered them.
    pub(crate) fn of(&self, cluster: Id) -> Arc<Kinds> {
        match self.read().served.get(&cluster) {
            Some(served) => served.kinds.borrow().clone(),
            None => self.common.clone(),
        }
    }

    /// The kinds of a logical cluster, with all definitions written before the call.
    pub(crate) async fn fresh(&self, cluster: Id) -> Result<Arc<Kinds>, ReadError> {
        loop {
            let read = self.store.list(DEFINITIONS.range(cluster, None), Page::default()).await?;
            if self.set(cluster, read.revision, &read.value.entries) == Noted::Yes {
                return Ok(self.of(cluster));
            }
        }
    }

    /// What `find` finds among the kinds of a logical cluster. If that is nothing, it may have been defined a moment ago.
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

    /// The kinds of a logical cluster and their changes; none if it defines nothing.
    pub(crate) fn changes(&self, cluster: Id) -> Option<watch::Receiver<Arc<Kinds>>> {
        self.read().served.get(&cluster).map(|served| served.kinds.subscribe())
    }

    /// What is noted here happened at this revision, or before.
    pub(crate) fn newest(&self) -> Revision {
        self.read().newest
    }

    /// A custom resource for a request to all logical clusters: that of the first, by id, which serves it.
    pub(crate) fn anywhere(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceInfo>> {
        let clusters = self.read();
        let serving = clusters.served.iter().filter_map(|(id, served)| {
            Some((id, served.kinds.borrow().find(group, version, plural)?.clone()))
        });
        serving.min_by_key(|(id, _)| **id).map(|(_, resource)| resource)
    }

    /// Reads all there are. Before that, only those who read anew get right answers.
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
        // Those that define nothing any more lose what they had.
        let known: Vec<Id> = self.read().served.keys().copied().collect();
        for cluster in known {
            clusters.entry(cluster).or_default();
        }
        for (cluster, entries) in clusters {
            if self.set(cluster, revision, &entries) == Noted::TooOld {
                self.fresh(cluster).await?;
            }
        }
        Ok(revision)
    }

    /// Follows what is defined until told to stop.
    pub async fn follow(self: Arc<Self>, mut stop: Stop) -> Result<(), Infallible> {
        let following = async {
            loop {
                let Err(error) = self.read_on().await;
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

    async fn read_on(&self) -> Result<Infallible, ReadError> {
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
            // A read from before that, still in progress, may contain deleted definitions.
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

    /// Takes note of all definitions of a logical cluster, as they were at a revision.
    pub(super) fn set(&self, cluster: Id, at: Revision, entries: &[Entry]) -> Noted {
        let Some(known) = self.known(cluster, at, entries) else {
            // What an older reading found since is not what there is.
            let mut clusters = self.by_cluster.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(served) = clusters.served.get_mut(&cluster) {
                served.at = at.max(served.at);
            }
            return Noted::Yes;
        };
        let (written, kinds) = self.made(&known, entries);
        let mut clusters = self.by_cluster.write().unwrap_or_else(PoisonError::into_inner);
        let Clusters { served, forgotten_at, newest } = &mut *clusters;
        *newest = at.max(*newest);
        match served.get_mut(&cluster) {
            Some(served) if served.at >= at => {}
            // Dropping it tells the watches.
            Some(_) if written.is_empty() => {
                served.remove(&cluster);
                *forgotten_at = at.max(*forgotten_at);
            }
            Some(served) => {
                (served.at, served.written) = (at, written);
                served.kinds.send_if_modified(|before| {
                    let is_other = !Arc::ptr_eq(before, &kinds);
                    *before = kinds;
                    is_other
                });
            }
            None if written.is_empty() => {}
            None if at < *forgotten_at => return Noted::TooOld,
            None => {
                served.insert(cluster, Served { at, written, kinds: watch::Sender::new(kinds) });
            }
        }
        Noted::Yes
    }

    /// The definitions of a logical cluster; none if they did not change.
    fn known(
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
        let is_same = served.written.iter().map(|(revision, _)| *revision).eq(revisions);
        (served.at < at && !is_same).then(|| served.written.iter().cloned().collect())
    }

    /// The kinds of these definitions, of which some may be known.
    fn made(&self, known: &HashMap<Revision, Option<Custom>>, entries: &[Entry]) -> (Written, Arc<Kinds>) {
        let custom = |entry: &Entry| match known.get(&entry.revision()) {
            Some(custom) => custom.clone(),
            None => self.custom(&Definition::of(entry)?),
        };
        let written: Written = entries.iter().map(|entry| (entry.revision(), custom(entry))).collect();
        let customs = written.iter().filter_map(|(_, custom)| custom.clone()).collect();
        let kinds = self.pool().set(&self.common, customs);
        (written, kinds)
    }

    /// A definition with its kind; none if it cannot be read. A large one takes a while to make, and no task that makes
    /// another waits for it.
    fn custom(&self, definition: &Definition<'_>) -> Option<Custom> {
        let known = self.pool().known(definition);
        let kind = match known {
            Some(kind) => kind,
            None => Arc::new(definition.kind()?),
        };
        Some(self.pool().custom(definition, kind))
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
