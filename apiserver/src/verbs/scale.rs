//! Reading and writing how many there are of something.

use bytes::Bytes;
use http::{Response, StatusCode};
use openapi::resource::Verb;
use openapi::status::Status;
use serde_json::Value;
use storage::{Entry, Store};

use super::ATTEMPTS;
use super::create::warned;
use super::{get, patch, update};
use crate::body;
use crate::call::Call;
use crate::render::Style;
use crate::scale;
use crate::server::Body;

pub(crate) async fn scale(
    store: &dyn Store,
    verb: Verb,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let (name, _) = call.named()?;
    // The scale is an object like any other; what is stored is the object it is a view of.
    let whole = &Call { subresource: None, ..call.clone() };
    let view = &Call { row: scale::row(&call.row), ..whole.clone() };
    if verb == Verb::Get {
        return shown(whole, style, &get::find(store, whole).await?);
    }
    for _ in 0..ATTEMPTS {
        let entry = get::find(store, whole).await?;
        let old = whole.tree(&entry)?;
        let (sent, warnings) = match verb {
            Verb::Patch => patch::patched(view, scale::before(&call.row, &old), bytes)?,
            _ => {
                let sent = body::object(view, bytes)?;
                (sent.object, sent.warnings)
            }
        };
        update::named(view, name, &sent)?;
        // Who names a version or a uid means those of the object.
        update::expected(whole, name, &sent, &entry, update::Version::May)?;
        let new = scale::applied(&call.row, old, &sent)?;
        if let Some(entry) = update::replace(store, whole, &entry, new).await? {
            return Ok(warned(shown(whole, style, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

fn shown(whole: &Call, style: &Style, entry: &Entry) -> Result<Response<Body>, Status> {
    let view: Value = scale::of(&whole.row, &whole.tree(entry)?)?;
    style.answer_tree(StatusCode::OK, &view, openapi::catalog::scale_columns())
}
