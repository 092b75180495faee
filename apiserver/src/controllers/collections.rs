//! Lists the collections of a logical cluster.

use std::collections::HashSet;
use std::sync::Arc;

use openapi::catalog::resource_info::ResourceInfo;
use storage::{Page, Range, ReadError, Store};

use crate::keys;
use crate::keys::{Collection, ObjectKey};
use crate::kinds::Kinds;

/// A collection, and its resource if it is served.
#[derive(Clone, Debug)]
pub(super) struct StoredCollection {
    group: String,
    plural: String,
    pub(super) resource: Option<Arc<ResourceInfo>>,
}

impl StoredCollection {
    pub(super) fn collection(&self) -> Collection<'_> {
        Collection { group: &self.group, plural: &self.plural }
    }

    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// Returns every collection that a logical cluster serves, and every other one with objects in the store: objects of a
/// kind that is no longer served must be deleted too.
pub(super) async fn all(inner_store: &dyn Store, kinds: &Kinds) -> Result<Vec<StoredCollection>, ReadError> {
    let (mut collections, mut seen) = (Vec::new(), HashSet::new());
    let mut add = |group: &str, plural: &str| {
        if seen.insert((group.to_owned(), plural.to_owned())) {
            let resource = kinds.find_collection(Collection { group, plural }).cloned();
            collections.push(StoredCollection {
                group: group.to_owned(),
                plural: plural.to_owned(),
                resource,
            });
        }
    };
    kinds.resources().iter().for_each(|resource| add(&resource.group, &resource.plural));
    // Jumps from one collection to the next with one read each, however many objects they contain.
    let mut page = Page { limit: Some(1), ..Page::default() };
    while let Some(entry) = inner_store.list(Range::all(), page.clone()).await?.value.entries.pop() {
        page.after = Some(match ObjectKey::of(entry.key()) {
            Some(place) => {
                add(place.collection.group, place.collection.plural);
                place.collection.after()
            }
            // Records come after all objects in key order, and there may be a million of them.
            None if keys::cluster_record_id(entry.key()).is_some() => break,
            None => entry.key().clone(),
        });
    }
    Ok(collections)
}
