//! The kinds that a logical cluster serves: built-in ones, and those of its custom resource definitions.
//!
//! ```text
//!   custom resource definitions of a logical cluster ─┐
//!   built-in kinds of Kubernetes ────┬─► common set ──┴─► Kinds ─► resources, discovery, OpenAPI
//!   built-in kinds of Holon (`Own`) ─┘
//! ```
//!
//! A set of kinds is immutable. When a definition changes, its logical cluster gets a new set ([`Registry`]), and
//! requests that began with the old one finish with it. Logical clusters with the same definitions share one set with
//! its schemas and documents. Those without definitions share the common set and cost nothing.

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

/// Groups whose objects configure the server. They are not served until the server acts on them: a webhook that is
/// accepted but never called would mislead its author.
const WITHHELD: &[&str] = &["admissionregistration.k8s.io", "apiregistration.k8s.io"];
/// Groups whose objects are not stored. If a logical cluster defines one,
/// [`Connect`](crate::endpoints::connect::Connect) answers its reads; writes are not possible.
const READ_ONLY: &[&str] = &["metrics.k8s.io"];
/// Core resources that are not stored: a create is executed at once.
const DONE: &[&str] = &["bindings"];

/// The verbs of a terminating kind in discovery.
const LEAVING: &[Verb] = &[Verb::Delete, Verb::DeleteCollection, Verb::Get, Verb::List, Verb::Watch];

/// The subresources that the server implements.
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

/// A custom kind of a logical cluster.
#[derive(Clone, Debug)]
struct Custom {
    content: definition::Content,
    kind: Arc<CustomKind>,
    /// Whether its definition is terminating: its objects are being deleted, and none can be created.
    is_being_deleted: bool,
}

/// A set of kinds and their documents.
#[derive(Debug)]
pub(crate) struct Kinds {
    /// In the order of discovery.
    resources: Vec<Arc<ResourceInfo>>,
    /// The common set, which is part of this one. None if this is the common set.
    common: Option<Arc<Kinds>>,
    /// By plural name, which is nearly unique: every request looks up a resource.
    by_plural: HashMap<Arc<str>, Vec<Arc<ResourceInfo>>>,
    /// OpenAPI definitions of the kinds that are not part of Kubernetes.
    definitions: OpenApiDefinitions,
    /// The storage versions of custom kinds. A kind without a served version can still have objects.
    stored: Vec<Arc<ResourceInfo>>,
    /// The terminating custom kinds, by group and plural.
    leaving: HashSet<(Arc<str>, Arc<str>)>,
    documents: Documents,
}

impl Kinds {
    /// Returns the built-in kinds of Kubernetes.
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

    /// Returns the common set: the built-in kinds of Kubernetes and those of `own`.
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

    /// Returns the common set extended by these kinds.
    fn with(common: &Arc<Kinds>, customs: Vec<Custom>) -> Kinds {
        let mut made: Vec<Arc<ResourceInfo>> =
            customs.iter().flat_map(|custom| &custom.kind.resources).cloned().collect();
        made.sort_by(|one, other| in_order(one, other));
        let definitions = customs.iter().flat_map(|custom| custom.kind.definitions.clone());
        let definitions = common.definitions.clone().into_iter().chain(definitions).collect();
        let terminating =
            customs.iter().filter(|custom| custom.is_being_deleted).flat_map(|custom| &custom.kind.resources);
        let leaving = terminating.map(|resource| (resource.group.clone(), resource.plural.clone())).collect();
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

    /// Returns the common set. None if this is the common set.
    pub(crate) fn common(&self) -> Option<&Arc<Kinds>> {
        self.common.as_ref()
    }

    /// Returns the kinds that are not in the common set. For the common set itself, returns all.
    pub(crate) fn own(&self) -> &[Arc<ResourceInfo>] {
        &self.resources[self.common.as_ref().map_or(0, |common| common.resources.len())..]
    }

    /// Returns all kinds as discovery shows them.
    pub(crate) fn discoverable(&self) -> Vec<Arc<ResourceInfo>> {
        let discoverable = |resource: &Arc<ResourceInfo>| match self.is_being_deleted(resource) {
            true => Arc::new(ResourceInfo { verbs: LEAVING.to_vec(), ..ResourceInfo::clone(resource) }),
            false => resource.clone(),
        };
        self.resources.iter().map(discoverable).collect()
    }

    /// Reports whether the definition of a kind is terminating.
    pub(crate) fn is_being_deleted(&self, resource: &ResourceInfo) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&(resource.group.clone(), resource.plural.clone()))
    }

    pub(crate) fn definitions(&self) -> &OpenApiDefinitions {
        &self.definitions
    }

    /// Returns the documents, which are built on first use.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        self.called(plural).find(|resource| &*resource.group == group && &*resource.version == version)
    }

    /// Reports whether the set contains this very resource, by identity.
    pub(crate) fn has(&self, resource: &Arc<ResourceInfo>) -> bool {
        self.called(&resource.plural).any(|found| Arc::ptr_eq(found, resource))
    }

    /// Returns a resource of a collection, in any version.
    pub(crate) fn find_collection(&self, collection: Collection<'_>) -> Option<&Arc<ResourceInfo>> {
        let all = self.called(collection.plural).chain(&self.stored);
        all.into_iter()
            .find(|resource| *resource.group == *collection.group && *resource.plural == *collection.plural)
    }

    /// Returns the resource of a kind, in any version. If two groups have it, returns the one it is stored in.
    pub(crate) fn find_kind(&self, group: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        let is_stored =
            |resource: &ResourceInfo| resource.stored_as.is_none() || resource.origin == Origin::Custom;
        let all = self.resources.iter().chain(&self.stored);
        all.into_iter()
            .find(|resource| &*resource.group == group && &*resource.kind == kind && is_stored(resource))
    }

    fn called(&self, plural: &str) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.by_plural.get(plural).into_iter().flatten()
    }
}

/// Orders by group, then version (best first), then name.
fn in_order(one: &ResourceInfo, other: &ResourceInfo) -> Ordering {
    let versions = || crd::version_order(&one.version, &other.version);
    one.group.cmp(&other.group).then_with(versions).then_with(|| one.plural.cmp(&other.plural))
}

/// Reports whether the server answers requests for a resource: from the store or as a review.
fn is_served(resource: &ResourceInfo) -> bool {
    is_stored(resource) || Review::of(resource).is_some()
}

/// Reports whether objects of a resource are stored, or executed at once like bindings.
fn is_stored(resource: &ResourceInfo) -> bool {
    let lasts = resource.allows(Verb::Create) && resource.allows(Verb::Get);
    let done = resource.group.is_empty() && DONE.contains(&&*resource.plural);
    (lasts || done) && !WITHHELD.contains(&&*resource.group)
}

fn as_served(resource: &ResourceInfo) -> ResourceInfo {
    let mut resource = resource.clone();
    resource.subresources.retain(|subresource| SERVED.contains(&&*subresource.name));
    resource
}
