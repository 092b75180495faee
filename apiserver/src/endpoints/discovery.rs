//! Discovery and OpenAPI endpoints.
//!
//! These documents are large and depend only on the set of kinds. So each is built once and shared by all logical
//! clusters with the same set.

use std::collections::BTreeSet;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH,
    VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use openapi::meta::hash;
use openapi::meta::status::Status;
use openapi::publish::discovery;
use openapi::publish::discovery::ApiRoot;
use openapi::publish::documents;
use serde_json::{Value, json};

use crate::http::body::Body;
use crate::http::compression;
use crate::http::compression::GZIP;
use crate::kinds::Kinds;
use crate::kinds::documents::{CachedDocument, openapi_v2, openapi_v2_protobuf, openapi_v3};
use crate::request::negotiation;
use crate::request::negotiation::{Encoding, Shape};
use crate::request::path::Target;
use crate::request::query::Query;
use crate::response::render;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers discovery and OpenAPI requests.
pub(crate) fn answer(
    kinds: &Kinds,
    target: &Target,
    query: &Query,
    headers: &HeaderMap,
    address: &str,
) -> Result<Response<Body>, Status> {
    let resources = || kinds.discoverable();
    let unknown = Status::unknown_path;
    let respond = |value: Value| Ok(render::value(StatusCode::OK, &value));
    match target {
        Target::Groups { core } => groups(kinds, *core, headers, address),
        Target::Group { group } => respond(discovery::group(&resources(), group).ok_or_else(unknown)?),
        Target::Resources { group, version } => {
            respond(discovery::resource_list(&resources(), group, version).ok_or_else(unknown)?)
        }
        Target::OpenApiV3 { group_version: None } => respond(documents::index(
            openapi_v3(kinds).iter().map(|(path, made)| (path.as_str(), made.hash.as_str())),
        )),
        Target::OpenApiV3 { group_version: Some(path) } => {
            let made = openapi_v3(kinds).get(path).ok_or_else(unknown)?;
            let mut response = made.answer(headers);
            // A URL with the hash of the document can be cached forever. A URL with any other hash gets the current
            // document: a redirect would lead the client out of its logical cluster.
            if query.text("hash") == made.hash {
                lasts(response.headers_mut());
            }
            Ok(response)
        }
        Target::OpenApiV2 => Ok(version_two(kinds, headers)),
        Target::Index => respond(json!({ "paths": paths(kinds) })),
        _ => Err(unknown()),
    }
}

/// Returns all paths except those of resources.
fn paths(kinds: &Kinds) -> Vec<String> {
    let fixed = ["/api", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/version"];
    let probes = ["/healthz", "/livez", "/readyz"];
    let mut paths: BTreeSet<String> = fixed.iter().chain(&probes).map(|path| (*path).to_owned()).collect();
    for resource in kinds.resources() {
        let document = documents::path(&resource.group, &resource.version);
        paths.insert(format!("/openapi/v3/{document}"));
        paths.insert(format!("/{document}"));
        if !resource.group.is_empty() {
            paths.insert(format!("/apis/{}", resource.group));
        }
    }
    paths.into_iter().collect()
}

/// Returns the OpenAPI v2 document, for clients without v3. Some clients accept only its protobuf encoding.
fn version_two(kinds: &Kinds, headers: &HeaderMap) -> Response<Body> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let made = match accept.contains("com.github.proto-openapi.spec.v2") {
        true => openapi_v2_protobuf(kinds),
        false => openapi_v2(kinds),
    };
    made.answer(headers)
}

impl CachedDocument {
    fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let is_packed = compression::is_accepted(headers);
        let body = match (is_packed, &self.body) {
            (true, _) => self.gzip(),
            (false, Some(body)) => body.clone(),
            (false, None) => compression::gunzip(&self.gzip()),
        };
        let mut response =
            cached(headers, &self.hash, render::typed(StatusCode::OK, self.content_type, body));
        response.headers_mut().append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        // A 304 has no body and no Content-Encoding: a client would apply that to its cached copy.
        if is_packed && response.status() == StatusCode::OK {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        }
        response
    }
}

/// Marks a response as valid forever.
fn lasts(headers: &mut HeaderMap) {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    let then = (jiff::Timestamp::now() + year).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    headers.insert(EXPIRES, then.parse().expect("a date is a valid header value"));
}

fn groups(kinds: &Kinds, core: bool, headers: &HeaderMap, address: &str) -> Result<Response<Body>, Status> {
    let offered = |shape| matches!(shape, Shape::Whole | Shape::Aggregated);
    let form = negotiation::answer(headers, |form| form.encoding == Encoding::Json && offered(form.shape))?;
    let resources = kinds.discoverable();
    if form.shape == Shape::Aggregated {
        let root = if core { ApiRoot::Core } else { ApiRoot::Groups };
        let (hash, body) = kinds.documents().aggregated[usize::from(!core)].get_or_init(|| {
            let body = discovery::aggregated(&resources, root).to_string();
            (hash::content(body.as_bytes()), body.into())
        });
        let mut response = render::json(StatusCode::OK, body.clone());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
        return Ok(cached(headers, hash, response));
    }
    let value =
        if core { discovery::core_versions(&resources, address) } else { discovery::group_list(&resources) };
    Ok(render::value(StatusCode::OK, &value))
}

/// Sets the entity tag. Responds with 304 if the client has this version already.
fn cached(headers: &HeaderMap, hash: &str, mut response: Response<Body>) -> Response<Body> {
    let tag = format!("\"{hash}\"");
    let is_unchanged = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    // A 304 keeps the headers, above all the media type: clients store them with the cached body.
    if is_unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = render::nothing();
    }
    if let Ok(tag) = tag.parse() {
        response.headers_mut().insert(ETAG, tag);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    response
}
