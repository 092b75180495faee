//! What a server offers, as documents: discovery and OpenAPI.
//!
//! They are large and change only with the set of kinds, so each is made once and shared by every logical
//! cluster with the same set.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH,
    VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use openapi::discovery::{self, Root};
use openapi::document::{self, Document};
use openapi::resource::{Resource, Verb};
use openapi::status::Status;
use openapi::{catalog, hash};
use serde_json::{Value, json};

use crate::clusters;
use crate::compress::{self, Effort, GZIP};
use crate::keys::Collection;
use crate::negotiate::{self, Encoding, Shape};
use crate::parts;
use crate::query::Query;
use crate::render;
use crate::request::Target;
use crate::reviews::Review;
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

/// Whether there is somebody to answer: the generic path, or whoever answers questions.
fn is_served(row: &Resource) -> bool {
    is_kept(row) || Review::of(row).is_some()
}

/// Whether what is sent there stays or is done.
fn is_kept(row: &Resource) -> bool {
    let lasts = row.allows(Verb::Create) && row.allows(Verb::Get);
    let done = row.group.is_empty() && DONE.contains(&&*row.plural);
    (lasts || done) && !WITHHELD.contains(&&*row.group)
}

fn as_served(row: &Resource) -> Resource {
    let mut row = row.clone();
    row.subresources.retain(|part| parts::SERVED.contains(&&*part.name));
    row
}

pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Arc<Resource>> {
    called(plural).find(|row| &*row.group == group && &*row.version == version)
}

/// The resource whose objects are in a collection, in whatever version.
pub(crate) fn find_collection(collection: Collection<'_>) -> Option<&'static Arc<Resource>> {
    called(collection.plural).find(|row| *row.group == *collection.group)
}

/// Resources by their plural name, which hardly any two have in common: every request looks one up.
fn called(plural: &str) -> impl Iterator<Item = &'static Arc<Resource>> + use<> {
    static BY_PLURAL: LazyLock<HashMap<&str, Vec<&Arc<Resource>>>> = LazyLock::new(|| {
        let mut by_plural: HashMap<&str, Vec<&Arc<Resource>>> = HashMap::new();
        rows().iter().for_each(|row| by_plural.entry(&*row.plural).or_default().push(row));
        by_plural
    });
    BY_PLURAL.get(plural).into_iter().flatten().copied()
}

/// The resource whose objects are of a kind, in whatever version; the one they are kept as.
pub(crate) fn find_kind(group: &str, kind: &str) -> Option<&'static Arc<Resource>> {
    rows().iter().find(|row| &*row.group == group && &*row.kind == kind && row.stored_as.is_none())
}

/// Answers for everything that is not a resource or a probe.
pub(crate) fn answer(
    target: &Target,
    query: &Query,
    headers: &HeaderMap,
    address: &str,
) -> Result<Response<Body>, Status> {
    let rows = rows();
    let unknown = Status::unknown_path;
    let whole = |value: Value| Ok(render::value(StatusCode::OK, &value));
    match target {
        Target::Groups { core } => groups(*core, headers, address),
        Target::Group { group } => whole(discovery::group(rows, group).ok_or_else(unknown)?),
        Target::Resources { group, version } => {
            whole(discovery::resource_list(rows, group, version).ok_or_else(unknown)?)
        }
        Target::OpenApiV3 { group_version: None } => {
            whole(document::index(documents().iter().map(|(path, made)| (path.as_str(), made.hash.as_str()))))
        }
        Target::OpenApiV3 { group_version: Some(path) } => {
            let made = documents().get(path).ok_or_else(unknown)?;
            let mut response = made.answer(headers);
            // An address with the hash of what it leads to always leads to the same. With any other hash it leads to
            // what there is now: to send a client elsewhere would be to send it out of its logical cluster.
            if query.text("hash") == made.hash {
                lasts(response.headers_mut());
            }
            Ok(response)
        }
        Target::OpenApiV2 => Ok(version_two(headers)),
        Target::Index => whole(json!({ "paths": paths() })),
        _ => Err(unknown()),
    }
}

/// Every address that is not a resource's own.
fn paths() -> Vec<String> {
    let fixed = ["/api", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/version"];
    let probes = ["/healthz", "/livez", "/readyz"];
    let mut paths: BTreeSet<String> = fixed.iter().chain(&probes).map(|path| (*path).to_owned()).collect();
    for row in rows() {
        let document = document::path(&row.group, &row.version);
        paths.insert(format!("/openapi/v3/{document}"));
        paths.insert(format!("/{document}"));
        if !row.group.is_empty() {
            paths.insert(format!("/apis/{}", row.group));
        }
    }
    paths.into_iter().collect()
}

/// The older document, for clients that have not learned the newer one. Some take it only in its own protobuf.
fn version_two(headers: &HeaderMap) -> Response<Body> {
    static TEXT: LazyLock<Made> = LazyLock::new(|| Made::of(document::v2(rows(), &clusters::definitions())));
    static PROTOBUF: LazyLock<Made> = LazyLock::new(|| {
        let body = document::v2_protobuf(rows(), &clusters::definitions()).into();
        Made::new(document::GNOSTIC, format!("{}-protobuf", TEXT.hash), body)
    });
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let made = if accept.contains("com.github.proto-openapi.spec.v2") { &PROTOBUF } else { &TEXT };
    made.answer(headers)
}

/// A document, ready to be sent: as it is, and compressed from the first time somebody wants that.
struct Made {
    content_type: &'static str,
    hash: String,
    body: Bytes,
    packed: OnceLock<Bytes>,
}

impl Made {
    fn new(content_type: &'static str, hash: String, body: Bytes) -> Made {
        Made { content_type, hash, body, packed: OnceLock::new() }
    }

    fn of(document: Document) -> Made {
        Made::new(negotiate::JSON, document.hash, document.body.into())
    }

    fn answer(&self, headers: &HeaderMap) -> Response<Body> {
        let is_packed = compress::is_accepted(headers);
        let body = match is_packed {
            true => self.packed.get_or_init(|| compress::gzip(&self.body, Effort::Often)),
            false => &self.body,
        };
        let mut response =
            cached(headers, &self.hash, render::typed(StatusCode::OK, self.content_type, body.clone()));
        response.headers_mut().append(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        // What is not sent is not packed either: a client would note that about what it holds.
        if is_packed && response.status() == StatusCode::OK {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
        }
        response
    }
}

/// Says that what was sent stays true for as long as caches can remember.
fn lasts(headers: &mut HeaderMap) {
    let year = jiff::SignedDuration::from_hours(365 * 24);
    let then = (jiff::Timestamp::now() + year).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    headers.insert(EXPIRES, then.parse().expect("a date is made of letters and digits"));
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

fn documents() -> &'static BTreeMap<String, Made> {
    static MADE: LazyLock<BTreeMap<String, Made>> = LazyLock::new(|| {
        let custom = clusters::definitions();
        let named = rows().iter().map(|row| (row.group.clone(), row.version.clone()));
        let made = named.filter_map(|(group, version)| {
            let path = document::path(&group, &version);
            Some((path, Made::of(document::v3(rows(), &custom, &group, &version)?)))
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
