//! Which physical clusters run something.
//!
//! ```text
//!   every cluster ──► judge: selected? what stands against it? what fits? ──► pick: tiers, spread, number ──► Decision
//!                       │                                                                                  │
//!                       └───────────────── a verdict with evidence for every one of them ◄─────────────────┘
//! ```
//!
//! What runs somewhere stays there until something says otherwise: a filter keeps new work out and never evicts. Only a
//! changed wish, a drain, a `NoExecute` taint or a failure moves it. And a decision for nothing at all is no decision:
//! what runs stays where it is, and the outcome says why.

mod evaluate;
mod pick;
mod score;
mod verdict;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::fleet::{Chosen, GroupKind, PhysicalCluster, PlacementSpec, Role, Target, Verdict};
use api::meta::quantity::Amounts;

use crate::placement::policy::EffectivePlacement;
use crate::placement::shares::{WeightedCluster, divide};

pub use evaluate::lacks_kind;
pub use verdict::{Rejection, ShareLimit};

/// A physical cluster, and what is known about it besides.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub cluster: &'a PhysicalCluster,
    /// Whether `use` is granted.
    pub usable: bool,
    /// What Holon asks for there already, all other apps together.
    pub taken: Amounts,
    /// The namespace there that this would run in, for its quotas.
    pub namespace: String,
    /// How many of these were found to fit there, if pods had to wait for room.
    pub estimate: Option<u32>,
    /// How many of its pods wait there for a node.
    pub waiting: u32,
    /// The logical cluster it is, if its own work could be placed there again.
    pub circular: Option<String>,
    /// A claim that is mounted and whose data is elsewhere, if there is one.
    pub apart_from: Option<ClaimLocation>,
    /// Why what runs there must go, if it must: silent for too long, or this app does not work there.
    pub failed: Option<String>,
}

impl<'a> Candidate<'a> {
    pub fn new(cluster: &'a PhysicalCluster) -> Candidate<'a> {
        Candidate {
            cluster,
            usable: true,
            taken: Amounts::new(),
            namespace: String::new(),
            estimate: None,
            waiting: 0,
            circular: None,
            apart_from: None,
            failed: None,
        }
    }

    pub fn name(&self) -> &str {
        &self.cluster.metadata.name
    }
}

/// A claim, and the cluster its data is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimLocation {
    pub name: String,
    pub at: String,
}

/// What is to be placed.
#[derive(Clone, Debug)]
pub struct PlacementRequest<'a> {
    /// `namespace/name`, which decides ties.
    pub key: &'a str,
    /// The path of its logical cluster.
    pub logical_cluster: &'a str,
    /// All kinds that must be served where it goes.
    pub kinds: &'a [GroupKind],
    /// What of its pods the Pod Security Standard `baseline` does not allow.
    pub violations: &'a [String],
    /// What one replica asks for, itself (`pods: 1`) included.
    pub each: Amounts,
    pub replicas: u32,
    pub extent: Extent,
    /// The cluster that the rest of its namespace runs on. It comes first if it will do.
    pub beside: Option<&'a str>,
}

/// In how many places something can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Parts of it are in different places.
    Divided,
    /// Each place has all of it.
    Copied,
    /// All of it is in one place.
    Single,
}

/// Where it runs now, and under which wish that was decided.
#[derive(Clone, Debug, Default)]
pub struct CurrentPlacement<'a> {
    pub targets: &'a [Target],
    /// [`Wish::fingerprint`].
    pub under: Option<&'a str>,
}

impl CurrentPlacement<'_> {
    /// Its share on a cluster, if it runs there and is not about to leave. Something that is not divided has a share of 0.
    fn share(&self, cluster: &str) -> Option<u32> {
        let target =
            self.targets.iter().find(|target| target.cluster == cluster && target.role != Role::Leaving)?;
        Some(target.share.map_or(0, |share| u32::try_from(share).unwrap_or_default()))
    }
}

/// What was decided.
#[derive(Clone, PartialEq, Debug)]
pub struct TargetChoice {
    pub picks: Vec<Pick>,
    /// For every cluster, in the order of their names.
    pub verdicts: Vec<Verdict>,
    pub outcome: ChoiceOutcome,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChoiceOutcome {
    Placed,
    /// Nothing that is wanted can be had. It stays where it is.
    Held {
        why: String,
    },
    /// The same, and it runs nowhere yet.
    Pending {
        why: String,
    },
}

/// A chosen cluster, and what counts when a number is divided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pick {
    pub cluster: String,
    /// 0 for what is wanted first; fallback groups follow.
    pub tier: usize,
    pub weight: u64,
    pub min: u32,
    pub max: Option<u32>,
    pub capacity: Option<u32>,
    /// What makes `max` or `capacity`, whichever is less, what it is.
    pub limit: Option<ShareLimit>,
    /// It is cordoned or silent: it keeps exactly this.
    pub held: Option<u32>,
}

impl Pick {
    /// The most it takes, and why it takes no more. None if nothing is known to be too much.
    pub(crate) fn most(&self) -> Option<String> {
        let most = self.max.into_iter().chain(self.capacity).min()?;
        Some(format!("{} takes at most {most}: {}", self.cluster, self.limit?.evidence()))
    }

    /// The same, with at least one, if it takes any.
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

/// Chooses.
pub fn choose(
    effective: &EffectivePlacement,
    work: &PlacementRequest,
    fleet: &[Candidate],
    standing: &CurrentPlacement,
) -> TargetChoice {
    let judged = evaluate::fleet(effective, work, fleet, standing);
    let picked = pick::tiers(&effective.spec, work, &judged);
    let mut picks: Vec<Pick> = picked.iter().map(|(tier, at)| judged[*at].pick(*tier)).collect();
    let outcome = match (&picked.is_empty(), standing.targets.is_empty()) {
        (false, _) => ChoiceOutcome::Placed,
        (true, true) => ChoiceOutcome::Pending { why: verdict::why_none(effective, &judged) },
        (true, false) => ChoiceOutcome::Held { why: verdict::why_none(effective, &judged) },
    };
    if let ChoiceOutcome::Held { .. } = outcome {
        picks = standing.targets.iter().filter(|target| target.role != Role::Leaving).map(kept).collect();
    }
    TargetChoice { verdicts: verdict::rows(effective, work, &judged, &picks), picks, outcome }
}

/// Nobody can read where it should run: it stays where it is. Each cluster is judged all the same, by everything else.
pub fn stay(why: &str, work: &PlacementRequest, fleet: &[Candidate], targets: &[Target]) -> TargetChoice {
    let anywhere = EffectivePlacement { by: Chosen::default(), spec: PlacementSpec::default() };
    let judged = evaluate::fleet(&anywhere, work, fleet, &CurrentPlacement { targets, under: None });
    let picks: Vec<Pick> = targets.iter().filter(|target| target.role != Role::Leaving).map(kept).collect();
    let verdicts = verdict::unread(&anywhere, work, &judged, &picks, why);
    let why = why.to_owned();
    let outcome = if picks.is_empty() { ChoiceOutcome::Pending { why } } else { ChoiceOutcome::Held { why } };
    TargetChoice { picks, verdicts, outcome }
}

/// A target about which nothing can be decided now.
pub(crate) fn kept(target: &Target) -> Pick {
    let share = target.share.map(|share| u32::try_from(share).unwrap_or_default());
    let cluster = target.cluster.clone();
    Pick { cluster, tier: 0, weight: 1, min: 0, max: None, capacity: None, limit: None, held: share }
}

/// Who gets how many of a total, tier by tier, and how many found no place.
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
