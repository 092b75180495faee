//! The OpenAPI and discovery documents of a set of kinds.
//!
//! They are large and depend only on the set of kinds, so each is built once and shared by all logical clusters with
//! the same set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use openapi::publish::documents;
use openapi::publish::documents::OpenApiDocument;

use crate::http::compression::{self, Effort};
use crate::kinds::Kinds;
use crate::request::negotiation;

/// The documents of a set of kinds, each built by the first request for it.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// By path.
    v3: OnceLock<BTreeMap<String, Arc<CachedDocument>>>,
    v2: OnceLock<CachedDocument>,
    v2_protobuf: OnceLock<CachedDocument>,
    /// Aggregated discovery of the core group, and of all others.
    pub(crate) aggregated: [OnceLock<(String, Bytes)>; 2],
}

/// A document as sent. It is compressed when the first client accepts that.
#[derive(Debug)]
pub(crate) struct CachedDocument {
    pub(crate) content_type: &'static str,
    pub(crate) hash: String,
    /// None if only the compressed document is kept.
    pub(crate) body: Option<Bytes>,
    packed: OnceLock<Bytes>,
}

impl CachedDocument {
    fn new(content_type: &'static str, hash: String, body: Bytes) -> CachedDocument {
        CachedDocument { content_type, hash, body: Some(body), packed: OnceLock::new() }
    }

    fn of(document: OpenApiDocument) -> CachedDocument {
        CachedDocument::new(negotiation::JSON, document.hash, document.body.into())
    }

    /// Keeps only the compressed document.
    fn packed(mut self) -> CachedDocument {
        self.gzip();
        self.body = None;
        self
    }

    pub(crate) fn gzip(&self) -> Bytes {
        let body = self.body.as_deref().unwrap_or_default();
        self.packed.get_or_init(|| compression::gzip(body, Effort::Often)).clone()
    }
}

/// Returns the OpenAPI v3 documents by path. A group version without custom kinds shares the document of the common
/// set.
pub(crate) fn openapi_v3(kinds: &Kinds) -> &BTreeMap<String, Arc<CachedDocument>> {
    kinds.documents().v3.get_or_init(|| {
        let mut made = kinds.common().map_or_else(BTreeMap::new, |common| openapi_v3(common).clone());
        let own: BTreeSet<_> =
            kinds.own().iter().map(|resource| (&*resource.group, &*resource.version)).collect();
        made.extend(own.into_iter().filter_map(|(group, version)| {
            let document = documents::v3(kinds.resources(), kinds.definitions(), group, version)?;
            Some((documents::path(group, version), Arc::new(CachedDocument::of(document))))
        }));
        made
    })
}

/// Returns the OpenAPI v2 document in JSON.
pub(crate) fn openapi_v2(kinds: &Kinds) -> &CachedDocument {
    let document =
        || cached(kinds, CachedDocument::of(documents::v2(kinds.resources(), kinds.definitions())));
    kinds.documents().v2.get_or_init(document)
}

/// Returns the OpenAPI v2 document in protobuf.
pub(crate) fn openapi_v2_protobuf(kinds: &Kinds) -> &CachedDocument {
    kinds.documents().v2_protobuf.get_or_init(|| {
        let body = documents::v2_protobuf(kinds.resources(), kinds.definitions()).into();
        let hash = format!("{}-protobuf", openapi_v2(kinds).hash);
        cached(kinds, CachedDocument::new(documents::GNOSTIC, hash, body))
    })
}

/// Keeps a document uncompressed only for the common set: there may be a thousand sets, and few clients read these
/// documents uncompressed.
fn cached(kinds: &Kinds, made: CachedDocument) -> CachedDocument {
    if kinds.common().is_none() { made } else { made.packed() }
}
