//! Patches an object.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use openapi::codec;
use openapi::codec::typed;
use openapi::codec::typed::{Mismatch, StrictDecodingError};
use openapi::codec::{DecodeError, Decoded, Syntax};
use openapi::meta::status::Status;
use openapi::patch::json::JsonPatch;
use openapi::patch::merge::MergePatch;
use openapi::patch::strategic::StrategicPatch;
use openapi::patch::{self, PatchError};
use openapi::schema::Origin;
use openapi::schema::Schema;
use serde_json::Value;
use storage::Store;

use crate::endpoints::ATTEMPTS;
use crate::endpoints::create::warned;
use crate::endpoints::update::Version;
use crate::endpoints::{apply, get, update};
use crate::http::body::Body;
use crate::registry::call::Call;
use crate::registry::decode;
use crate::registry::managed_fields::ManagedFields;
use crate::response::render::Style;

const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const PATCHES_OF_CUSTOM: &[&str] = &[JSON_PATCH, MERGE_PATCH, "application/apply-patch+yaml"];
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// The message of Kubernetes for a list where it expects an object.
const KIND_OF_A_LIST: &str = "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value \
    of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
    \"json:\\\"kind,omitempty\\\"\" }";

pub(crate) async fn patch(
    store: &dyn Store,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Result<Response<Body>, Status> {
    if Media::of(call)? == Media::Apply {
        return apply::apply(store, call, style, bytes).await;
    }
    let (name, _) = call.name_and_key()?;
    for _ in 0..ATTEMPTS {
        let current = get::find_current(store, call).await?;
        let (mut new, mut warnings) = patched(call, &current.object, bytes)?;
        update::check_name(call, name, &new)?;
        apply::same_uid(call, name, &current.object, &new)?;
        update::expected(call, name, &new, &current, Version::May)?;
        warnings.extend(update::about(call, Some(&current.object), &new));
        let managed = ManagedFields::take(&mut new);
        if let Some(entry) = update::replace(store, call, &current, new, managed).await? {
            return Ok(warned(style.answer(StatusCode::OK, &entry)?, &warnings));
        }
    }
    Err(Status::modified(call.grouped(), name))
}

/// Returns a patched object and the warnings about it.
pub(crate) fn patched(call: &Call, old: &Value, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let media = Media::of(call)?;
    let patched = apply(call, media, old.clone(), bytes)?;
    decode_patched(call, patched, || invalid_text(call, media, old, bytes))
}

/// The type of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Media {
    Apply,
    Json,
    Merge,
    Strategic,
}

impl Media {
    pub(crate) fn of(call: &Call) -> Result<Media, Status> {
        let text = call.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match text.split(';').next().unwrap_or_default().trim() {
            APPLY_PATCH => Ok(Media::Apply),
            JSON_PATCH => Ok(Media::Json),
            MERGE_PATCH => Ok(Media::Merge),
            STRATEGIC_PATCH if call.resource.origin == Origin::BuiltIn => Ok(Media::Strategic),
            // Kubernetes has two messages for this, one for built-in and one for custom kinds.
            _ if call.resource.origin == Origin::Custom => {
                Err(Status::unsupported_media_type(PATCHES_OF_CUSTOM))
            }
            _ => Err(Status::unknown_patch_type()),
        }
    }
}

/// The patched object, before it is decoded.
struct Patched {
    object: Value,
    /// Warnings about the patch itself.
    strict_errors: Vec<StrictDecodingError>,
    /// The decoder whose errors match those of Kubernetes for this patch type.
    decode_tree: fn(Value, &Schema) -> Result<Decoded, Mismatch>,
}

fn apply(call: &Call, media: Media, mut object: Value, bytes: &[u8]) -> Result<Patched, Status> {
    let unreadable = |error: DecodeError| match media {
        Media::Strategic => Status::bad_request(error.to_string()),
        _ => Status::bad_request(format!("error decoding patch: {error}")),
    };
    let Decoded { value: parsed, mut strict_errors } =
        codec::decode(bytes, Syntax::Json).map_err(unreadable)?;
    let refused = |error: PatchError| {
        tracing::debug!(%error, "patch does not apply");
        error.status()
    };
    match (media, call.resource.schema()) {
        (Media::Strategic, Some(schema)) => {
            let patch = StrategicPatch::parse(parsed).map_err(refused)?;
            object = patch.apply(object, schema).map_err(refused)?;
            // A strategic merge patch cannot change the kind.
            object["apiVersion"] = call.resource.api_version().into();
            object["kind"] = call.resource.kind.to_string().into();
            return Ok(Patched { object, strict_errors, decode_tree: typed::convert_tree });
        }
        (Media::Strategic, None) | (Media::Apply, _) => return Err(Status::unknown_patch_type()),
        (Media::Json, _) => {
            let patch = JsonPatch::parse(parsed).map_err(refused)?;
            strict_errors = strict_errors
                .into_iter()
                .map(|error| StrictDecodingError::JsonPatch(Box::new(error)))
                .collect();
            strict_errors.extend(patch.strict_errors.iter().cloned());
            object = patch.apply(object).map_err(refused)?;
        }
        (Media::Merge, _) => MergePatch::parse(parsed).map_err(refused)?.apply(&mut object),
    }
    Ok(Patched { object, strict_errors, decode_tree: typed::decode_tree })
}

/// Returns the text that Kubernetes puts into the error for an invalid result: the patch if it is a strategic merge
/// patch, otherwise the patched object. Applies the patch once more, because serializing every patched object would
/// cost each valid patch as much as a response.
fn invalid_text(call: &Call, media: Media, old: &Value, bytes: &[u8]) -> String {
    if media != Media::Strategic {
        return apply(call, media, old.clone(), bytes)
            .map_or_else(|_| String::new(), |patched| patched.object.to_string());
    }
    let parsed = codec::decode(bytes, Syntax::Json).ok().map(|decoded| decoded.value);
    let patch = parsed.and_then(|parsed| StrategicPatch::parse(parsed).ok());
    patch.map_or_else(String::new, |patch| patch.shown())
}

/// Checks that the result is still an object of its kind, and returns it with warnings. `invalid_text` is called only
/// for an error.
fn decode_patched(
    call: &Call,
    patched: Patched,
    invalid_text: impl Fn() -> String,
) -> Result<(Value, Vec<String>), Status> {
    let invalid = |why: &str| patch::unreadable(&invalid_text(), why);
    let Patched { object, mut strict_errors, decode_tree } = patched;
    if object.is_array() {
        return Err(invalid(KIND_OF_A_LIST));
    }
    match call.resource.custom {
        Some(_) => decode::same_kind(call, &object)?,
        None => decode::check_kind(call, &object).map_err(|why| invalid(&why.message))?,
    }
    let Some(schema) = call.resource.schema() else { return Ok((object, Vec::new())) };
    let has_version = object["apiVersion"].as_str().is_some_and(|version| !version.is_empty());
    if call.resource.origin == Origin::BuiltIn && !has_version {
        // Kubernetes decodes an object without a version as an internal type, whose metadata has another name.
        return Err(update::nameless(call.name_and_key()?.0));
    }
    let decoded = decode_tree(object, schema).map_err(|why| invalid(&why.to_string()))?;
    strict_errors.extend(decoded.strict_errors);
    let warnings = decode::validation(call).enforce(&strict_errors);
    Ok((decoded.value, warnings.map_err(|why| invalid(&why))?))
}
