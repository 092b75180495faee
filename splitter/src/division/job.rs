//! Divides a Job: every completion runs once.
//!
//! Parallelism is divided like replicas, completions in proportion to it, and retries in proportion to those. The
//! completions of a Job are immutable, so the recorded ones are kept. Without completions (a work queue) each target runs
//! its share of the workers, and the queue ensures that no item is processed twice.
//!
//! Pods of an Indexed Job get their index from Kubernetes, which counts from 0 in every Job. Targets have disjoint
//! ranges of indexes, but only the pods can add the start of theirs: those that declare the variable
//! `HOLON_INDEX_START` (with the value `0`, so that they work without Holon) get it. An Indexed Job whose pods do not
//! declare it runs as a whole on one target; divided, it would repeat some indexes and never run others.

use std::collections::BTreeMap;

use api::fleet::Target;
use serde_json::Value;

use super::{Dividend, DivisionPlan, TargetPatch, number, one};
use crate::division::pick::{Pick, shares};
use crate::division::shares::{WeightedCluster, divide};

pub const INDEX_START: &str = "HOLON_INDEX_START";

pub(crate) const PARALLELISM: &str = "/spec/parallelism";
const COMPLETIONS: &str = "/spec/completions";
const BACKOFF_LIMIT: &str = "/spec/backoffLimit";
const MAX_FAILED: &str = "/spec/maxFailedIndexes";
/// The default of Kubernetes.
const BACKOFF_LIMIT_DEFAULT: u32 = 6;
/// The value that Kubernetes sets for an Indexed Job with a backoff limit per index.
const BACKOFF_LIMIT_UNUSED: i64 = i32::MAX as i64;

pub fn is_indexed(job: &Value) -> bool {
    job.pointer("/spec/completionMode").is_some_and(|mode| mode == "Indexed")
}

/// Whether it can be divided over several targets.
pub fn divides(job: &Value) -> bool {
    !is_indexed(job)
        || (index_variables(job).next().is_some() && job.pointer("/spec/successPolicy").is_none())
}

/// The pointers to the values of the variable `HOLON_INDEX_START`.
fn index_variables(job: &Value) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    for list in ["initContainers", "containers"] {
        let containers = job.pointer(&format!("/spec/template/spec/{list}")).and_then(Value::as_array);
        for (at, container) in containers.into_iter().flatten().enumerate() {
            let variables = container["env"].as_array().into_iter().flatten();
            let declared = variables.enumerate().filter(|(_, variable)| variable["name"] == INDEX_START);
            found.extend(declared.map(|(of, _)| format!("/spec/template/spec/{list}/{at}/env/{of}/value")));
        }
    }
    found.into_iter()
}

pub(super) fn plan(dividend: &Dividend, picks: &[Pick], recorded: &[Target]) -> DivisionPlan {
    let Dividend { object, key, .. } = *dividend;
    if !divides(object) {
        return one(key, picks, recorded);
    }
    let parallelism = number(object, PARALLELISM, 1);
    let (workers, _) = shares(parallelism, key, picks);
    let Some(completions) = object.pointer(COMPLETIONS).and_then(Value::as_i64) else {
        return queue(dividend, workers);
    };
    let completions = u32::try_from(completions.max(0)).unwrap_or(u32::MAX);
    let (shares, workers) = match fixed(recorded, completions) {
        // Targets with completions get workers, even if they are no longer chosen.
        Some(shares) => {
            let members: Vec<WeightedCluster> =
                shares.iter().map(|(cluster, share)| member(cluster, *share)).collect();
            let workers = divide(parallelism, key, &members).of;
            (shares.clone(), shares.into_keys().zip(workers).collect())
        }
        None => (in_proportion(completions, key, picks, &workers), workers),
    };
    let retries = retries(object, key, &shares);
    let mut start = 0;
    let mut patches = Vec::new();
    for (cluster, share) in shares.iter().filter(|(_, share)| **share > 0) {
        let workers = workers.get(cluster).copied().unwrap_or_default();
        let mut patch = TargetPatch::default().set(COMPLETIONS, *share).set(PARALLELISM, workers.min(*share));
        for (pointer, by_cluster) in &retries {
            patch = patch.set(pointer, by_cluster[cluster]);
        }
        for pointer in index_variables(object) {
            patch = patch.set(&pointer, start.to_string());
        }
        start += share;
        patches.push((cluster.clone(), patch));
    }
    let pending = completions - shares.values().sum::<u32>();
    DivisionPlan { patches, total: Some(completions), shares, pending }
}

/// A Job without completions. A target without workers gets no Job.
fn queue(dividend: &Dividend, workers: BTreeMap<String, u32>) -> DivisionPlan {
    let total = number(dividend.object, PARALLELISM, 1);
    let retries = retries(dividend.object, dividend.key, &workers);
    let patch = |cluster: &String, workers: u32| {
        let patch = TargetPatch::default().set(PARALLELISM, workers);
        retries.iter().fold(patch, |patch, (pointer, by_cluster)| patch.set(pointer, by_cluster[cluster]))
    };
    let working = workers.iter().filter(|(_, workers)| **workers > 0 || total == 0);
    let patches = working.map(|(cluster, workers)| (cluster.clone(), patch(cluster, *workers))).collect();
    let pending = total - workers.values().sum::<u32>();
    DivisionPlan { patches, total: Some(total), shares: workers, pending }
}

fn member(cluster: &str, share: u32) -> WeightedCluster<'_> {
    WeightedCluster::new(cluster).weighing(u64::from(share))
}

/// The recorded shares, if they add up to the completions.
fn fixed(recorded: &[Target], completions: u32) -> Option<BTreeMap<String, u32>> {
    let share = |target: &Target| u32::try_from(target.share?).ok();
    let shares: BTreeMap<String, u32> =
        recorded.iter().filter_map(|target| Some((target.cluster.clone(), share(target)?))).collect();
    (!shares.is_empty() && shares.values().sum::<u32>() == completions).then_some(shares)
}

fn in_proportion(
    completions: u32,
    key: &str,
    picks: &[Pick],
    workers: &BTreeMap<String, u32>,
) -> BTreeMap<String, u32> {
    let working = workers.values().any(|workers| *workers > 0);
    // A Job with parallelism 0 is divided by weight, because completions cannot be changed later.
    let weight = |pick: &Pick| if working { u64::from(workers[&pick.cluster]) } else { pick.weight };
    let members: Vec<WeightedCluster> =
        picks.iter().map(|pick| WeightedCluster::new(&pick.cluster).weighing(weight(pick))).collect();
    picks.iter().map(|pick| pick.cluster.clone()).zip(divide(completions, key, &members).of).collect()
}

/// The limits of failures, in proportion to the shares.
fn retries(
    job: &Value,
    key: &str,
    shares: &BTreeMap<String, u32>,
) -> Vec<(&'static str, BTreeMap<String, u32>)> {
    let members: Vec<WeightedCluster> =
        shares.iter().map(|(cluster, share)| member(cluster, *share)).collect();
    let apportioned = |pointer: &'static str, bound: u32| {
        (pointer, shares.keys().cloned().zip(divide(bound, key, &members).of).collect())
    };
    let per_index = job.pointer(BACKOFF_LIMIT).and_then(Value::as_i64) == Some(BACKOFF_LIMIT_UNUSED);
    let backoff =
        (!per_index).then(|| apportioned(BACKOFF_LIMIT, number(job, BACKOFF_LIMIT, BACKOFF_LIMIT_DEFAULT)));
    let failed = job.pointer(MAX_FAILED).map(|_| apportioned(MAX_FAILED, number(job, MAX_FAILED, 0)));
    backoff.into_iter().chain(failed).collect()
}

/// The remaining completions of a lost target: succeeded completions are not repeated.
pub fn unfinished(share: u32, succeeded: u32) -> u32 {
    share.saturating_sub(succeeded)
}
