//! Changing part of an object.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use openapi::builtin;
use openapi::decode::{self, Syntax};
use openapi::patch::json::JsonPatch;
use openapi::patch::merge::MergePatch;
use openapi::patch::strategic::StrategicPatch;
use openapi::resource::Origin;
use openapi::status::Status;
use serde_json::Value;
use storage::Store;

use super::create::written;
use super::{get, update};
use crate::call::Call;
use crate::metadata;
use crate::render::Style;
use crate::server::Body;
use crate::stored;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A patch says what to change, not which version; so if somebody was faster it is made again on what is there.
const ATTEMPTS: usize = 5;

pub(crate) async fn patch(
    store: &dyn Store,
    call: &Call,
    style: &Style<'_>,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    let (name, _) = call.named()?;
    for _ in 0..ATTEMPTS {
        let entry = get::find(store, call).await?;
        let old = stored::tree(&entry).map_err(|error| Status::internal(&error.to_string()))?;
        let new = apply(call, old, bytes)?;
        let version = metadata::text(&new, "resourceVersion");
        if !version.is_empty() && version != entry.revision().to_string() {
            return Err(Status::modified(call.grouped(), name));
        }
        if let Some(entry) = update::replace(store, call, &entry, new).await? {
            return Ok(written(style, StatusCode::OK, &entry));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

fn apply(call: &Call, mut object: Value, bytes: &[u8]) -> Result<Value, Status> {
    let text = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim();
    let parsed = || {
        let decoded = decode::decode(bytes, Syntax::Json);
        decoded.map(|decoded| decoded.value).map_err(|error| Status::bad_request(error.to_string()))
    };
    let schema = builtin::schema(&call.row.type_name);
    match (media, schema) {
        (JSON_PATCH, _) => JsonPatch::parse(parsed()?).and_then(|patch| patch.apply(object)).map_err(|e| e.status()),
        (MERGE_PATCH, _) => {
            MergePatch::parse(parsed()?).map_err(|error| error.status())?.apply(&mut object);
            Ok(object)
        }
        (STRATEGIC_PATCH, Some(schema)) if call.row.origin == Origin::BuiltIn => {
            StrategicPatch::parse(parsed()?).and_then(|patch| patch.apply(object, schema)).map_err(|e| e.status())
        }
        _ => Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])),
    }
}
