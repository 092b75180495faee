//! Chooses the physical clusters that run a workload.
//!
//! ```text
//!   every cluster ──► evaluate: selected? rejected? what fits? ──► pick: tiers, spread, number ──► TargetChoice
//!                       │                                                                               │
//!                       └──────────── a verdict with message and remedy for every one of them ◄──────────┘
//! ```
//!
//! A workload stays on its targets until there is a reason to move: a filter keeps new workloads out and never evicts.
//! Only a changed placement, a drain, a `NoExecute` taint or a failure moves it. If no cluster can be chosen, the
//! workload keeps its targets, and the outcome has the reason.

mod evaluate;
mod pick;
mod score;
mod verdict;

#[cfg(test)]
mod tests;

use api::fleet::{Chosen, GroupKind, PhysicalCluster, PlacementSpec, Role, Target, Verdict};
use api::meta::quantity::Amounts;

use crate::division::pick::Pick;
use crate::policy::EffectivePlacement;

pub use evaluate::lacks_kind;
pub use verdict::Rejection;

/// A physical cluster with the input of the decision about it.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    pub cluster: &'a PhysicalCluster,
    /// Whether the logical cluster is granted the verb `use`.
    pub usable: bool,
    /// The reservations of all other workloads there.
    pub taken: Amounts,
    /// The namespace on the physical cluster, for its quotas.
    pub namespace: String,
    /// How many replicas fit there, estimated from unschedulable pods.
    pub estimate: Option<u32>,
    /// The unschedulable pods of the workload there.
    pub waiting: u32,
    /// The path of the logical cluster it is, if its own objects could be placed there again.
    pub circular: Option<String>,
    /// A claim that is mounted and whose data is elsewhere, if there is one.
    pub claim_elsewhere: Option<ClaimLocation>,
    /// Why the workload has to leave the cluster: it has been silent for too long, or the workload fails there.
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
            claim_elsewhere: None,
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

/// The workload to place.
#[derive(Clone, Debug)]
pub struct PlacementRequest<'a> {
    /// `namespace/name`, which decides ties.
    pub key: &'a str,
    /// The path of its logical cluster.
    pub logical_cluster: &'a str,
    /// The kinds that a target has to serve.
    pub kinds: &'a [GroupKind],
    /// The violations of the Pod Security Standard `baseline`.
    pub violations: &'a [String],
    /// The requests of one replica, `pods: 1` included.
    pub each: Amounts,
    pub replicas: u32,
    pub extent: Extent,
    /// The cluster of the rest of its namespace. It is preferred.
    pub beside: Option<&'a str>,
}

/// On how many clusters a workload can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Divided over several clusters.
    Divided,
    /// All of it on every cluster.
    Copied,
    /// All of it on one cluster.
    Single,
}

/// The present targets, and the placement they were chosen for.
#[derive(Clone, Debug, Default)]
pub struct CurrentPlacement<'a> {
    pub targets: &'a [Target],
    /// [`EffectivePlacement::fingerprint`].
    pub fingerprint: Option<&'a str>,
}

impl CurrentPlacement<'_> {
    /// Its share on a cluster, if it runs there and is not leaving. An undivided workload has a share of 0.
    fn share(&self, cluster: &str) -> Option<u32> {
        let target =
            self.targets.iter().find(|target| target.cluster == cluster && target.role != Role::Leaving)?;
        Some(target.share.map_or(0, |share| u32::try_from(share).unwrap_or_default()))
    }
}

/// The chosen clusters.
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
    /// No cluster can be chosen. The workload stays on its targets.
    Held {
        why: String,
    },
    /// No cluster can be chosen, and it has no target yet.
    Pending {
        why: String,
    },
}

/// Chooses the targets of a workload.
pub fn choose(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    fleet: &[Candidate],
    current: &CurrentPlacement,
) -> TargetChoice {
    let evaluated = evaluate::fleet(effective, request, fleet, current);
    let picked = pick::tiers(&effective.spec, request, &evaluated);
    let mut picks: Vec<Pick> = picked.iter().map(|(tier, at)| evaluated[*at].pick(*tier)).collect();
    let outcome = match (&picked.is_empty(), current.targets.is_empty()) {
        (false, _) => ChoiceOutcome::Placed,
        (true, true) => ChoiceOutcome::Pending { why: verdict::why_none(effective, &evaluated) },
        (true, false) => ChoiceOutcome::Held { why: verdict::why_none(effective, &evaluated) },
    };
    if let ChoiceOutcome::Held { .. } = outcome {
        picks = current.targets.iter().filter(|target| target.role != Role::Leaving).map(held_pick).collect();
    }
    TargetChoice { verdicts: verdict::for_clusters(effective, request, &evaluated, &picks), picks, outcome }
}

/// The annotation is invalid, so the workload stays on its targets. Every cluster is evaluated all the same, by
/// everything else.
pub fn hold_current(
    why: &str,
    request: &PlacementRequest,
    fleet: &[Candidate],
    targets: &[Target],
) -> TargetChoice {
    let anywhere = EffectivePlacement { by: Chosen::default(), spec: PlacementSpec::default() };
    let evaluated =
        evaluate::fleet(&anywhere, request, fleet, &CurrentPlacement { targets, fingerprint: None });
    let picks: Vec<Pick> =
        targets.iter().filter(|target| target.role != Role::Leaving).map(held_pick).collect();
    let verdicts = verdict::of_invalid_annotation(&anywhere, request, &evaluated, &picks, why);
    let why = why.to_owned();
    let outcome = if picks.is_empty() { ChoiceOutcome::Pending { why } } else { ChoiceOutcome::Held { why } };
    TargetChoice { picks, verdicts, outcome }
}

/// A pick that keeps the share of a target.
pub(crate) fn held_pick(target: &Target) -> Pick {
    let share = target.share.map(|share| u32::try_from(share).unwrap_or_default());
    let cluster = target.cluster.clone();
    Pick { cluster, tier: 0, weight: 1, min: 0, max: None, capacity: None, limit: None, held: share }
}
