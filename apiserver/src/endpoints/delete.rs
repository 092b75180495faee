//! Deletes an object, or marks it as terminating.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Response, StatusCode};
use openapi::codec;
use openapi::codec::DecodeError;
use openapi::codec::protobuf;
use openapi::meta::status::Status;
use openapi::schema::builtin;
use serde_json::{Value, json};
use storage::{Entry, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::create::warned;
use crate::endpoints::{get, list};
use crate::http::body::Body;
use crate::keys::ObjectKey;
use crate::kinds::Kinds;
use crate::objects::metadata;
use crate::objects::selection::Selection;
use crate::objects::stored;
use crate::registry::allocation;
use crate::registry::call::{Call, unwritten};
use crate::registry::deletion;
use crate::registry::deletion::{DeleteOptions, Deleted, NotDeleted};
use crate::request::negotiation;
use crate::request::negotiation::Written;
use crate::response::render::Style;

const OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
/// Concurrent deletions of one collection: enough for the store to commit many in one batch.
const TOGETHER: usize = 64;

pub(crate) async fn delete(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let body = body(call, bytes)?;
    let options = DeleteOptions::parse(&body)?;
    let entry = get::find(store, call).await?;
    let (name, _) = call.name_and_key()?;
    let Some(deleted) = settle(store, call, name, entry, &options).await? else {
        return Err(call.not_found(name));
    };
    let response = match deleted {
        Deleted::Removed(entry, _) if call.resource.delete_answers_object => {
            style.answer(StatusCode::OK, &entry)?
        }
        Deleted::Removed(entry, _) => {
            let tree = stored::tree(&entry).unwrap_or_default();
            style.status(&Status::deleted(call.grouped(), name, metadata::text(&tree, "uid")))
        }
        // A legacy way to request foreground deletion. Its clients expect 202 Accepted.
        Deleted::Terminating(entry) if body["orphanDependents"] == json!(false) => {
            style.answer(StatusCode::ACCEPTED, &entry)?
        }
        Deleted::Terminating(entry) => style.answer(StatusCode::OK, &entry)?,
    };
    Ok(warned(response, &warnings(call, &options)))
}

/// Warns when a Job is deleted without a propagation policy: users often expect its pods to be deleted too.
fn warnings(call: &Call, options: &DeleteOptions) -> Vec<String> {
    match (&*call.resource.group, &*call.resource.plural, options.propagation) {
        ("batch", "jobs", None) => vec![
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
             remove them or set propagationPolicy=Orphan to suppress this warning"
                .to_owned(),
        ],
        _ => Vec::new(),
    }
}

/// Deletes all objects that a list with the same selectors returns.
pub(crate) async fn delete_collection(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::parse(&body(call, bytes)?)?;
    let selection = Selection::parse(&call.query, &call.resource)?;
    let listed = list::read(store, call, &selection).await?;
    let removals = stream::iter(listed.entries.iter().cloned()).map(async |entry| {
        let place =
            ObjectKey::of(entry.key()).ok_or_else(|| Status::internal("invalid object key in the store"))?;
        let namespace = place.namespace.map(str::to_owned);
        let one = Call { namespace, name: Some(place.name.to_owned()), ..call.clone() };
        settle(store, &one, place.name, entry.clone(), &options).await.map(drop)
    });
    removals.buffer_unordered(TOGETHER).try_collect::<()>().await?;
    list::list_of(&listed, style).await
}

/// Deletes an object. Decides again if another client changes it meanwhile. Returns None if it no longer exists.
async fn settle(
    store: &dyn Store,
    call: &Call,
    name: &str,
    mut entry: Entry,
    options: &DeleteOptions,
) -> Result<Option<Deleted>, Status> {
    for _ in 0..ATTEMPTS {
        call.validate_deletion(name, &entry).await?;
        match deletion::delete(store, &call.resource, call.key(name), &entry, options).await {
            Ok(deleted) => {
                release(store, call, &deleted, options).await;
                return Ok(Some(deleted));
            }
            Err(NotDeleted::Changed(Some(current))) => entry = current,
            Err(NotDeleted::Changed(None)) => return Ok(None),
            Err(NotDeleted::Refused(status)) => return Err(*status),
            Err(NotDeleted::Failed(error)) => return Err(unwritten(call, name, error)),
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Releases the allocations of a deleted Service at once, because its replacement may request the same ones. Also
/// deletes its Endpoints, so that a new Service of the same name does not start with the addresses of the old one.
async fn release(store: &dyn Store, call: &Call, deleted: &Deleted, options: &DeleteOptions) {
    let Deleted::Removed(entry, at) = deleted else { return };
    if options.dry_run || !allocation::concern(&call.resource) {
        return;
    }
    let service = stored::tree(entry).unwrap_or_default();
    allocation::release_all(store, call.cluster, &service, *at).await;
    let (namespace, name) = (metadata::text(&service, "namespace"), metadata::text(&service, "name"));
    let key = allocation::ENDPOINTS.key(call.cluster, Some(namespace), name);
    let Some(resource) = Kinds::built_in().find("", "v1", allocation::ENDPOINTS.plural) else { return };
    if let Ok(Some(entry)) = store.get(&key).await.map(|found| found.value)
        && let Err(error) = deletion::delete(store, resource, key, &entry, &DeleteOptions::default()).await
    {
        tracing::warn!(cluster = %call.cluster, name, ?error, "deleted a Service but not its Endpoints");
    }
}

/// Returns the options of a deletion: from the body, or from the query if there is no body. `dryRun` in the query
/// always counts: a dry run must never become a real deletion.
fn body(call: &Call, bytes: &[u8]) -> Result<Value, Status> {
    let mut options = match (bytes.is_empty(), negotiation::body(&call.headers)) {
        (true, _) => options_of_query(call)?,
        (false, Err(status)) => return Err(status),
        (false, Ok(Written::Protobuf)) => {
            protobuf::decode(bytes).map_err(|error| Status::bad_request(error.to_string()))?.value
        }
        (false, Ok(Written::Text(syntax))) => {
            // Decoded with the schema, so that an option of the wrong type is an error and is not ignored.
            let schema = builtin::schema(OPTIONS).expect("the built-in types have the options of a deletion");
            codec::decode_as(bytes, syntax, schema).map_err(unreadable)?.value
        }
    };
    let kind = options["kind"].as_str().unwrap_or("DeleteOptions");
    if !options.is_object() || kind != "DeleteOptions" {
        return Err(Status::bad_request(format!("{kind:?} cannot be handled as a DeleteOptions")));
    }
    if call.query.dry_run() {
        options["dryRun"] = json!(["All"]);
    }
    Ok(options)
}

fn unreadable(error: DecodeError) -> Status {
    Status::bad_request(match error {
        DecodeError::Json(why) => format!("couldn't get version/kind; json parse error: {why}"),
        other => other.to_string(),
    })
}

fn options_of_query(call: &Call) -> Result<Value, Status> {
    let mut options = json!({});
    let policy = call.query.text("propagationPolicy");
    if !policy.is_empty() {
        options["propagationPolicy"] = policy.into();
    }
    if !call.query.text("orphanDependents").is_empty() {
        options["orphanDependents"] = call.query.flag("orphanDependents").into();
    }
    match call.query.text("gracePeriodSeconds") {
        "" => {}
        text => {
            let seconds: i64 = text.parse().map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            })?;
            options["gracePeriodSeconds"] = seconds.into();
        }
    }
    Ok(options)
}
