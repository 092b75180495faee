//! Access to logical clusters.
//!
//! ```text
//!   root            policy: access /clusters/team-a:*     ◄ in an ancestor: by the path from there
//!   └─ team-a       policy: access /clusters/dev
//!      └─ dev       policy: access /                      ◄ in the logical cluster itself
//! ```
//!
//! To reach `dev`, a user needs one of these three rights. It is a right on a path like any other, so roles grant it:
//! `holon:access` grants the last one, and the star of cluster-admin in an ancestor covers it. Access to a logical
//! cluster does not include access to its parent. The rights inside come from the logical cluster's own policy.

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
use crate::rbac::{Decision, Policy, UserInfo};
use crate::request::attributes::Attributes;

/// The verb on a path that grants access.
const ACCESS: &str = "access";
/// The collections that open watches depend on: service accounts, the objects that their tokens are bound to, and
/// logical clusters.
const FOLLOWED: &[Collection<'static>] = &[
    Collection { group: "", plural: "serviceaccounts" },
    Collection { group: "", plural: "secrets" },
    Collection { group: "", plural: "pods" },
    Collection { group: "", plural: "nodes" },
    logical_cluster::COLLECTION,
];
/// Pause before a failed watch starts again.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of cached parents, some megabytes. Records never change and ids are never reused, so cached parents
/// stay correct.
const PARENTS_MAX: usize = 1 << 16;

/// Decides about access to, and rights in, all logical clusters.
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
    /// The name of the child in this parent.
    name: Arc<str>,
}

/// A logical cluster and its ancestors, each with the path that stands for the first one in its policy.
pub(crate) type Lineage = Arc<[(Id, String)]>;

impl Access {
    pub fn new(store: Arc<dyn Store>, index: Index, quotas: Arc<Quotas>) -> Access {
        Access { store, index, quotas, parents: Mutex::default() }
    }

    /// Creates one for a store without bootstrap objects.
    pub fn plain(store: Arc<dyn Store>) -> Access {
        let index = Index::new(store.clone(), Policy::default());
        Access::new(store.clone(), index, Arc::new(Quotas::new(store)))
    }

    /// Follows the store and notifies subscribers of changes. Never returns.
    pub async fn follow(&self) -> std::convert::Infallible {
        let ranges = FOLLOWED.iter().map(Collection::everywhere).chain([keys::all_signing()]);
        let objects = ranges.map(|range| self.follow_objects(range).boxed());
        tokio::select! {
            never = self.index.follow() => never,
            never = self.quotas.follow() => never,
            (never, ..) = futures::future::select_all(objects) => never,
        }
    }

    /// Notifies the subscribers of objects in a range. Never returns.
    async fn follow_objects(&self, range: Range) -> std::convert::Infallible {
        loop {
            let Err(error) = self.followed_objects(&range).await;
            tracing::debug!(%error, ?range, "a watch ended; starting it again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn followed_objects(&self, range: &Range) -> Result<std::convert::Infallible, ReadError> {
        let inner_store = self.index.inner_store();
        let now = inner_store.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        let mut watch = inner_store.watch(range.clone(), now).await?;
        // Changes before the watch began sent no notification.
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

    /// Makes later decisions include every write that was acknowledged before the call.
    pub(crate) async fn catch_up(&self) -> Result<(), ReadError> {
        let now = self.store.get(&keys::cluster_record(Id::ROOT)).await?.revision;
        self.index.reach(now).await
    }

    /// Catches up, and returns the lineage of a logical cluster. None if the logical cluster does not exist.
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

    /// Returns the path of a logical cluster. None if it does not exist.
    pub(crate) async fn path(&self, id: Id) -> Result<Option<String>, ReadError> {
        if id == Id::ROOT {
            return Ok(Some(ROOT.to_owned()));
        }
        let lineage = self.lineage(id).await?;
        let from_root = lineage.as_ref().and_then(|lineage| lineage.last()?.1.strip_prefix("/clusters/"));
        Ok(from_root.map(|path| format!("{ROOT}:{path}")))
    }

    /// Returns the tenant of a logical cluster: its ancestor directly below the root, or itself. An owner can create
    /// any number of logical clusters below that one, and they all share its limits.
    pub(crate) async fn tenant(&self, id: Id) -> Result<Id, ReadError> {
        let mut at = id;
        while let Some(parent) = self.parent(at).await?.filter(|parent| parent.id != Id::ROOT) {
            at = parent.id;
        }
        Ok(at)
    }

    async fn parent(&self, id: Id) -> Result<Option<Parent>, ReadError> {
        let cached = self.parents.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(parent) = cached {
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

    /// Reports whether an identity reaches a logical cluster. A service account reaches only its own.
    pub(crate) fn reaches(&self, identity: &Identity, lineage: &Lineage) -> bool {
        if let Some(home) = identity.home() {
            return lineage.first().is_some_and(|(id, _)| *id == home);
        }
        let granted = |(id, path): &(Id, String)| {
            let attributes = Attributes::Path { path: path.clone(), verb: ACCESS.to_owned() };
            self.may(identity, *id, &attributes).allowed
        };
        lineage.iter().any(granted)
    }

    /// Decides whether an identity may send a request in a logical cluster that it reaches.
    pub(crate) fn may(&self, identity: &Identity, cluster: Id, attributes: &Attributes) -> Decision {
        if identity.is_administrator() {
            return Decision { allowed: true, reason: String::new() };
        }
        let anonymous = [ANONYMOUS.1.to_owned()];
        let user = match identity {
            Identity::Anonymous => UserInfo { name: ANONYMOUS.0, groups: &anonymous },
            Identity::User(user) => UserInfo { name: &user.name, groups: &user.groups },
        };
        self.index.read(cluster, |layers| layers.decide(user, attributes))
    }

    /// Returns the revision of the last change to a policy that matters for a logical cluster.
    pub(crate) fn changed(&self, lineage: &Lineage) -> Revision {
        lineage.iter().map(|(id, _)| self.index.changed(*id)).max().unwrap_or_default()
    }
}
