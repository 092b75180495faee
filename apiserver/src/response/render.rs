//! Renders objects in the form that a client accepts.
//!
//! Most answers are the stored bytes with a version put in. A tree is made only where the client wants a shape or an
//! encoding that is not what is stored, or sees the object through another resource.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::Full;
use jiff::Timestamp;
use openapi::catalog::resource_info::{PrinterColumn, ResourceInfo};
use openapi::codec::{protobuf, yaml};
use openapi::meta::status::Status;
use openapi::publish::tables;
use openapi::publish::tables::{ColumnDefinitions, IncludeObject};
use openapi::schema::Origin;
use openapi::{codec, conversion};
use serde_json::Value;
use storage::{Entry, Revision};

use crate::http::body::{Body, whole};
use crate::keys::ObjectKey;
use crate::kinds::Registry;
use crate::objects::stored;
use crate::objects::stored::is_as_stored;
use crate::request::info::Reach;
use crate::request::negotiation::{Encoding, Form, JSON, Meta, Shape};

/// How the objects of one answer are written.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) form: Form,
    pub(crate) resource: Arc<ResourceInfo>,
    pub(crate) include: IncludeObject,
    /// Who looks at all logical clusters is told where each object lives.
    pub(crate) reach: Reach,
    /// Where to find what another logical cluster calls by the same name, if that may be something else.
    pub(crate) elsewhere: Option<Arc<Registry>>,
}

impl Style {
    /// An object as a whole answer, as it was written or found.
    pub(crate) fn answer(&self, code: StatusCode, entry: &Entry) -> Result<Response<Body>, Status> {
        self.single()?;
        let mut out = BytesMut::new();
        self.object(entry, entry.revision(), ColumnDefinitions::Shown, &mut out);
        Ok(typed(code, self.form.encoding.media_type(), out))
    }

    /// A tree that is no stored object as a whole answer.
    pub(crate) fn answer_tree(
        &self,
        code: StatusCode,
        tree: &Value,
        columns: &[PrinterColumn],
    ) -> Result<Response<Body>, Status> {
        self.single()?;
        let mut out = BytesMut::new();
        encode(self.form.encoding, &self.shown(tree, ColumnDefinitions::Shown, columns), &mut out);
        Ok(typed(code, self.form.encoding.media_type(), out))
    }

    pub(crate) fn status(&self, status: &Status) -> Response<Body> {
        self::status(status, self.form.encoding)
    }

    /// One object of a list or a watch, as of a revision that need not be its own: a deleted object carries
    /// the revision of its deletion. What cannot be read is left out rather than guessed.
    pub(crate) fn object(
        &self,
        entry: &Entry,
        revision: Revision,
        heading: ColumnDefinitions,
        out: &mut BytesMut,
    ) {
        let Some(resource) = self.resource_of(entry) else { return };
        if self.form == Form::JSON && is_as_stored(&resource, entry) {
            return stored::write(entry.value(), revision, self.home(entry), out);
        }
        if let Some(tree) = self.tree(entry, revision) {
            encode(self.form.encoding, &self.shown(&tree, heading, &self.resource.columns), out);
        }
    }

    /// One object among others of a list in JSON. Those of built-in kinds do not say again what the list
    /// says: they are sent without their `heading`.
    pub(crate) fn item(&self, entry: &Entry, heading: &str, out: &mut BytesMut) {
        let Some(resource) = self.resource_of(entry) else { return };
        if self.form.shape == Shape::Whole && is_as_stored(&resource, entry) {
            let (value, revision, home) = (entry.value(), entry.revision(), self.home(entry));
            return match self.leaves_out_heading() {
                true => stored::write_item(value, revision, home, heading, out),
                false => stored::write(value, revision, home, out),
            };
        }
        if let Some(tree) = self.item_tree(entry) {
            put(out, &tree);
        }
    }

    /// The same as a tree; none if it cannot be read.
    pub(crate) fn item_tree(&self, entry: &Entry) -> Option<Value> {
        let mut shown = self.shown(&self.tree(entry, entry.revision())?, ColumnDefinitions::Omitted, &[]);
        if self.leaves_out_heading()
            && let Some(fields) = shown.as_object_mut()
        {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        Some(shown)
    }

    /// Whether the objects of a list in JSON or YAML do not say what the list says.
    fn leaves_out_heading(&self) -> bool {
        self.form.shape == Shape::Whole && self.resource.origin == Origin::BuiltIn
    }

    /// An object as the client sees it, whole; none if it cannot be read.
    pub(crate) fn tree(&self, entry: &Entry, revision: Revision) -> Option<Value> {
        let mut plain = BytesMut::new();
        stored::write(entry.value(), revision, self.home(entry), &mut plain);
        let tree = codec::parse_json(&plain).ok()?;
        Some(conversion::from_stored(&*self.resource_of(entry)?, tree))
    }

    /// The row an object is shown by: that of its own logical cluster. None if that serves the kind, and not in this
    /// version. What is no longer served there is shown as it was here: that it is gone has to be told somehow.
    pub(crate) fn resource_of(&self, entry: &Entry) -> Option<Cow<'_, Arc<ResourceInfo>>> {
        let Some(registry) = &self.elsewhere else { return Some(Cow::Borrowed(&self.resource)) };
        let place = ObjectKey::of(entry.key())?;
        let kinds = registry.of(place.cluster);
        let ResourceInfo { group, version, plural, .. } = &*self.resource;
        match kinds.find(group, version, plural) {
            Some(resource) => Some(Cow::Owned(resource.clone())),
            None if kinds.find_collection(place.collection).is_some() => None,
            None => Some(Cow::Borrowed(&self.resource)),
        }
    }

    /// A tree in the shape asked for.
    pub(crate) fn shown(&self, tree: &Value, heading: ColumnDefinitions, columns: &[PrinterColumn]) -> Value {
        match self.form.shape {
            Shape::Table => {
                let mut table =
                    tables::single_object_table(columns, heading, tree, self.include, Timestamp::now());
                self.name(&mut table);
                table["rows"].as_array_mut().into_iter().flatten().for_each(|row| self.name_row(row));
                table
            }
            Shape::Partial | Shape::PartialList => {
                let mut partial = tables::partial_object_metadata(tree);
                self.name(&mut partial);
                partial
            }
            Shape::Whole | Shape::Aggregated => tree.clone(),
        }
    }

    /// Calls a table, or the metadata of an object, by the version the client asked for.
    fn name(&self, made: &mut Value) {
        if self.form.meta != Meta::V1 {
            made["apiVersion"] = self.form.meta.api_version().into();
        }
    }

    /// The same for what a row of a table says of its object.
    pub(crate) fn name_row(&self, row: &mut Value) {
        if row["object"]["kind"] == "PartialObjectMetadata" {
            self.name(&mut row["object"]);
        }
    }

    fn home(&self, entry: &Entry) -> Option<api::cluster::Id> {
        match self.reach {
            Reach::One => None,
            Reach::Every => ObjectKey::of(entry.key()).map(|place| place.cluster),
        }
    }

    /// One object is no list.
    fn single(&self) -> Result<(), Status> {
        let what = go_type(&self.resource, &self.resource.kind);
        match self.form.shape {
            Shape::PartialList => Err(unfit(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({what})"
            ))),
            _ => Ok(()),
        }
    }

    /// A list is not one object.
    pub(crate) fn several(&self) -> Result<(), Status> {
        let what = go_type(&self.resource, &self.resource.list_kind);
        match self.form.shape {
            Shape::Partial => Err(unfit(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({what})"
            ))),
            _ => Ok(()),
        }
    }
}

/// What Kubernetes calls the type in its own source.
fn go_type(resource: &ResourceInfo, kind: &str) -> String {
    let package = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{kind}")
}

fn unfit(message: String) -> Status {
    let mut status = Status::not_acceptable(&[]);
    status.message = message;
    status
}

/// Writes a tree in an encoding. What has no form in protobuf leaves nothing: such kinds are not offered in it.
pub(crate) fn encode(encoding: Encoding, value: &Value, out: &mut BytesMut) {
    match encoding {
        Encoding::Json => put(out, value),
        Encoding::Yaml => out.put_slice(yaml::write(value).as_bytes()),
        Encoding::Protobuf => match protobuf::encode(value) {
            Ok(bytes) => out.put_slice(&bytes),
            Err(error) => tracing::error!(%error, "cannot encode an object as protobuf"),
        },
    }
}

pub(crate) fn put(out: &mut BytesMut, value: &Value) {
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
    let mut response = Response::new(whole(Full::new(body.into())));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-cache, private"));
    response
}

pub(crate) fn nothing() -> Body {
    whole(http_body_util::Empty::new())
}

/// Removes the body of a response to HEAD, and keeps its length.
pub(crate) fn behead(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *response.body_mut() = nothing();
}

/// The answer to a request that did not work, in the encoding the client reads.
pub(crate) fn status(status: &Status, encoding: Encoding) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut out = BytesMut::new();
    encode(encoding, &status_tree(status), &mut out);
    let mut response = typed(code, encoding.media_type(), out);
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    // Clients try again by themselves only if they are told when.
    if wait > 0 {
        response.headers_mut().insert(http::header::RETRY_AFTER, wait.into());
    }
    response
}

pub(crate) fn status_tree(status: &Status) -> Value {
    serde_json::to_value(status).expect("a status is made of text and numbers")
}
