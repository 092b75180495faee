//! Objects in the form a client wants them.

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use openapi::resource::Resource;
use openapi::status::Status;
use openapi::table::{self, Heading, Include};
use serde_json::Value;
use storage::{Entry, Revision};

use crate::negotiate::{Form, JSON};
use crate::server::Body;
use crate::stored;

/// How the objects of one answer are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style<'a> {
    pub(crate) form: Form,
    pub(crate) row: &'a Resource,
    pub(crate) include: Include,
}

impl Style<'_> {
    /// One object of a list or a watch, as of a revision that need not be its own: a deleted object carries
    /// the revision of its deletion.
    pub(crate) fn object(&self, entry: &Entry, revision: Revision, heading: Heading, out: &mut BytesMut) {
        if self.form == Form::Json {
            return stored::write(entry.value(), revision, out);
        }
        let mut plain = BytesMut::new();
        stored::write(entry.value(), revision, &mut plain);
        // What cannot be parsed cannot be shown in any other form either; it is left out rather than guessed.
        if let Ok(tree) = serde_json::from_slice::<Value>(&plain) {
            put(out, &self.shown(&tree, heading));
        }
    }

    /// A tree in the form asked for.
    pub(crate) fn shown(&self, tree: &Value, heading: Heading) -> Value {
        match self.form {
            Form::Table => table::single(&self.row.columns, heading, tree, self.include, Timestamp::now()),
            Form::Partial => table::partial(tree),
            Form::Json | Form::Protobuf | Form::Aggregated => tree.clone(),
        }
    }
}

fn put(out: &mut BytesMut, value: &Value) {
    // Writing JSON to memory cannot fail.
    serde_json::to_writer(out.writer(), value).expect("a JSON value is JSON");
}

/// A whole answer in JSON.
pub(crate) fn json(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    typed(code, JSON, body)
}

pub(crate) fn value(code: StatusCode, value: &Value) -> Response<Body> {
    let mut out = BytesMut::new();
    put(&mut out, value);
    json(code, out)
}

pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    typed(code, "text/plain; charset=utf-8", body)
}

pub(crate) fn typed(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    response
}

pub(crate) fn nothing() -> Body {
    http_body_util::Empty::new().boxed_unsync()
}

/// What is left of an answer when only its head was asked for: how long the body would have been.
pub(crate) fn behead(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *response.body_mut() = nothing();
}

/// The answer to a request that did not work.
pub(crate) fn status(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, serde_json::to_vec(status).unwrap_or_default());
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    // Clients try again by themselves only if they are told when.
    if wait > 0 {
        response.headers_mut().insert(http::header::RETRY_AFTER, wait.into());
    }
    response
}
