//! The chosen clusters, over which an object is divided.

use std::collections::BTreeMap;

use super::shares::{WeightedCluster, divide};

/// A chosen cluster and the bounds of its share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pick {
    pub cluster: String,
    /// 0 for the clusters of the selector; fallback groups follow.
    pub tier: usize,
    pub weight: u64,
    pub min: u32,
    pub max: Option<u32>,
    pub capacity: Option<u32>,
    /// The reason for the smaller of `max` and `capacity`.
    pub limit: Option<ShareLimit>,
    /// It is cordoned or silent, and keeps exactly this share.
    pub held: Option<u32>,
}

impl Pick {
    /// The largest share it takes, and why. None if there is no limit.
    pub(crate) fn limit_message(&self) -> Option<String> {
        let most = self.max.into_iter().chain(self.capacity).min()?;
        Some(format!("{} takes at most {most}: {}", self.cluster, self.limit?.evidence()))
    }

    /// The same with a share of at least one, if it takes any.
    pub(crate) fn with_one(&self) -> Pick {
        let most = self.max.into_iter().chain(self.capacity).min().unwrap_or(u32::MAX);
        Pick { min: self.min.max(1).min(most), ..self.clone() }
    }

    pub(crate) fn member(&self) -> WeightedCluster<'_> {
        match self.held {
            Some(share) => WeightedCluster::held(&self.cluster, share),
            None => WeightedCluster {
                cluster: &self.cluster,
                weight: self.weight,
                min: self.min,
                max: self.max,
                capacity: self.capacity,
            },
        }
    }
}

/// Why a chosen cluster gets no larger share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareLimit {
    Maximum,
    Bound,
    Quota,
    /// Pods were unschedulable there.
    Estimate,
    FreeCapacity,
}

impl ShareLimit {
    pub fn evidence(self) -> &'static str {
        match self {
            ShareLimit::Maximum => "max in spec.shares",
            ShareLimit::Bound => "spec.bounds of the PhysicalCluster",
            ShareLimit::Quota => "a ResourceQuota of the namespace there",
            ShareLimit::Estimate => "more pods were unschedulable there",
            ShareLimit::FreeCapacity => "free capacity",
        }
    }
}

/// The shares of a total, tier by tier, and how many fit nowhere.
pub fn shares(total: u32, key: &str, picks: &[Pick]) -> (BTreeMap<String, u32>, u32) {
    let tiers = picks.iter().map(|pick| pick.tier + 1).max().unwrap_or_default();
    let (mut by_cluster, mut left) = (BTreeMap::new(), total);
    for tier in 0..tiers {
        let here: Vec<&Pick> = picks.iter().filter(|pick| pick.tier == tier).collect();
        let members: Vec<WeightedCluster> = here.iter().map(|pick| pick.member()).collect();
        let divided = divide(left, key, &members);
        by_cluster.extend(here.iter().map(|pick| pick.cluster.clone()).zip(divided.of));
        left = divided.pending;
    }
    (by_cluster, left)
}
