//! Removing an object, or beginning to.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::decode;
use openapi::protobuf;
use openapi::status::Status;
use serde_json::{Value, json};
use storage::{Change, CommitError, Entry, Expect, Store};

use super::{get, list};
use crate::call::{Call, unwritten};
use crate::metadata;
use crate::negotiate::{self, Written};
use crate::query;
use crate::render::Style;
use crate::select::Selection;
use crate::server::Body;
use crate::special::{self, Holder};
use crate::stored;

/// How often to decide anew when somebody else changes the object meanwhile.
const ATTEMPTS: usize = 5;

/// What became of an object.
enum Deleted {
    Gone(Entry),
    /// It has finalizers, and says now that it is to go.
    Going(Entry),
}

pub(crate) async fn delete(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let options = options(call, bytes)?;
    let (name, _) = call.named()?;
    for _ in 0..ATTEMPTS {
        let entry = get::find(store, call).await?;
        match delete_entry(store, call, name, &entry, &options).await? {
            Some(Deleted::Gone(entry)) if call.row.delete_answers_object => {
                return style.answer(StatusCode::OK, &entry);
            }
            Some(Deleted::Gone(entry)) => {
                let tree = stored::tree(&entry).unwrap_or_default();
                let status = Status::deleted(call.grouped(), name, metadata::text(&tree, "uid"));
                return Ok(style.status(&status));
            }
            Some(Deleted::Going(entry)) => return style.answer(StatusCode::OK, &entry),
            None => {}
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Removes everything a list with the same selectors would show.
pub(crate) async fn delete_collection(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let options = options(call, bytes)?;
    let selection = Selection::parse(&call.query, &call.row)?;
    let listed = list::read(store, call, &selection).await?;
    for entry in &listed.entries {
        let tree = stored::tree(entry).unwrap_or_default();
        let name = metadata::text(&tree, "name").to_owned();
        let namespace = Some(metadata::text(&tree, "namespace")).filter(|namespace| !namespace.is_empty());
        let one = Call { namespace: namespace.map(str::to_owned), name: Some(name.clone()), ..call.clone() };
        // Somebody may have changed or removed it since it was listed; then it is decided on anew.
        for _ in 0..ATTEMPTS {
            let entry = match get::find(store, &one).await {
                Ok(entry) => entry,
                Err(status) if status.code == 404 => break,
                Err(status) => return Err(status),
            };
            if delete_entry(store, &one, &name, &entry, &options).await?.is_some() {
                break;
            }
        }
    }
    list::list_of(&listed, style)
}

fn options(call: &Call, bytes: &[u8]) -> Result<Value, Status> {
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    match negotiate::body(&call.headers)? {
        Written::Protobuf => protobuf::decode(bytes)
            .map(|decoded| decoded.value)
            .map_err(|e| Status::bad_request(e.to_string())),
        Written::Text(syntax) => decode::decode(bytes, syntax)
            .map(|decoded| decoded.value)
            .map_err(|e| Status::bad_request(e.to_string())),
    }
}

/// None if somebody was faster.
async fn delete_entry(
    store: &dyn Store,
    call: &Call,
    name: &str,
    entry: &Entry,
    options: &Value,
) -> Result<Option<Deleted>, Status> {
    let tree = stored::tree(entry).unwrap_or_default();
    preconditions(call, name, entry, metadata::text(&tree, "uid"), options)?;
    special::may_delete(call, name)?;
    let waits = metadata::has_finalizers(&tree) || Holder::of(&call.row).is_some();
    if waits && metadata::is_leaving(&tree) {
        return Ok(Some(Deleted::Going(entry.clone())));
    }
    let change = match waits {
        true => {
            let mut tree = marked(tree);
            special::leaving(&call.row, &mut tree);
            Change::Put(stored::encode(&tree))
        }
        false => Change::Delete,
    };
    if dry_run(call, options)? {
        return Ok(Some(match change {
            Change::Put(value) => Deleted::Going(Entry::new(call.key(name), entry.revision(), value)),
            Change::Delete => Deleted::Gone(entry.clone()),
        }));
    }
    match store.commit(call.key(name), Expect::Revision(entry.revision()), change).await {
        Ok(event) => Ok(Some(event.current.map_or(Deleted::Gone(entry.clone()), Deleted::Going))),
        Err(CommitError::Conflict { .. }) => Ok(None),
        Err(error) => Err(unwritten(call, name, error)),
    }
}

fn dry_run(call: &Call, options: &Value) -> Result<bool, Status> {
    let words = options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words: Vec<&str> = words.chain([call.query.text("dryRun")]).collect();
    query::dry_run(&words)
}

/// The object with the sign that it is to go.
pub(crate) fn marked(mut tree: Value) -> Value {
    tree["metadata"]["deletionTimestamp"] = metadata::now().into();
    tree["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    if let Some(generation) = tree["metadata"]["generation"].as_i64() {
        tree["metadata"]["generation"] = (generation + 1).into();
    }
    tree
}

fn preconditions(call: &Call, name: &str, entry: &Entry, uid: &str, options: &Value) -> Result<(), Status> {
    let wanted = |field: &str| options["preconditions"][field].as_str().unwrap_or_default().to_owned();
    let check = |what: &str, wanted: String, found: &str| {
        if wanted.is_empty() || wanted == found {
            return Ok(());
        }
        let why =
            format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}");
        Err(Status::conflict(call.grouped(), name, &why))
    };
    check("UID", wanted("uid"), uid)?;
    check("ResourceVersion", wanted("resourceVersion"), &entry.revision().to_string())
}
