//! The kinds that a logical cluster serves: those of the server, and its own definitions.
//!
//! ```text
//!   the definitions of a logical cluster ─────────────┐
//!       what comes with us: built in ─┬─► common set ─┴─► Kinds ─► rows, discovery, OpenAPI
//!            and of our own (`Own`) ──┘
//! ```
//!
//! A set of kinds never changes. When a definition does, its logical cluster gets another set ([`Registry`]), and
//! requests that began with the old one finish with it. Logical clusters that define the same share one set, with
//! its schemas and its documents; those that define nothing share the common one, and cost nothing.

mod definition;
pub(crate) mod documents;
mod own;
mod pool;
mod registry;
pub(crate) mod reviews;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use api::names::GROUP;
use openapi::catalog;
use openapi::catalog::resource_info::{ResourceInfo, Verb};
use openapi::crd;
use openapi::crd::CustomKind;
use openapi::schema::OpenApiDefinitions;
use openapi::schema::Origin;

use crate::clusters::logical_cluster;
use crate::keys::Collection;
use crate::kinds::documents::Documents;
use crate::kinds::reviews::Review;

pub(crate) use crate::kinds::definition::{
    DEFINITIONS, ESTABLISHED, Status, definitions_resource, group, is_reserved,
};
pub use crate::kinds::own::{Own, OwnError};
pub use crate::kinds::registry::Registry;

/// Groups whose objects tell the server what to do. They are not served before it does it: a webhook that is
/// accepted and never called would mislead its author.
const WITHHELD: &[&str] = &["admissionregistration.k8s.io", "apiregistration.k8s.io"];
/// Groups of which no objects are kept. Where they are defined they are answered by [`Connect`](crate::endpoints::connect::Connect), and never written.
const READ_ONLY: &[&str] = &["metrics.k8s.io"];
/// Resources of the core group that keep nothing: what is sent there is done at once.
const DONE: &[&str] = &["bindings"];

/// What discovery says can be done with objects of a kind that is on its way out.
const LEAVING: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// The subresources that are served.
const SERVED: &[&str] = &[
    "approval",
    "binding",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "resize",
    "scale",
    "status",
    "token",
];

/// A custom kind, as a logical cluster serves it.
#[derive(Clone, Debug)]
struct Custom {
    content: definition::Content,
    kind: Arc<CustomKind>,
    /// Whether its definition has been deleted: what there is of it goes, and nothing comes.
    is_leaving: bool,
}

/// A set of kinds, and what is said about them in documents.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// In the order of discovery.
    resources: Vec<Arc<ResourceInfo>>,
    /// What every logical cluster has of it; none if that is all of it.
    common: Option<Arc<Kinds>>,
    /// Resources by their plural name, which hardly any two have in common: every request looks one up.
    by_plural: HashMap<Arc<str>, Vec<Arc<ResourceInfo>>>,
    /// Of the kinds that are not Kubernetes's own.
    definitions: OpenApiDefinitions,
    /// The versions custom kinds are stored in: of a kind that is served in no version there are objects still.
    stored: Vec<Arc<ResourceInfo>>,
    /// The custom kinds among them that are on their way out, by group and plural.
    leaving: HashSet<(Arc<str>, Arc<str>)>,
    documents: Documents,
}

impl Kinds {
    /// What comes with every server.
    pub(crate) fn built_in() -> &'static Arc<Kinds> {
        static BUILT_IN: LazyLock<Arc<Kinds>> = LazyLock::new(|| {
            let served = catalog::built_in().iter().filter(|resource| is_served(resource));
            let resources = served
                .map(|resource| Arc::new(as_served(resource)))
                .chain([logical_cluster::resource().clone()]);
            Arc::new(Kinds::new(resources.collect(), logical_cluster::definitions()))
        });
        &BUILT_IN
    }

    /// The same, and what comes with this one.
    fn of_server(own: Own) -> Arc<Kinds> {
        let built_in = Kinds::built_in();
        if own.kinds.is_empty() {
            return built_in.clone();
        }
        let mut made: Vec<Arc<ResourceInfo>> =
            own.kinds.iter().flat_map(|kind| &kind.resources).cloned().collect();
        made.extend(built_in.resources.iter().filter(|resource| &*resource.group == GROUP).cloned());
        made.sort_by(|one, other| in_order(one, other));
        let others = built_in.resources.iter().filter(|resource| &*resource.group != GROUP).cloned();
        let definitions = own.kinds.iter().flat_map(|kind| kind.definitions.clone());
        let definitions = built_in.definitions.clone().into_iter().chain(definitions).collect();
        Arc::new(Kinds::new(others.chain(made).collect(), definitions))
    }

    /// The common set, and these.
    fn with(common: &Arc<Kinds>, customs: Vec<Custom>) -> Kinds {
        let mut made: Vec<Arc<ResourceInfo>> =
            customs.iter().flat_map(|custom| &custom.kind.resources).cloned().collect();
        made.sort_by(|one, other| in_order(one, other));
        let definitions = customs.iter().flat_map(|custom| custom.kind.definitions.clone());
        let definitions = common.definitions.clone().into_iter().chain(definitions).collect();
        let gone =
            customs.iter().filter(|custom| custom.is_leaving).flat_map(|custom| &custom.kind.resources);
        let leaving = gone.map(|resource| (resource.group.clone(), resource.plural.clone())).collect();
        let resources = common.resources.iter().cloned().chain(made).collect();
        let stored = customs.iter().map(|custom| custom.kind.stored.clone()).collect();
        Kinds { common: Some(common.clone()), leaving, stored, ..Kinds::new(resources, definitions) }
    }

    fn new(resources: Vec<Arc<ResourceInfo>>, definitions: OpenApiDefinitions) -> Kinds {
        let mut by_plural: HashMap<Arc<str>, Vec<Arc<ResourceInfo>>> = HashMap::new();
        for resource in &resources {
            by_plural.entry(resource.plural.clone()).or_default().push(resource.clone());
        }
        Kinds {
            resources,
            common: None,
            by_plural,
            definitions,
            stored: Vec::new(),
            leaving: HashSet::new(),
            documents: Documents::default(),
        }
    }

    pub(crate) fn resources(&self) -> &[Arc<ResourceInfo>] {
        &self.resources
    }

    /// The set every logical cluster has, of which this one has more; none if this is that set.
    pub(crate) fn common(&self) -> Option<&Arc<Kinds>> {
        self.common.as_ref()
    }

    /// Those that are not in the set every logical cluster has; of that set, all.
    pub(crate) fn own(&self) -> &[Arc<ResourceInfo>] {
        &self.resources[self.common.as_ref().map_or(0, |common| common.resources.len())..]
    }

    /// All as discovery shows them.
    pub(crate) fn shown(&self) -> Vec<Arc<ResourceInfo>> {
        let shown = |resource: &Arc<ResourceInfo>| match self.is_leaving(resource) {
            true => Arc::new(ResourceInfo { verbs: LEAVING.to_vec(), ..ResourceInfo::clone(resource) }),
            false => resource.clone(),
        };
        self.resources.iter().map(shown).collect()
    }

    /// Whether the definition of a kind has been deleted, and objects of it go and do not come.
    pub(crate) fn is_leaving(&self, resource: &ResourceInfo) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&(resource.group.clone(), resource.plural.clone()))
    }

    pub(crate) fn definitions(&self) -> &OpenApiDefinitions {
        &self.definitions
    }

    /// Made by the first request for them.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        self.called(plural).find(|resource| &*resource.group == group && &*resource.version == version)
    }

    /// Whether this very row is among them.
    pub(crate) fn has(&self, resource: &Arc<ResourceInfo>) -> bool {
        self.called(&resource.plural).any(|found| Arc::ptr_eq(found, resource))
    }

    /// The resource whose objects are in a collection, in whatever version.
    pub(crate) fn find_collection(&self, collection: Collection<'_>) -> Option<&Arc<ResourceInfo>> {
        let all = self.called(collection.plural).chain(&self.stored);
        all.into_iter()
            .find(|resource| *resource.group == *collection.group && *resource.plural == *collection.plural)
    }

    /// The resource whose objects are of a kind, in whatever version; of two groups, the one they are kept in.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        let is_kept =
            |resource: &ResourceInfo| resource.stored_as.is_none() || resource.origin == Origin::Custom;
        let all = self.resources.iter().chain(&self.stored);
        all.into_iter()
            .find(|resource| &*resource.group == group && &*resource.kind == kind && is_kept(resource))
    }

    fn called(&self, plural: &str) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.by_plural.get(plural).into_iter().flatten()
    }
}

/// By group, then the best version first, then by name.
fn in_order(one: &ResourceInfo, other: &ResourceInfo) -> Ordering {
    let versions = || crd::version_order(&one.version, &other.version);
    one.group.cmp(&other.group).then_with(versions).then_with(|| one.plural.cmp(&other.plural))
}

/// Whether requests for it are answered: by the generic path, or as a review.
fn is_served(resource: &ResourceInfo) -> bool {
    is_kept(resource) || Review::of(resource).is_some()
}

/// Whether what is sent there stays or is done.
fn is_kept(resource: &ResourceInfo) -> bool {
    let lasts = resource.allows(Verb::Create) && resource.allows(Verb::Get);
    let done = resource.group.is_empty() && DONE.contains(&&*resource.plural);
    (lasts || done) && !WITHHELD.contains(&&*resource.group)
}

fn as_served(resource: &ResourceInfo) -> ResourceInfo {
    let mut resource = resource.clone();
    resource.subresources.retain(|part| SERVED.contains(&&*part.name));
    resource
}
