//! The rules of the built-in types, one file per subject.

pub(super) mod access;
pub(super) mod batch;
pub(super) mod certificates;
pub(super) mod clusters;
pub(super) mod config;
mod discovery;
pub(super) mod events;
mod flow;
pub(super) mod network;
pub(super) mod plan;
pub(super) mod pods;
mod policies;
pub(super) mod quotas;
mod scaling;
pub(super) mod services;
pub(super) mod storage;
pub(super) mod workloads;

use std::collections::HashMap;

use super::rule::{Rule, Table};

const TABLES: &[Table] = &[
    access::RULES,
    batch::RULES,
    certificates::RULES,
    clusters::RULES,
    config::RULES,
    pods::containers::RULES,
    discovery::RULES,
    events::RULES,
    flow::RULES,
    network::RULES,
    pods::RULES,
    policies::RULES,
    quotas::RULES,
    scaling::RULES,
    pods::scheduling::RULES,
    pods::security::RULES,
    services::RULES,
    storage::RULES,
    pods::volumes::RULES,
    workloads::RULES,
];

/// Returns all rules by full type name.
pub(super) fn by_type() -> HashMap<String, &'static [Rule]> {
    let rows = TABLES.iter().copied().flatten();
    rows.map(|(name, rules)| (format!("io.k8s.api.{name}"), *rules)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_has_one_row() {
        let rows: usize = TABLES.iter().map(|table| table.len()).sum();
        assert_eq!(by_type().len(), rows);
    }
}
