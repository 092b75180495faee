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

/// The documents about a set of kinds, each made when somebody first asks for it.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// By path.
    v3: OnceLock<BTreeMap<String, Arc<Made>>>,
    v2: OnceLock<Made>,
    v2_protobuf: OnceLock<Made>,
    /// The core group, and all others.
    pub(crate) aggregated: [OnceLock<(String, Bytes)>; 2],
}

/// A document, ready to be sent: as it is, and compressed from the first time somebody wants that.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) content_type: &'static str,
    pub(crate) hash: String,
    /// None if only the packed one is kept.
    pub(crate) body: Option<Bytes>,
    packed: OnceLock<Bytes>,
}

impl Made {
    fn new(content_type: &'static str, hash: String, body: Bytes) -> Made {
        Made { content_type, hash, body: Some(body), packed: OnceLock::new() }
    }

    fn of(document: OpenApiDocument) -> Made {
        Made::new(negotiation::JSON, document.hash, document.body.into())
    }

    /// The same, kept as small as it gets.
    fn packed(mut self) -> Made {
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
pub(crate) fn openapi_v3(kinds: &Kinds) -> &BTreeMap<String, Arc<Made>> {
    kinds.documents().v3.get_or_init(|| {
        let mut made = kinds.common().map_or_else(BTreeMap::new, |common| openapi_v3(common).clone());
        let own: BTreeSet<_> = kinds.own().iter().map(|row| (&*row.group, &*row.version)).collect();
        made.extend(own.into_iter().filter_map(|(group, version)| {
            let document = documents::v3(kinds.rows(), kinds.definitions(), group, version)?;
            Some((documents::path(group, version), Arc::new(Made::of(document))))
        }));
        made
    })
}

/// The older document, in JSON.
pub(crate) fn openapi_v2(kinds: &Kinds) -> &Made {
    let document = || kept(kinds, Made::of(documents::v2(kinds.rows(), kinds.definitions())));
    kinds.documents().v2.get_or_init(document)
}

/// The same, in its own protobuf.
pub(crate) fn openapi_v2_protobuf(kinds: &Kinds) -> &Made {
    kinds.documents().v2_protobuf.get_or_init(|| {
        let body = documents::v2_protobuf(kinds.rows(), kinds.definitions()).into();
        let hash = format!("{}-protobuf", openapi_v2(kinds).hash);
        kept(kinds, Made::new(documents::GNOSTIC, hash, body))
    })
}

/// There may be a thousand sets of kinds, and few clients read these documents uncompressed. So only the common set keeps
/// them uncompressed.
fn kept(kinds: &Kinds, made: Made) -> Made {
    if kinds.common().is_none() { made } else { made.packed() }
}
