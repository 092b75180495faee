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
    let (name, _) = call.named()?;
    // `view` is the request for the Scale, `whole` for the stored object that the Scale is a view of.
    let whole = &Call { subresource: None, ..call.clone() };
    let view = &Call { resource: scale::resource(&call.resource), ..call.clone() };
    if verb == Verb::Get {
        return shown(whole, style, &get::find(store, whole).await?);
    }
    for _ in 0..ATTEMPTS {
        let current = get::find_current(store, whole).await?;
        let (sent, warnings, managed) = self::sent(verb, whole, view, &current.object, bytes)?;
        update::named(view, name, &sent)?;
        // A resourceVersion or uid in the Scale is that of the stored object.
        update::expected(whole, name, &sent, &current, update::Version::May)?;
        let managed = scale::managed_fields_of_object(whole, &current.object, managed);
        let new = scale::applied(&call.resource, current.object.clone(), &sent)?;
        if let Some(entry) = update::replace(store, whole, &current, new, managed).await? {
            return Ok(warned(shown(whole, style, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Returns the new scale, the warnings about it, and its managed fields.
fn sent(
    verb: Verb,
    whole: &Call,
    view: &Call,
    old: &Value,
    bytes: &[u8],
) -> Result<(Value, Vec<String>, Option<Value>), Status> {
    let mut live = scale::before(&whole.resource, old);
    managed_fields::put(&mut live, scale::managed_fields(whole, old));
    let (mut sent, warnings) = match verb {
        Verb::Patch if Media::of(view)? == Media::Apply => {
            let (config, warnings) = apply::config(view, bytes)?;
            let blank = defaulting::empty_object(&view.resource);
            let (sent, managed) = apply::settled(view, &live, &config, &blank)?;
            let managed = managed.after(view, &live, &sent);
            return Ok((sent, warnings, managed));
        }
        Verb::Patch => patch::patched(view, live.clone(), bytes)?,
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

fn shown(whole: &Call, style: &Style, entry: &Entry) -> Result<Response<Body>, Status> {
    let view: Value = scale::of(&whole.resource, &whole.tree(entry)?)?;
    style.answer_tree(StatusCode::OK, &view, openapi::catalog::scale_columns())
}
