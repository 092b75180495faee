//! The OpenAPI and discovery documents of a set of kinds.
//!
//! They are large and change only with the set of kinds, so each is made once and shared by every logical
//! cluster with the same set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use openapi::publish::documents;
use openapi::publish::documents::OpenApiDocument;

use crate::http::compression::{self, Effort};
use crate::kinds::Kinds;
use crate::request::negotiation;

/// The documents about a set of kinds, each made by the first request for it.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// By path.
    v3: OnceLock<BTreeMap<String, Arc<CachedDocument>>>,
    v2: OnceLock<CachedDocument>,
    v2_protobuf: OnceLock<CachedDocument>,
    /// The core group, and all others.
    pub(crate) aggregated: [OnceLock<(String, Bytes)>; 2],
}

/// A document, ready to be sent: as it is, and compressed since the first client that accepts that.
#[derive(Debug)]
pub(crate) struct CachedDocument {
    pub(crate) content_type: &'static str,
    pub(crate) hash: String,
    /// None if only the packed one is kept.
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

    /// The same, kept as small as it gets.
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

/// Documents of groups and versions in which nothing is defined are those of the common set.
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

/// The older document, in JSON.
pub(crate) fn openapi_v2(kinds: &Kinds) -> &CachedDocument {
    let document = || kept(kinds, CachedDocument::of(documents::v2(kinds.resources(), kinds.definitions())));
    kinds.documents().v2.get_or_init(document)
}

/// The same, in its own protobuf.
pub(crate) fn openapi_v2_protobuf(kinds: &Kinds) -> &CachedDocument {
    kinds.documents().v2_protobuf.get_or_init(|| {
        let body = documents::v2_protobuf(kinds.resources(), kinds.definitions()).into();
        let hash = format!("{}-protobuf", openapi_v2(kinds).hash);
        kept(kinds, CachedDocument::new(documents::GNOSTIC, hash, body))
    })
}

/// There may be a thousand sets of kinds, and few clients read these documents uncompressed. So only the common set keeps
/// them uncompressed.
fn kept(kinds: &Kinds, made: CachedDocument) -> CachedDocument {
    if kinds.common().is_none() { made } else { made.packed() }
}
