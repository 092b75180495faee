//! Which collections there are.

use std::collections::HashSet;
use std::sync::Arc;

use openapi::catalog::resource_info::ResourceInfo;
use storage::{Page, Range, ReadError, Store};

use crate::keys;
use crate::keys::{Collection, ObjectKey};
use crate::kinds::Kinds;

/// A collection by name, and its row if it is served.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    group: String,
    plural: String,
    pub(super) resource: Option<Arc<ResourceInfo>>,
}

impl Kept {
    pub(super) fn collection(&self) -> Collection<'_> {
        Collection { group: &self.group, plural: &self.plural }
    }

    pub(super) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// Every collection that is served in a logical cluster, and every other one of which something is kept: what is no longer served must
/// not stay behind for ever.
pub(super) async fn all(kept: &dyn Store, kinds: &Kinds) -> Result<Vec<Kept>, ReadError> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut add = |group: &str, plural: &str| {
        if seen.insert((group.to_owned(), plural.to_owned())) {
            let resource = kinds.find_collection(Collection { group, plural }).cloned();
            found.push(Kept { group: group.to_owned(), plural: plural.to_owned(), resource });
        }
    };
    kinds.resources().iter().for_each(|resource| add(&resource.group, &resource.plural));
    // From one collection to the next, whatever they hold: one read each.
    let mut page = Page { limit: Some(1), ..Page::default() };
    while let Some(entry) = kept.list(Range::all(), page.clone()).await?.value.entries.pop() {
        page.after = Some(match ObjectKey::of(entry.key()) {
            Some(place) => {
                add(place.collection.group, place.collection.plural);
                place.collection.after()
            }
            // Records come after all objects, and there may be a million of them.
            None if keys::cluster_record_id(entry.key()).is_some() => break,
            None => entry.key().clone(),
        });
    }
    Ok(found)
}
