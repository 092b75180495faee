//! Placements, Overrides and StatusRules, and the objects that a Placement places.

use std::collections::HashMap;

use api::cluster::Id;
use api::fleet::{Counts, Distribution, Source};
use controller::informer::{Key, View};

use crate::snapshot::ConfigCaches;

/// The kind of a policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PolicyKind {
    Placement,
    Override,
    StatusRule,
}

impl PolicyKind {
    /// The kind of policy in a cache, if it is one.
    pub(crate) fn of(own: &ConfigCaches, view: &View) -> Option<PolicyKind> {
        let rows = [
            (&own.placements, PolicyKind::Placement),
            (&own.overrides, PolicyKind::Override),
            (&own.status_rules, PolicyKind::StatusRule),
        ];
        rows.into_iter().find(|(of, _)| of.kind == view.kind).map(|(_, policy)| policy)
    }
}

/// The counts of all objects of each Placement, updated as their records change.
#[derive(Debug, Default)]
pub(crate) struct PlacementCounts {
    /// By record: its Placement and its counts.
    records: HashMap<Key, (String, Counts)>,
    totals: HashMap<(Id, String), Counts>,
}

impl PlacementCounts {
    /// Updates the counts with a record. None: it was deleted. Returns the Placements whose counts changed.
    pub(crate) fn put(&mut self, key: &Key, record: Option<&Distribution>) -> Vec<String> {
        let by = record.filter(|record| record.spec.chosen_by.source == Source::Placement);
        let now = by.map(|record| {
            let counts = record.status.as_ref().and_then(|status| status.counts).unwrap_or_default();
            (record.spec.chosen_by.name.clone(), counts)
        });
        let before = match now.clone() {
            Some(now) => self.records.insert(key.clone(), now),
            None => self.records.remove(key),
        };
        if before == now {
            return Vec::new();
        }
        let cluster = key.cluster.unwrap_or(Id::ROOT);
        let mut changed = Vec::new();
        for ((name, counts), sign) in before.into_iter().map(|one| (one, -1)).chain(now.map(|one| (one, 1))) {
            add(self.totals.entry((cluster, name.clone())).or_default(), counts, sign);
            changed.push(name);
        }
        changed
    }

    pub(crate) fn of(&self, cluster: Id, name: &str) -> Counts {
        self.totals.get(&(cluster, name.to_owned())).copied().unwrap_or_default()
    }
}

fn add(total: &mut Counts, counts: Counts, sign: i64) {
    total.total += sign * counts.total;
    total.applied += sign * counts.applied;
    total.available += sign * counts.available;
    total.progressing += sign * counts.progressing;
    total.degraded += sign * counts.degraded;
    total.updated += sign * counts.updated;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(placement: &str, total: i64) -> Distribution {
        serde_json::from_value(json!({
            "metadata": { "name": "deployment-web" },
            "spec": {
                "object": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1" },
                "chosenBy": { "source": "Placement", "name": placement },
            },
            "status": { "counts": { "total": total, "available": 1 } },
        }))
        .unwrap()
    }

    #[test]
    fn placement_counts_follow_changed_records() {
        let (mut placement_counts, at) = (
            PlacementCounts::default(),
            Key { cluster: Some(Id::ROOT), ..Key::new("shop", "deployment-web") },
        );
        let totals = |placement_counts: &PlacementCounts, name: &str| {
            (placement_counts.of(Id::ROOT, name).total, placement_counts.of(Id::ROOT, name).available)
        };
        assert_eq!(placement_counts.put(&at, Some(&record("all", 3))), ["all"]);
        assert_eq!(
            placement_counts.put(&at, Some(&record("all", 3))),
            Vec::<String>::new(),
            "nothing is counted twice"
        );
        assert_eq!(placement_counts.put(&Key::new("shop", "other"), Some(&record("all", 2))), ["all"]);
        assert_eq!(totals(&placement_counts, "all"), (5, 2));
        assert_eq!(placement_counts.put(&at, Some(&record("eu", 3))), ["all", "eu"]);
        assert_eq!((totals(&placement_counts, "all"), totals(&placement_counts, "eu")), ((2, 1), (3, 1)));
        assert_eq!(placement_counts.put(&at, None), ["eu"]);
        assert_eq!(totals(&placement_counts, "eu"), (0, 0));
    }
}
