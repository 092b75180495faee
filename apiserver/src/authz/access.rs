//! Who reaches which logical cluster.
//!
//! ```text
//!   root            policy: access /clusters/team-a:*     ◄ in an ancestor: by the path from there
//!   └─ team-a       policy: access /clusters/dev
//!      └─ dev       policy: access /                      ◄ in the logical cluster itself
//! ```
//!
//! To reach `dev`, a user needs one of the three. It is a right on a path as any other, so roles grant it
//! (`holon:access` has the last), a cluster-admin of an ancestor has it by the star, and a user of the parent has
//! it for the parent alone. What a user may do inside is up to the logical cluster's own policy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::cluster::{Id, ROOT};
use futures::FutureExt;
use storage::{Range, ReadError, Revision, Store};

use crate::authn::identity::{ANONYMOUS, Identity};
use crate::authz::notifier::{PolicyNotifier, Topic};
use crate::authz::policy_index::Index;
use crate::clusters::logical_cluster;
use crate::clusters::records::LogicalClusterRecord;
use crate::keys;
use crate::keys::Collection;
use crate::quota::Quotas;
use crate::rbac::{Decision, Policy, Who};
use crate::request::attributes::Attributes;

/// The verb on a path that grants access.
const ACCESS: &str = "access";
/// The collections that open watches depend on: accounts and the objects their tokens are bound to, and logical clusters.
const FOLLOWED: &[Collection<'static>] = &[
    Collection { group: "", plural: "serviceaccounts" },
    Collection { group: "", plural: "secrets" },
    Collection { group: "", plural: "pods" },
    Collection { group: "", plural: "nodes" },
    logical_cluster::COLLECTION,
];
/// Before following again what could not be followed.
const PAUSE: Duration = Duration::from_millis(500);
/// Parents remembered. A record does not change and an id is born once, so what is remembered stays true; this bounds
/// how much of it there is, at some megabytes.
const PARENTS_MAX: usize = 1 << 16;

/// What decides for all logical clusters.
#[derive(Debug)]
pub struct Access {
    store: Arc<dyn Store>,
    index: Index,
    quotas: Arc<Quotas>,
    parents: Mutex<HashMap<Id, Option<Parent>>>,
}

#[derive(Clone, Debug)]
struct Parent {
    id: Id,
    /// The name of the child there.
    name: Arc<str>,
}

/// A logical cluster and those above it, each with the path that stands for the first in its policy.
pub(crate) type Lineage = Arc<[(Id, String)]>;

impl Access {
    pub fn new(seen: Arc<dyn Store>, index: Index, quotas: Arc<Quotas>) -> Access {
        Access { store: seen, index, quotas, parents: Mutex::default() }
    }

    /// Over a store that holds everything itself.
    pub fn plain(store: Arc<dyn Store>) -> Access {
        let index = Index::new(store.clone(), Policy::default());
        Access::new(store.clone(), index, Arc::new(Quotas::new(store)))
    }

    /// Follows the store, so that those who wait hear of changes. Goes on for as long as it is polled.
    pub async fn follow(&self) -> std::convert::Infallible {
        let ranges = FOLLOWED.iter().map(Collection::everywhere).chain([keys::all_signing()]);
        let objects = ranges.map(|range| self.follow_objects(range).boxed());
        tokio::select! {
            never = self.index.follow() => never,
            never = self.quotas.follow() => never,
            (never, ..) = futures::future::select_all(objects) => never,
        }
    }

    /// Tells those who wait for something in a range.
    async fn follow_objects(&self, range: Range) -> std::convert::Infallible {
        loop {
            let Err(error) = self.followed_objects(&range).await;
            tracing::debug!(%error, ?range, "a watch ended; starting it again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn followed_objects(&self, range: &Range) -> Result<std::convert::Infallible, ReadError> {
        let kept = self.index.kept();
        let now = kept.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        let mut watch = kept.watch(range.clone(), now).await?;
        // Changes before this sent no notification.
        self.notifier().notify_all();
        loop {
            let batch = watch.next().await?;
            self.notifier().notify(batch.events.into_iter().map(|event| Topic::Object(event.key)));
        }
    }

    pub(crate) fn notifier(&self) -> &Arc<PolicyNotifier> {
        self.index.notifier()
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn quotas(&self) -> &Arc<Quotas> {
        &self.quotas
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// From now on decisions know of every write that was answered before.
    pub(crate) async fn catch_up(&self) -> Result<(), ReadError> {
        let now = self.store.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        self.index.reach(now).await
    }

    /// The same, with the lineage of a logical cluster. None if there is no such.
    pub(crate) async fn lineage(&self, id: Id) -> Result<Option<Lineage>, ReadError> {
        let found = self.store.get(&keys::cluster_record(id)).await?;
        self.index.reach(found.revision).await?;
        let Some(record) = found.value.as_ref().and_then(LogicalClusterRecord::decode) else {
            return Ok(None);
        };
        self.remember(id, &record);
        let mut lineage = vec![(id, "/".to_owned())];
        let (mut at, mut path) = (id, String::new());
        while let Some(Parent { id, name }) = self.parent(at).await? {
            path = if path.is_empty() { name.to_string() } else { format!("{name}:{path}") };
            lineage.push((id, format!("/clusters/{path}")));
            at = id;
        }
        Ok(Some(lineage.into()))
    }

    /// The path of a logical cluster. None if there is no such.
    pub(crate) async fn path(&self, id: Id) -> Result<Option<String>, ReadError> {
        if id == Id::ROOT {
            return Ok(Some(ROOT.to_owned()));
        }
        let lineage = self.lineage(id).await?;
        let from_root = lineage.as_ref().and_then(|lineage| lineage.last()?.1.strip_prefix("/clusters/"));
        Ok(from_root.map(|path| format!("{ROOT}:{path}")))
    }

    /// The logical cluster directly beneath the root that this one is in, or is. All of it is one tenant's: the owner of
    /// it can make as many more beneath it as they like, and has no more by that.
    pub(crate) async fn tenant(&self, id: Id) -> Result<Id, ReadError> {
        let mut at = id;
        while let Some(parent) = self.parent(at).await?.filter(|parent| parent.id != Id::ROOT) {
            at = parent.id;
        }
        Ok(at)
    }

    async fn parent(&self, id: Id) -> Result<Option<Parent>, ReadError> {
        let known = self.parents.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(parent) = known {
            return Ok(parent);
        }
        let found = self.store.get(&keys::cluster_record(id)).await?.value;
        Ok(found
            .as_ref()
            .and_then(LogicalClusterRecord::decode)
            .and_then(|record| self.remember(id, &record)))
    }

    fn remember(&self, id: Id, record: &LogicalClusterRecord) -> Option<Parent> {
        let parent = record.parent.map(|id| Parent { id, name: record.name.as_str().into() });
        let mut parents = self.parents.lock().unwrap_or_else(PoisonError::into_inner);
        if parents.len() >= PARENTS_MAX {
            parents.clear();
        }
        parents.insert(id, parent.clone());
        parent
    }

    /// Whether an identity reaches a logical cluster. A service account reaches its own and no other.
    pub(crate) fn reaches(&self, identity: &Identity, lineage: &Lineage) -> bool {
        if let Some(home) = identity.home() {
            return lineage.first().is_some_and(|(id, _)| *id == home);
        }
        let granted = |(id, path): &(Id, String)| {
            let wanted = Attributes::Path { path: path.clone(), verb: ACCESS.to_owned() };
            self.may(identity, *id, &wanted).allowed
        };
        lineage.iter().any(granted)
    }

    /// Whether an identity may do something in a logical cluster that it reaches.
    pub(crate) fn may(&self, identity: &Identity, cluster: Id, wanted: &Attributes) -> Decision {
        if identity.is_administrator() {
            return Decision { allowed: true, reason: String::new() };
        }
        let anonymous = [ANONYMOUS.1.to_owned()];
        let who = match identity {
            Identity::Anonymous => Who { name: ANONYMOUS.0, groups: &anonymous },
            Identity::User(user) => Who { name: &user.name, groups: &user.groups },
        };
        self.index.read(cluster, |layers| layers.decide(who, wanted))
    }

    /// When a policy that matters for a logical cluster last changed.
    pub(crate) fn changed(&self, lineage: &Lineage) -> Revision {
        lineage.iter().map(|(id, _)| self.index.changed(*id)).max().unwrap_or_default()
    }
}
