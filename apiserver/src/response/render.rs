//! Renders objects in the form that a client accepts.
//!
//! Most responses are the stored bytes with the resource version inserted. An object is parsed only if the client
//! requests another shape or encoding than the stored one, or reads it through another version of its resource.

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

/// The form of all objects in one response.
#[derive(Clone, Debug)]
pub(crate) struct Style {
    pub(crate) form: Form,
    pub(crate) resource: Arc<ResourceInfo>,
    pub(crate) include: IncludeObject,
    /// With [`Reach::Every`] each object gets an annotation with its logical cluster.
    pub(crate) reach: Reach,
    /// The kinds of the other logical clusters, where they may differ from those of this one.
    pub(crate) elsewhere: Option<Arc<Registry>>,
}

impl Style {
    /// Responds with one stored object.
    pub(crate) fn answer(&self, code: StatusCode, entry: &Entry) -> Result<Response<Body>, Status> {
        self.single()?;
        let mut out = BytesMut::new();
        self.object(entry, entry.revision(), ColumnDefinitions::Shown, &mut out);
        Ok(typed(code, self.form.encoding.media_type(), out))
    }

    /// Responds with an object that is not stored.
    pub(crate) fn answer_tree(
        &self,
        code: StatusCode,
        tree: &Value,
        columns: &[PrinterColumn],
    ) -> Result<Response<Body>, Status> {
        self.single()?;
        let mut out = BytesMut::new();
        encode(self.form.encoding, &self.transform(tree, ColumnDefinitions::Shown, columns), &mut out);
        Ok(typed(code, self.form.encoding.media_type(), out))
    }

    pub(crate) fn status(&self, status: &Status) -> Response<Body> {
        self::status(status, self.form.encoding)
    }

    /// Writes one object of a watch, or one in a table or response of its own. `revision` may be a later one than the
    /// entry's: a deleted object carries the revision of its deletion. Writes nothing if the object cannot be decoded.
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
            encode(self.form.encoding, &self.transform(&tree, heading, &self.resource.columns), out);
        }
    }

    /// Writes one object of a JSON list. Objects of built-in kinds are written without `heading` (kind and version),
    /// which the list has already.
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

    /// Returns one object of a list as a tree. None if it cannot be decoded.
    pub(crate) fn item_tree(&self, entry: &Entry) -> Option<Value> {
        let mut transformed =
            self.transform(&self.tree(entry, entry.revision())?, ColumnDefinitions::Omitted, &[]);
        if self.leaves_out_heading()
            && let Some(fields) = transformed.as_object_mut()
        {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        Some(transformed)
    }

    /// Reports whether list items omit kind and version.
    fn leaves_out_heading(&self) -> bool {
        self.form.shape == Shape::Whole && self.resource.origin == Origin::BuiltIn
    }

    /// Returns the complete object as the client sees it. None if it cannot be decoded.
    pub(crate) fn tree(&self, entry: &Entry, revision: Revision) -> Option<Value> {
        let mut plain = BytesMut::new();
        stored::write(entry.value(), revision, self.home(entry), &mut plain);
        let tree = codec::parse_json(&plain).ok()?;
        Some(conversion::from_stored(&*self.resource_of(entry)?, tree))
    }

    /// Returns the resource with which an object is rendered: that of its own logical cluster. None if that cluster
    /// serves the kind, but not in this version. If the cluster no longer serves the kind, the resource of this one is
    /// used, so that watches can still report the deletion.
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

    /// Converts an object to the requested shape.
    pub(crate) fn transform(
        &self,
        tree: &Value,
        heading: ColumnDefinitions,
        columns: &[PrinterColumn],
    ) -> Value {
        match self.form.shape {
            Shape::Table => {
                let mut table =
                    tables::single_object_table(columns, heading, tree, self.include, Timestamp::now());
                self.name(&mut table);
                table["rows"].as_array_mut().into_iter().flatten().for_each(|row| self.set_row_version(row));
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

    /// Sets the requested version on a table or partial metadata.
    fn name(&self, made: &mut Value) {
        if self.form.meta != Meta::V1 {
            made["apiVersion"] = self.form.meta.api_version().into();
        }
    }

    /// Sets the requested version on the object of a table row.
    pub(crate) fn set_row_version(&self, row: &mut Value) {
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

    /// Refuses the list shape for a single object.
    fn single(&self) -> Result<(), Status> {
        let go_type_name = go_type(&self.resource, &self.resource.kind);
        match self.form.shape {
            Shape::PartialList => Err(unfit(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({go_type_name})"
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses the single-object shape for a list.
    pub(crate) fn several(&self) -> Result<(), Status> {
        let go_type_name = go_type(&self.resource, &self.resource.list_kind);
        match self.form.shape {
            Shape::Partial => Err(unfit(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({go_type_name})"
            ))),
            _ => Ok(()),
        }
    }
}

/// Returns the Go type that Kubernetes names in this error.
fn go_type(resource: &ResourceInfo, kind: &str) -> String {
    let package = resource.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    format!("*{package}.{kind}")
}

fn unfit(message: String) -> Status {
    let mut status = Status::not_acceptable(&[]);
    status.message = message;
    status
}

/// Encodes a tree. Writes nothing if a kind has no protobuf; such kinds are not offered in protobuf.
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

/// Responds with JSON.
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

/// Removes the body of a response to HEAD, but keeps its length.
pub(crate) fn behead(response: &mut Response<Body>) {
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    *response.body_mut() = nothing();
}

/// Responds with an error, in the encoding that the client accepts.
pub(crate) fn status(status: &Status, encoding: Encoding) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut out = BytesMut::new();
    encode(encoding, &status_tree(status), &mut out);
    let mut response = typed(code, encoding.media_type(), out);
    let wait = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    // Clients retry on their own only if the response has a Retry-After.
    if wait > 0 {
        response.headers_mut().insert(http::header::RETRY_AFTER, wait.into());
    }
    response
}

pub(crate) fn status_tree(status: &Status) -> Value {
    serde_json::to_value(status).expect("a status is made of text and numbers")
}
