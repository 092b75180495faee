//! What a server offers, as documents: discovery and OpenAPI.
//!
//! They are large and change only with the set of kinds, so each is made once and shared by every logical
//! cluster with the same set.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use openapi::discovery::{self, Root};
use openapi::document::{self, Document};
use openapi::resource::{Origin, Resource, Verb};
use openapi::schema::SchemaRef;
use openapi::status::Status;
use openapi::{builtin, catalog, hash};
use serde_json::Value;

use crate::clusters;
use crate::negotiate::{self, Encoding, Shape};
use crate::parts;
use crate::render;
use crate::request::Target;
use crate::server::Body;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Groups whose objects tell the server what to do. They are not served before it does it: a definition that is
/// accepted and defines nothing would be a lie.
const WITHHELD: &[&str] = &["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];
/// Resources of the core group that keep nothing: what is sent there is done at once.
const DONE: &[&str] = &["bindings"];

/// Everything served in a logical cluster: built-in kinds and our own.
pub(crate) fn rows() -> &'static [Arc<Resource>] {
    static ROWS: LazyLock<Vec<Arc<Resource>>> = LazyLock::new(|| {
        let served = catalog::built_in().iter().filter(|row| is_served(row));
        served.map(|row| Arc::new(as_served(row))).chain([clusters::row().clone()]).collect()
    });
    &ROWS
}

/// Whether what is sent there stays or is done.
fn is_served(row: &Resource) -> bool {
    let lasts = row.allows(Verb::Create) && row.allows(Verb::Get);
    let done = row.group.is_empty() && DONE.contains(&&*row.plural);
    (lasts || done) && !WITHHELD.contains(&&*row.group)
}

fn as_served(row: &Resource) -> Resource {
    let mut row = row.clone();
    row.subresources.retain(|part| parts::SERVED.contains(&&*part.name));
    row
}

/// What objects of a row look like.
pub(crate) fn schema(row: &Resource) -> Option<&'static SchemaRef> {
    match row.origin {
        Origin::BuiltIn => builtin::schema(&row.type_name),
        Origin::Custom => Some(clusters::schema()),
    }
}

pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Resource>> {
    rows().iter().find(|row| &*row.group == group && &*row.version == version && &*row.plural == plural)
}

/// Answers for everything that is not a resource or a probe.
pub(crate) fn answer(target: &Target, headers: &HeaderMap, address: &str) -> Result<Response<Body>, Status> {
    let rows = rows();
    let unknown = Status::unknown_path;
    let whole = |value: Value| Ok(render::value(StatusCode::OK, &value));
    match target {
        Target::Groups { core } => groups(*core, headers, address),
        Target::Group { group } => whole(discovery::group(rows, group).ok_or_else(unknown)?),
        Target::Resources { group, version } => {
            whole(discovery::resource_list(rows, group, version).ok_or_else(unknown)?)
        }
        Target::OpenApiV3 { group_version: None } => whole(document::index(
            documents().iter().map(|(path, document)| (path.as_str(), document.hash.as_str())),
        )),
        Target::OpenApiV3 { group_version: Some(path) } => {
            let document = documents().get(path).ok_or_else(unknown)?;
            Ok(cached(
                headers,
                &document.hash,
                render::json(StatusCode::OK, Bytes::from_static(document.body.as_bytes())),
            ))
        }
        Target::OpenApiV2 => Ok(version_two(headers)),
        _ => Err(unknown()),
    }
}

/// The older document, for clients that have not learned the newer one. Some take it only in its own protobuf.
fn version_two(headers: &HeaderMap) -> Response<Body> {
    static MADE: LazyLock<Document> = LazyLock::new(|| document::v2(rows(), &clusters::definitions()));
    static PROTOBUF: LazyLock<Bytes> =
        LazyLock::new(|| document::v2_protobuf(rows(), &clusters::definitions()).into());
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("com.github.proto-openapi.spec.v2") {
        let response = render::typed(StatusCode::OK, document::GNOSTIC, PROTOBUF.clone());
        return cached(headers, &format!("{}-protobuf", MADE.hash), response);
    }
    cached(headers, &MADE.hash, render::json(StatusCode::OK, Bytes::from_static(MADE.body.as_bytes())))
}

fn groups(core: bool, headers: &HeaderMap, address: &str) -> Result<Response<Body>, Status> {
    let offered = |shape| matches!(shape, Shape::Whole | Shape::Aggregated);
    let form = negotiate::answer(headers, |form| form.encoding == Encoding::Json && offered(form.shape))?;
    if form.shape == Shape::Aggregated {
        static MADE: LazyLock<[(String, Bytes); 2]> = LazyLock::new(|| {
            [Root::Core, Root::Groups].map(|root| {
                let body = discovery::aggregated(rows(), root).to_string();
                (hash::content(body.as_bytes()), body.into())
            })
        });
        let (hash, body) = &MADE[usize::from(!core)];
        let mut response = render::json(StatusCode::OK, body.clone());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
        return Ok(cached(headers, hash, response));
    }
    let value = if core { discovery::core_versions(rows(), address) } else { discovery::group_list(rows()) };
    Ok(render::value(StatusCode::OK, &value))
}

fn documents() -> &'static BTreeMap<String, Document> {
    static MADE: LazyLock<BTreeMap<String, Document>> = LazyLock::new(|| {
        let custom = clusters::definitions();
        let named = rows().iter().map(|row| (row.group.clone(), row.version.clone()));
        let made = named.filter_map(|(group, version)| {
            let path = document::path(&group, &version);
            Some((path, document::v3(rows(), &custom, &group, &version)?))
        });
        made.collect()
    });
    &MADE
}

/// Says what the document is called, and nothing more if the client has it already.
fn cached(headers: &HeaderMap, hash: &str, mut response: Response<Body>) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    let known = headers.get(IF_NONE_MATCH).is_some_and(|held| held.as_bytes() == tag.as_bytes());
    // The headers stay: a client keeps them with what it has, the media type above all.
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = render::nothing();
    }
    if let Ok(tag) = tag.parse() {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}
