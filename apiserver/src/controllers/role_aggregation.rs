//! Aggregated cluster roles: writes the rules that they aggregate.
//!
//! Each change of a cluster role reconciles all cluster roles of its logical cluster, because any of them may aggregate
//! it. The writes themselves requeue the logical cluster once more; then there is nothing to write.

use api::cluster::Id;
use controller::queue::Outcome;
use openapi::catalog;
use serde_json::Value;
use storage::{Page, ReadError};

use crate::controllers::write::{ReconcileError, amend};
use crate::controllers::{Controllers, record_revision};
use crate::keys::Collection;
use crate::objects::stored;
use crate::rbac::{GROUP, aggregate};

pub(super) const COLLECTION: Collection<'static> = Collection { group: GROUP, plural: "clusterroles" };

pub(super) async fn reconcile(controllers: &Controllers, cluster: Id) -> Result<Outcome, ReconcileError> {
    let store = &*controllers.store;
    let listed = store.list(COLLECTION.range(cluster, None), Page::default()).await?;
    record_revision(listed.revision);
    let entries = listed.value.entries;
    let roles: Vec<Value> = entries.iter().map(|entry| stored::tree(entry).unwrap_or_default()).collect();
    let resource = catalog::find(GROUP, "v1", COLLECTION.plural).expect("the catalogue has cluster roles");
    // Aggregation takes CPU time, so it runs on a blocking thread.
    let (roles, aggregated) = tokio::task::spawn_blocking(move || {
        let aggregated = aggregate::aggregated_rules(&roles);
        (roles, aggregated)
    })
    .await
    .map_err(|error| ReadError::Unavailable { reason: error.to_string() })?;
    for ((entry, role), rules) in entries.iter().zip(&roles).zip(aggregated) {
        let current_rules = role["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(rules) = rules.filter(|rules| !aggregate::are_same(rules, current_rules)) {
            amend(store, resource, entry, |role| role["rules"] = rules.into()).await?;
        }
    }
    Ok(Outcome::Done)
}
