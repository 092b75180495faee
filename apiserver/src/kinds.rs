//! What a logical cluster serves: the kinds that come with the server, and those it defines itself.
//!
//! A set of kinds never changes, so whoever has one in hand can finish with it.

mod registry;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use openapi::catalog;
use openapi::document::Definitions;
use openapi::resource::{Resource, Verb};

use crate::clusters;
use crate::keys::Collection;
use crate::parts;
use crate::publish::Documents;
use crate::reviews::Review;

pub use registry::Registry;

/// Groups whose objects tell the server what to do. They are not served before it does it: a definition that is
/// accepted and defines nothing would be a lie.
const WITHHELD: &[&str] = &["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];
/// Resources of the core group that keep nothing: what is sent there is done at once.
const DONE: &[&str] = &["bindings"];

/// A set of kinds, and what is said about them in documents.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// In the order of discovery.
    rows: Vec<Arc<Resource>>,
    /// Resources by their plural name, which hardly any two have in common: every request looks one up.
    by_plural: HashMap<Arc<str>, Vec<Arc<Resource>>>,
    /// Of the kinds that are not Kubernetes's own.
    definitions: Definitions,
    documents: Documents,
}

impl Kinds {
    /// What comes with the server.
    pub(crate) fn built_in() -> &'static Arc<Kinds> {
        static BUILT_IN: LazyLock<Arc<Kinds>> = LazyLock::new(|| {
            let served = catalog::built_in().iter().filter(|row| is_served(row));
            let rows = served.map(|row| Arc::new(as_served(row))).chain([clusters::row().clone()]);
            Arc::new(Kinds::new(rows.collect(), clusters::definitions()))
        });
        &BUILT_IN
    }

    fn new(rows: Vec<Arc<Resource>>, definitions: Definitions) -> Kinds {
        let mut by_plural: HashMap<Arc<str>, Vec<Arc<Resource>>> = HashMap::new();
        for row in &rows {
            by_plural.entry(row.plural.clone()).or_default().push(row.clone());
        }
        Kinds { rows, by_plural, definitions, documents: Documents::default() }
    }

    pub(crate) fn rows(&self) -> &[Arc<Resource>] {
        &self.rows
    }

    pub(crate) fn definitions(&self) -> &Definitions {
        &self.definitions
    }

    /// Made when somebody first asks for them.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.called(plural).find(|row| &*row.group == group && &*row.version == version)
    }

    /// The resource whose objects are in a collection, in whatever version.
    pub(crate) fn find_collection(&self, collection: Collection<'_>) -> Option<&Arc<Resource>> {
        self.called(collection.plural).find(|row| *row.group == *collection.group)
    }

    /// The resource whose objects are of a kind, in whatever version; the one they are kept as.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.rows.iter().find(|row| &*row.group == group && &*row.kind == kind && row.stored_as.is_none())
    }

    fn called(&self, plural: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_plural.get(plural).into_iter().flatten()
    }
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
