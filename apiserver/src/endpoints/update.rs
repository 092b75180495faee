//! Updates an object. Patches are committed here too.

use api::meta::field::FieldError;
use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::defaulting;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Change, CommitError, Entry, Expect, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::create::warned;
use crate::endpoints::{create, get};
use crate::http::body::Body;
use crate::objects::metadata;
use crate::objects::stored;
use crate::quota::Size;
use crate::registry::call::{Call, CurrentObject, unwritten};
use crate::registry::decode;
use crate::registry::deletion;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;
use crate::registry::metadata::{check_namespace, set_namespace};
use crate::registry::prepare;
use crate::registry::subresources;
use crate::registry::warnings;
use crate::response::render::Style;

/// Whether a write may or must name the version it replaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    May,
    Must,
}

pub(crate) async fn update(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let mut sent = decode::object(call, bytes)?;
    let managed = ManagedFields::take(&mut sent.object);
    let (name, _) = call.name_and_key()?;
    check_name(call, name, &sent.object)?;
    let creates = call.resource.create_on_update && call.subresource.is_none();
    let version = if call.resource.update_needs_version { Version::Must } else { Version::May };
    // With a resource version, an update fails if the object has changed. Without one it replaces any version.
    for _ in 0..ATTEMPTS {
        let (code, replaced, written) = match get::find_current(store, call).await {
            Err(status) if status.code == 404 && creates => {
                let made = create_in_place(store, call, name, &sent.object, managed.clone()).await?;
                (StatusCode::CREATED, None, made)
            }
            found => {
                let current = found?;
                expected(call, name, &sent.object, &current, version)?;
                let written = replace(store, call, &current, sent.object.clone(), managed.clone()).await?;
                (StatusCode::OK, Some(current.object), written)
            }
        };
        if let Some(entry) = written {
            let mut warnings = sent.warnings;
            warnings.extend(about(call, replaced.as_ref(), &sent.object));
            return Ok(warned(style.answer(code, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Returns the warnings about an object, unless the write is to a subresource.
pub(crate) fn about(call: &Call, old: Option<&Value>, object: &Value) -> Vec<String> {
    if call.subresource.is_some() { Vec::new() } else { warnings::about(&call.resource, old, object) }
}

/// Creates the object, for kinds that allow this with an update. The sent resource version is ignored, a sent uid is
/// refused.
async fn create_in_place(
    store: &dyn Store,
    call: &Call,
    name: &str,
    object: &Value,
    managed: ManagedFields,
) -> Result<Option<Entry>, Status> {
    call.authorization.authorize_create()?;
    same_uid(call, name, metadata::text(object, "uid"), "")?;
    let mut object = object.clone();
    metadata::of(&mut object)?.remove("resourceVersion");
    Ok(create::attempt(store, call, object, managed).await?.ok())
}

/// Checks that name and namespace of the body are those of the path.
pub(crate) fn check_name(call: &Call, name: &str, object: &Value) -> Result<(), Status> {
    match metadata::text(object, "name") {
        "" => Err(nameless(name)),
        sent_name if sent_name != name => Err(Status::bad_request(format!(
            "the name of the object ({sent_name}) does not match the name on the URL ({name})"
        ))),
        _ => check_namespace(call, object),
    }
}

/// Returns the error for an object without a name.
pub(crate) fn nameless(name: &str) -> Status {
    Status::bad_request(format!(
        "the name of the object ({name} based on URL) was undeterminable: name must be provided"
    ))
}

/// Checks the resource version and the uid of the sent object, if it has them. Some kinds require the resource version;
/// 0 counts as missing.
pub(crate) fn expected(
    call: &Call,
    name: &str,
    object: &Value,
    current: &CurrentObject,
    version: Version,
) -> Result<(), Status> {
    same_uid(call, name, metadata::text(object, "uid"), metadata::text(&current.object, "uid"))?;
    match metadata::text(object, "resourceVersion") {
        "" | "0" if version == Version::Must => {
            let error = FieldError::invalid("metadata.resourceVersion", 0, "must be specified for an update");
            // Kubernetes names the resource here, and the kind in all other errors.
            Err(Status::invalid(call.grouped(), name, &[error]))
        }
        "" | "0" => Ok(()),
        sent_version if sent_version != current.entry.revision().to_string() => {
            Err(Status::modified(call.grouped(), name))
        }
        _ => Ok(()),
    }
}

fn same_uid(call: &Call, name: &str, sent_uid: &str, uid: &str) -> Result<(), Status> {
    if sent_uid.is_empty() || sent_uid == uid {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {sent_uid}, UID in object meta: {uid}");
    Err(Status::conflict(call.grouped(), name, &why))
}

/// Replaces `current` by `new`, restricted to the fields that this request may change. Returns None on a conflict.
pub(crate) async fn replace(
    store: &dyn Store,
    call: &Call,
    current: &CurrentObject,
    mut new: Value,
    managed: ManagedFields,
) -> Result<Option<Entry>, Status> {
    let CurrentObject { entry, object: old } = current;
    set_namespace(call, &mut new)?;
    defaulting::apply_defaults(&call.resource, &mut new);
    let managed = managed.after(call, old, &new);
    confine(call, old, &mut new);
    let allocations = prepare::update(store, call, old, &mut new).await?;
    managed_fields::put(&mut new, managed);
    managed_fields::settle(old, &mut new);
    let replaced = write(store, call, entry, old, &new).await;
    match &replaced {
        Ok(Some(entry)) => allocations.done(store, entry.revision()).await,
        Ok(None) | Err(_) => allocations.undo(store).await,
    }
    replaced
}

async fn write(
    store: &dyn Store,
    call: &Call,
    entry: &Entry,
    old: &Value,
    new: &Value,
) -> Result<Option<Entry>, Status> {
    let (_, key) = call.name_and_key()?;
    let value = call.encode(new);
    // An update without a change is not written: no revision, no event.
    if stored::is_same(&value, entry.value()) {
        return Ok(Some(entry.clone()));
    }
    // Removing the last finalizer of a terminating object deletes it.
    let finished = is_finished(call, old, new);
    let change = if finished { Change::Delete } else { Change::Put(value.clone()) };
    let growth = match finished {
        true => Size::default(),
        false => Size::new(0, value.len()) - Size::new(0, entry.value().len()),
    };
    let reservation =
        call.authorization.reserve_quota((call.grouped(), call.name_and_key()?.0), growth).await?;
    let written = commit(store, call, entry, change).await?;
    if let Some(written) = &written {
        reservation.keep(written.revision());
    }
    Ok(written.map(|entry| Entry::new(key, entry.revision(), value)))
}

/// Commits a change, unless it is a dry run. Returns None on a conflict.
pub(crate) async fn commit(
    store: &dyn Store,
    call: &Call,
    entry: &Entry,
    change: Change,
) -> Result<Option<Entry>, Status> {
    let (name, key) = call.name_and_key()?;
    if call.query.dry_run() {
        return Ok(Some(entry.clone()));
    }
    match store.commit(key.clone(), Expect::Revision(entry.revision()), change).await {
        Ok(event) => {
            let removed = || Entry::new(key, event.revision, entry.value().clone());
            Ok(Some(event.current.unwrap_or_else(removed)))
        }
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
}

/// Reports whether this update removes a terminating object. A namespace is removed by its controller, through
/// `finalize`, once it is empty.
fn is_finished(call: &Call, old: &Value, new: &Value) -> bool {
    let is_emptied = call.subresource.as_deref() == Some("finalize")
        && new["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    match is_emptied {
        true => metadata::is_being_deleted(old) && !metadata::has_finalizers(new),
        false => deletion::ends_with(&call.resource, old, new),
    }
}

/// Keeps the fields that this request may not change. A subresource writes only its own fields; the main resource does
/// not write the status.
fn confine(call: &Call, old: &Value, new: &mut Value) {
    match (call.subresource.as_deref(), old.get("status")) {
        (Some(subresource), _) => *new = subresources::restrict_to(&call.resource, subresource, old, new),
        (None, _) if !call.resource.has_status() => {}
        (None, Some(status)) => new["status"] = status.clone(),
        (None, None) => drop(new.as_object_mut().and_then(|fields| fields.remove("status"))),
    }
}
