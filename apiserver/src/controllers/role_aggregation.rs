//! Filling the cluster roles that gather the rules of others.
//!
//! Whatever happens to a cluster role is a reason to look at all of its logical cluster: any of them may gather it. A
//! role that changes by that is a reason to look again, and then there is nothing to write.

use api::cluster::Id;
use controller::queue::Outcome;
use openapi::catalog;
use serde_json::Value;
use storage::{Page, ReadError};

use crate::controllers::Controllers;
use crate::controllers::write::{Trouble, amend};
use crate::keys::Collection;
use crate::objects::stored;
use crate::rbac::{GROUP, aggregate};

pub(super) const COLLECTION: Collection<'static> = Collection { group: GROUP, plural: "clusterroles" };

pub(super) async fn look(controllers: &Controllers, cluster: Id) -> Result<Outcome, Trouble> {
    let store = &*controllers.seen;
    let entries = store.list(COLLECTION.range(cluster, None), Page::default()).await?.value.entries;
    let roles: Vec<Value> = entries.iter().map(|entry| stored::tree(entry).unwrap_or_default()).collect();
    let row = catalog::find(GROUP, "v1", COLLECTION.plural).expect("the catalogue has cluster roles");
    // What every role gathers from every other takes time that nobody else should wait for.
    let (roles, gathered) = tokio::task::spawn_blocking(move || {
        let gathered = aggregate::gathered(&roles);
        (roles, gathered)
    })
    .await
    .map_err(|error| ReadError::Unavailable { reason: error.to_string() })?;
    for ((entry, role), rules) in entries.iter().zip(&roles).zip(gathered) {
        let held = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(rules) = rules.filter(|rules| !aggregate::are_same(rules, held)) {
            amend(store, row, entry, |role| role["rules"] = rules.into()).await?;
        }
    }
    Ok(Outcome::Done)
}
