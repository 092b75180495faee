//! Ending births whose logical cluster was never made.
//!
//! A birth is written before the object of its logical cluster. Whoever was cut off in between leaves a birth that
//! nobody can reach. A birth says where its object should be, so that is looked for once it must have been written.

use std::time::Duration;

use api::cluster::Id;
use controller::queue::Outcome;
use storage::{Page, Store};

use crate::clusters::logical_cluster;
use crate::clusters::records;
use crate::clusters::records::Birth;
use crate::controllers::Controllers;
use crate::controllers::write::Trouble;
use crate::keys;
use crate::objects::stored;

/// Longer than it takes to write an object after its birth: a request has a minute.
pub(super) const SETTLES: Duration = Duration::from_secs(90);
/// Entries looked at together.
const PAGE_ENTRIES: usize = 1000;

pub(super) async fn look(controllers: &Controllers, id: Id) -> Result<Outcome, Trouble> {
    let store = &*controllers.seen;
    if let Some(birth) = records::find(store, id).await?
        && is_nobodys(store, id, &birth).await?
    {
        records::end(store, id).await?;
    }
    Ok(Outcome::Done)
}

/// Looks at those that are there already, once, after a start.
pub(super) async fn look_at_all(controllers: &Controllers) -> Result<(), Trouble> {
    tokio::time::sleep(SETTLES).await;
    let mut page = Page { limit: Some(PAGE_ENTRIES), ..Page::default() };
    loop {
        let read = controllers.kept.list(keys::births(), page.clone()).await?.value;
        page.after = read.entries.last().map(|entry| entry.key().clone());
        for entry in &read.entries {
            if let (Some(id), Some(birth)) = (keys::born(entry.key()), Birth::decode(entry))
                && is_nobodys(&*controllers.seen, id, &birth).await?
            {
                controllers.births.add(id);
            }
        }
        if !read.more {
            return Ok(());
        }
    }
}

async fn is_nobodys(store: &dyn Store, id: Id, birth: &Birth) -> Result<bool, Trouble> {
    let Some(parent) = birth.parent else { return Ok(false) };
    let found = store.get(&logical_cluster::COLLECTION.key(parent, None, &birth.name)).await?.value;
    let found = found.and_then(|entry| stored::tree(&entry).ok());
    Ok(found.as_ref().and_then(logical_cluster::id) != Some(id))
}
