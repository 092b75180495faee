//! The history of this server, for controllers in its process.
//!
//! ```text
//!   the store's history ─► changes of the followed collections ─► shared bytes, in the version that the reader follows
//! ```
//!
//! A controller that reads through [`local::client`](crate::local::client) has a watch per kind, and no order between
//! kinds. This reader has one cursor over the whole store. Its rights are checked once per kind, before anything of that
//! kind is read: its role is part of the program and does not change while it runs.
//!
//! Most objects are passed on as they are stored. Only objects that the store has in another form (of another version,
//! or from before a change of their schema) are decoded and converted, as in a list.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use api::cluster::Id;
use controller::history::{Boxed, ChangeBatch, Changes, History, HistoryError, ObjectChange, SharedObject};
use controller::informer::Key;
use controller::kind::ResourceKind;
use openapi::catalog::resource_info::ResourceInfo;
use openapi::conversion;
use storage::{Batch, Entry, Event, Page, Range, ReadError, Revision, Store, Watch};

use crate::authn::identity::Identity;
use crate::keys::{self, Collection, ObjectKey};
use crate::kinds::{Kinds, Registry};
use crate::objects::stored;
use crate::rbac::controller_role::GrantScope;
use crate::request::attributes::{Attributes, ResourceAttributes};
use crate::stack::Stack;

/// Entries per page of a list.
const PAGE_ENTRIES: usize = 1000;

/// Returns the history of a server as an identity may read it: an administrator, or a controller in this process.
pub fn history(stack: &Stack, identity: Identity) -> Arc<dyn History> {
    let source = HistorySource { store: stack.store().clone(), kinds: stack.kinds().clone() };
    Arc::new(ServerHistory { source, identity })
}

struct ServerHistory {
    source: HistorySource,
    identity: Identity,
}

impl fmt::Debug for ServerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the history as {}", self.identity.name())
    }
}

#[derive(Clone)]
struct HistorySource {
    store: Arc<dyn Store>,
    kinds: Arc<Registry>,
}

impl ServerHistory {
    /// Checks that the reader may list and watch a kind in all logical clusters.
    fn authorize(&self, kind: &ResourceKind) -> Result<(), HistoryError> {
        may_read(&self.identity, kind).map_err(|verb| {
            let name = self.identity.name();
            HistoryError::Forbidden(format!(
                "User {name:?} cannot {verb} resource \"{kind}\" in all logical clusters"
            ))
        })
    }
}

/// Returns the missing verb if an identity may not list and watch a kind in all logical clusters.
fn may_read(identity: &Identity, kind: &ResourceKind) -> Result<(), &'static str> {
    let allows = |verb: &'static str| {
        let attributes = Attributes::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: kind.group.clone(),
            version: kind.version.clone(),
            resource: kind.plural.clone(),
            ..ResourceAttributes::default()
        });
        let is_granted =
            identity.controller_role().is_some_and(|role| role.allows(&GrantScope::Everywhere, &attributes));
        if is_granted || identity.is_administrator() { Ok(()) } else { Err(verb) }
    };
    allows("list").and_then(|()| allows("watch"))
}

impl History for ServerHistory {
    fn newest(&self) -> Boxed<'_, Result<u64, HistoryError>> {
        Box::pin(async { Ok(self.source.newest().await.map_err(unreadable)?.0) })
    }

    fn list<'a>(
        &'a self,
        kind: &'a ResourceKind,
        at: u64,
    ) -> Boxed<'a, Result<Vec<SharedObject>, HistoryError>> {
        Box::pin(async move {
            self.authorize(kind)?;
            self.source.list(kind, Revision(at)).await.map_err(unreadable)
        })
    }

    fn changes(&self, after: u64) -> Boxed<'_, Result<Box<dyn Changes>, HistoryError>> {
        Box::pin(async move {
            let watch = self.source.store.watch(Range::all(), Revision(after)).await.map_err(unreadable)?;
            let (source, identity) = (self.source.clone(), self.identity.clone());
            let changes = ServerChanges { source, identity, watch, pending: None, followed: HashMap::new() };
            Ok(Box::new(changes) as Box<dyn Changes>)
        })
    }
}

/// A cursor over the whole store.
struct ServerChanges {
    source: HistorySource,
    identity: Identity,
    watch: Watch,
    /// Read from the store and not returned yet, so that dropping a future loses nothing.
    pending: Option<Batch>,
    /// By the prefix of the keys of the collection.
    followed: HashMap<String, FollowedKind>,
}

struct FollowedKind {
    kind: ResourceKind,
    number: usize,
}

impl Changes for ServerChanges {
    fn follow(&mut self, kind: &ResourceKind, number: usize) {
        // The list of a kind that may not be read fails, and reports why.
        if may_read(&self.identity, kind).is_ok() {
            let (prefix, kind) = (self.source.collection_of(kind).prefix(), kind.clone());
            self.followed.insert(prefix, FollowedKind { kind, number });
        }
    }

    fn next(&mut self, goal: Option<u64>) -> Boxed<'_, Result<ChangeBatch, HistoryError>> {
        Box::pin(async move {
            if self.pending.is_none() {
                let batch = match goal {
                    Some(goal) => self.watch.until(Revision(goal)).await,
                    None => self.watch.next().await.map(Some),
                };
                self.pending = batch.map_err(unreadable)?;
            }
            let Some(batch) = &self.pending else {
                return Ok(ChangeBatch { changes: Vec::new(), through: self.watch.through().0 });
            };
            let (mut changes, mut fresh) = (Vec::new(), FreshKinds::default());
            for event in &batch.events {
                changes.extend(self.change(event, &mut fresh).await.map_err(unreadable)?);
            }
            let through = batch.through.0;
            self.pending = None;
            Ok(ChangeBatch { changes, through })
        })
    }
}

impl ServerChanges {
    /// Returns the change of a followed object.
    async fn change(&self, event: &Event, fresh: &mut FreshKinds) -> Result<Option<ObjectChange>, ReadError> {
        let prefix = str::from_utf8(event.key.as_bytes()).ok().and_then(collection_prefix);
        let Some(FollowedKind { kind, number }) = prefix.and_then(|prefix| self.followed.get(prefix)) else {
            return Ok(None);
        };
        let (number, revision) = (*number, event.revision.0);
        if let Some(entry) = &event.current {
            match self.source.object(kind, entry, fresh).await? {
                ObjectState::Readable(object) => return Ok(Some(ObjectChange::Put { number, object })),
                // The last readable state is kept. To take it for a deletion would delete what was made from it.
                ObjectState::Unreadable => {
                    tracing::warn!(key = ?event.key, "cannot decode an object, whose change is ignored");
                    return Ok(None);
                }
                ObjectState::NotServed => {}
            }
        }
        let key = ObjectKey::of(&event.key).map(cache_key);
        Ok(key.map(|key| ObjectChange::Deleted { number, key, revision }))
    }
}

/// Returns the part of a key that all objects of its collection share: `apps/deployments/`.
fn collection_prefix(key: &str) -> Option<&str> {
    let group = key.find('/')? + 1;
    let plural = key[group..].find('/')? + 1;
    Some(&key[..group + plural])
}

fn cache_key(key: ObjectKey<'_>) -> Key {
    Key {
        cluster: Some(key.cluster),
        namespace: key.namespace.unwrap_or_default().to_owned(),
        name: key.name.to_owned(),
    }
}

impl HistorySource {
    async fn newest(&self) -> Result<Revision, ReadError> {
        Ok(self.store.get(&keys::cluster_record(Id::ROOT)).await?.revision)
    }

    async fn list(&self, kind: &ResourceKind, at: Revision) -> Result<Vec<SharedObject>, ReadError> {
        let range = self.collection_of(kind).everywhere();
        let mut page = Page { limit: Some(PAGE_ENTRIES), at: Some(at), ..Page::default() };
        let (mut objects, mut fresh) = (Vec::new(), FreshKinds::default());
        loop {
            let listing = self.store.list(range.clone(), page.clone()).await?.value;
            page.after = listing.entries.last().map(|entry| entry.key().clone());
            for entry in &listing.entries {
                match self.object(kind, entry, &mut fresh).await? {
                    ObjectState::Readable(object) => objects.push(object),
                    ObjectState::Unreadable => {
                        tracing::warn!(key = ?entry.key(), "cannot decode an object, which is ignored")
                    }
                    ObjectState::NotServed => {}
                }
            }
            if !listing.more {
                return Ok(objects);
            }
        }
    }

    /// Returns the collection in which objects of a kind are stored, which may be in another group.
    fn collection_of<'a>(&'a self, kind: &'a ResourceKind) -> Collection<'a> {
        let resource = self.kinds.common().find(&kind.group, &kind.version, &kind.plural);
        let stored_as = resource.and_then(|resource| resource.stored_as.as_ref());
        let group = stored_as.map_or(kind.group.as_str(), |(group, _)| group);
        Collection { group, plural: &kind.plural }
    }

    /// Returns an object in a version of its kind.
    async fn object(
        &self,
        kind: &ResourceKind,
        entry: &Entry,
        fresh: &mut FreshKinds,
    ) -> Result<ObjectState, ReadError> {
        let Some(key) = ObjectKey::of(entry.key()) else { return Ok(ObjectState::Unreadable) };
        let find = |kinds: &Kinds| kinds.find(&kind.group, &kind.version, &kind.plural).cloned();
        if let Some(resource) = find(self.kinds.common()) {
            return Ok(shared(&resource, key, entry));
        }
        if let Some(resource) = find(&self.kinds.of(key.cluster))
            && stored::is_as_stored(&resource, entry)
        {
            return Ok(shared(&resource, key, entry));
        }
        // The definition may have changed just before the object.
        let kinds = match fresh.get(&key.cluster) {
            Some(kinds) => kinds.clone(),
            None => {
                let kinds = self.kinds.fresh(key.cluster).await?;
                fresh.insert(key.cluster, kinds.clone());
                kinds
            }
        };
        Ok(find(&kinds).map_or(ObjectState::NotServed, |resource| shared(&resource, key, entry)))
    }
}

/// The kinds of logical clusters, read after the objects that are converted with them: once for a batch or a list, because
/// a tenant may have any number of objects that are stored in another version.
type FreshKinds = HashMap<Id, Arc<Kinds>>;

/// An object as a reader of its kind sees it.
enum ObjectState {
    Readable(SharedObject),
    /// Its logical cluster does not serve the kind in this version.
    NotServed,
    Unreadable,
}

/// Returns an object as clients of a resource see it.
fn shared(resource: &ResourceInfo, key: ObjectKey<'_>, entry: &Entry) -> ObjectState {
    let read = || {
        let stored_value = match stored::is_as_stored(resource, entry) {
            true => entry.value().clone(),
            false => stored::encode(&conversion::from_stored(resource, stored::tree(entry).ok()?)),
        };
        let (json, version_at) = stored::without_version(&stored_value)?;
        let uid = stored::uid(entry)?.to_owned();
        Some(SharedObject { key: cache_key(key), uid, revision: entry.revision().0, json, version_at })
    };
    read().map_or(ObjectState::Unreadable, ObjectState::Readable)
}

fn unreadable(error: ReadError) -> HistoryError {
    match error {
        ReadError::Compacted { .. } => HistoryError::Compacted,
        error => HistoryError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
