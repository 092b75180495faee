//! Reads and writes the scale of an object.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::catalog::resource_info::Verb;
use openapi::defaulting;
use openapi::meta::status::Status;
use serde_json::Value;
use storage::{Entry, Store};

use crate::endpoints::ATTEMPTS;
use crate::endpoints::create::warned;
use crate::endpoints::patch::Media;
use crate::endpoints::{apply, get, patch, update};
use crate::http::body::Body;
use crate::registry::call::Call;
use crate::registry::decode;
use crate::registry::managed_fields;
use crate::registry::managed_fields::ManagedFields;
use crate::registry::scale;
use crate::response::render::Style;

pub(crate) async fn scale(
    store: &dyn Store,
    verb: Verb,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let (name, _) = call.name_and_key()?;
    // `view` is the request for the Scale, `object_call` for the stored object that the Scale is a view of.
    let object_call = &Call { subresource: None, ..call.clone() };
    let view = &Call { resource: scale::resource(&call.resource), ..call.clone() };
    if verb == Verb::Get {
        return scale_response(object_call, style, &get::find(store, object_call).await?);
    }
    for _ in 0..ATTEMPTS {
        let current = get::find_current(store, object_call).await?;
        let (sent, warnings, managed) = self::sent(verb, object_call, view, &current.object, bytes)?;
        update::check_name(view, name, &sent)?;
        // A resourceVersion or uid in the Scale is that of the stored object.
        update::expected(object_call, name, &sent, &current, update::Version::May)?;
        let managed = scale::managed_fields_of_object(object_call, &current.object, managed);
        let new = scale::applied(&call.resource, current.object.clone(), &sent)?;
        if let Some(entry) = update::replace(store, object_call, &current, new, managed).await? {
            return Ok(warned(scale_response(object_call, style, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Returns the new scale, the warnings about it, and its managed fields.
fn sent(
    verb: Verb,
    object_call: &Call,
    view: &Call,
    old: &Value,
    bytes: &[u8],
) -> Result<(Value, Vec<String>, Option<Value>), Status> {
    let mut live = scale::before(&object_call.resource, old);
    managed_fields::put(&mut live, scale::managed_fields(object_call, old));
    let (mut sent, warnings) = match verb {
        Verb::Patch if Media::of(view)? == Media::Apply => {
            let (config, warnings) = apply::config(view, bytes)?;
            let blank = defaulting::empty_object(&view.resource);
            let (sent, managed) = apply::settled(view, &live, &config, &blank)?;
            let managed = managed.after(view, &live, &sent);
            return Ok((sent, warnings, managed));
        }
        Verb::Patch => patch::patched(view, &live, bytes)?,
        _ => {
            let sent = decode::object(view, bytes)?;
            (sent.object, sent.warnings)
        }
    };
    let managed = ManagedFields::take(&mut sent);
    defaulting::apply_defaults(&view.resource, &mut sent);
    let managed = managed.after(view, &live, &sent);
    Ok((sent, warnings, managed))
}

fn scale_response(object_call: &Call, style: &Style, entry: &Entry) -> Result<Response<Body>, Status> {
    let view: Value = scale::of(&object_call.resource, &object_call.tree(entry)?)?;
    style.answer_tree(StatusCode::OK, &view, openapi::catalog::scale_columns())
}
