//! Creates an object.

use api::cluster::Id;
use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Revision, Store};

use crate::clusters::logical_cluster;
use crate::clusters::records;
use crate::clusters::records::LogicalClusterRecord;
use crate::http::body::Body;
use crate::objects::metadata;
use crate::objects::store_errors::unreadable;
use crate::quota::Size;
use crate::registry::call::{Call, unwritten};
use crate::registry::decode;
use crate::registry::decode::Sent;
use crate::registry::managed_fields::ManagedFields;
use crate::registry::namespace_lifecycle;
use crate::registry::namespace_lifecycle::Parents;
use crate::registry::prepare;
use crate::registry::strategy::KindStrategy;
use crate::registry::warnings;
use crate::response::render::Style;

/// Number of generated names to try.
const ATTEMPTS: usize = 8;

pub(crate) async fn create(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let Sent { mut object, mut warnings } = decode::object(call, bytes)?;
    let managed = ManagedFields::take(&mut object);
    warnings.extend(warnings::about(&call.resource, None, &object));
    let made = match metadata::text(&object, "name").is_empty() {
        true => generated(store, call, &object, &managed).await?,
        false => match attempt(store, call, object, managed).await? {
            Ok(entry) => entry,
            Err(taken) => return Err(exists(store, call, &taken).await),
        },
    };
    Ok(warned(style.answer(StatusCode::CREATED, &made)?, &warnings))
}

/// Creates an object with a generated name. Tries again if a name is taken.
async fn generated(
    store: &dyn Store,
    call: &Call,
    object: &Value,
    managed: &ManagedFields,
) -> Result<Entry, Status> {
    let mut taken = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(store, call, object.clone(), managed.clone()).await? {
            Ok(entry) => return Ok(entry),
            Err(name) => taken = name,
        }
    }
    Err(Status::no_free_name(call.grouped(), &taken))
}

/// Returns the error for a name that is taken.
async fn exists(store: &dyn Store, call: &Call, name: &str) -> Status {
    let existing = store.get(&call.key(name)).await.ok().and_then(|existing| existing.value);
    match existing
        .and_then(|entry| call.tree(&entry).ok())
        .is_some_and(|tree| metadata::is_being_deleted(&tree))
    {
        true => Status::still_exists(call.grouped(), name),
        false => Status::already_exists(call.grouped(), name),
    }
}

/// Tries to create an object. Returns its name if that is taken.
pub(crate) async fn attempt(
    store: &dyn Store,
    call: &Call,
    mut object: Value,
    managed: ManagedFields,
) -> Result<Result<Entry, String>, Status> {
    let namespace = namespace_lifecycle::namespace(store, call).await?;
    let (name, allocations) = prepare::create(store, call, &mut object, managed).await?;
    let made = match namespace_lifecycle::definition(store, call, &name).await {
        Ok(definition) => {
            let before = Parents { namespace, definition };
            commit_among(store, call, &name, &object, &before).await
        }
        Err(status) => Err(status),
    };
    match &made {
        Ok(Some(entry)) => allocations.done(store, entry.revision()).await,
        Ok(None) | Err(_) => allocations.undo(store).await,
    }
    Ok(made?.ok_or(name))
}

/// Stores a new object and checks its parents again afterwards. Returns None if the name is taken.
async fn commit_among(
    store: &dyn Store,
    call: &Call,
    name: &str,
    object: &Value,
    before: &Parents,
) -> Result<Option<Entry>, Status> {
    let Some(entry) = commit(store, call, name, object).await? else { return Ok(None) };
    if let Err(status) = namespace_lifecycle::recheck(store, call, name, before).await {
        // If this fails, another client has already changed or deleted the object.
        let _ = store.commit(entry.key().clone(), Expect::Revision(entry.revision()), Change::Delete).await;
        return Err(status);
    }
    Ok(Some(entry))
}

/// Stores a new object. Returns None if the name is taken.
async fn commit(store: &dyn Store, call: &Call, name: &str, object: &Value) -> Result<Option<Entry>, Status> {
    let (key, value) = (call.key(name), call.encode(object));
    let id = logical_cluster::id(object)
        .filter(|_| KindStrategy::of(&call.resource) == Some(KindStrategy::LogicalCluster));
    if call.query.dry_run() || id.is_some() {
        let existing = store.get(&key).await.map_err(unreadable)?;
        if existing.value.is_some() {
            return Ok(None);
        }
    }
    let growth = Size::new(key.as_bytes().len(), value.len());
    let reservation = call.authorization.reserve_quota((call.grouped(), name), growth).await?;
    if call.query.dry_run() {
        return Ok(Some(Entry::new(key, Revision::ZERO, value)));
    }
    // The record of a logical cluster is written before the object that makes its path resolvable.
    if let Some(id) = id {
        let record = LogicalClusterRecord::new(call.cluster, name);
        records::write(store, id, &record).await.map_err(|error| unwritten(call, name, error))?;
    }
    let outcome = store.commit(key, Expect::Absent, Change::Put(value)).await;
    if let (Some(id), Err(error)) = (id, &outcome) {
        roll_back_record(store, id, error).await;
    }
    match outcome {
        Ok(event) => {
            reservation.keep(event.revision);
            Ok(event.current)
        }
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
}

/// Deletes the record of a logical cluster whose object was not written, so that no path leads to it. Keeps the record
/// if the object may have been written.
async fn roll_back_record(store: &dyn Store, id: Id, error: &CommitError) {
    if matches!(error, CommitError::Unknown { .. }) {
        return;
    }
    if let Err(error) = records::end(store, id).await {
        tracing::warn!(
            %id,
            %error,
            "cannot delete the record of a logical cluster that was not created; the cluster_records \
             controller retries"
        );
    }
}

/// Adds `Warning` headers to a response.
pub(crate) fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = format!("299 - \"{quoted}\"").parse() {
            response.headers_mut().append(http::header::WARNING, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::authorization::Authorization;
    use crate::keys;
    use crate::registry::strategy;
    use crate::request::query::Query;
    use serde_json::json;
    use storage::memory::Memory;
    use storage::{At, Boxed, Key, Listing, Page, Range, ReadError, Watch};

    /// A store whose reads return the state before any write, like a reader that is too slow.
    #[derive(Debug)]
    struct LateCommits(Memory);

    impl Store for LateCommits {
        fn get<'a>(&'a self, _: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
            Box::pin(async { Ok(At { revision: Revision::ZERO, value: None }) })
        }

        fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
            self.0.list(range, page)
        }

        fn commit(
            &self,
            key: Key,
            expect: Expect,
            change: Change,
        ) -> Boxed<'_, Result<storage::Event, CommitError>> {
            self.0.commit(key, expect, change)
        }

        fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
            self.0.watch(range, after)
        }

        fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
            self.0.compact(through)
        }
    }

    /// Two clients create a logical cluster of the same name, and both find the name free. Regression: the client that
    /// lost left the record of its logical cluster behind.
    #[tokio::test]
    async fn a_client_that_loses_the_race_for_a_name_leaves_no_record() {
        let store = LateCommits(Memory::new());
        let call = Call {
            cluster: Id::ROOT,
            reach: crate::request::info::Reach::One,
            resource: logical_cluster::resource().clone(),
            namespace: None,
            name: None,
            subresource: None,
            query: Query::parse(None),
            headers: http::HeaderMap::new(),
            identity: crate::authn::identity::Identity::Anonymous,
            authorization: Authorization::allow_all(),
            admission: crate::admission::Admission::default(),
        };
        let mut ids = Vec::new();
        for first in [true, false] {
            let mut object = json!({ "metadata": { "name": "a" } });
            strategy::prepare_for_create(&call.resource, "a", &mut object);
            ids.extend(logical_cluster::id(&object));
            assert_eq!(commit(&store, &call, "a", &object).await.unwrap().is_some(), first);
        }
        let records = store.list(keys::cluster_records(), Page::default()).await.unwrap().value.entries;
        let remaining: Vec<_> = records.iter().map(Entry::key).cloned().collect();
        assert_eq!(remaining, [keys::cluster_record(ids[0])]);
    }
}
