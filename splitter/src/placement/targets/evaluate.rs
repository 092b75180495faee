//! Evaluates every cluster by itself: whether the placement selects it, why it is rejected, and how many replicas fit.

use std::collections::BTreeMap;

use api::fleet::{
    ClusterSelector, Effect, GroupKind, Operator, PhysicalCluster, PlacementSpec, PodSecurity, ServedKind,
    Taint, Toleration, Weights,
};
use api::meta::quantity::{self, Amounts, fits, minus};
use serde_json::Value;

use crate::placement::pod_security;

use super::{Candidate, CurrentPlacement, Extent, PlacementRequest, Rejection, score};
use crate::division::pick::{Pick, ShareLimit};
use crate::policy::select::{self, Selected};
use crate::policy::{EffectivePlacement, ShareBounds, share_bounds};

/// The evaluation of one cluster.
#[derive(Clone, Debug)]
pub(super) struct EvaluatedCluster<'a> {
    pub(super) candidate: &'a Candidate<'a>,
    /// The first tier that selects it.
    pub(super) tier: Option<usize>,
    /// Why no new workload may be placed there; of several reasons, the first.
    pub(super) rejection: Option<Rejection>,
    /// Its share if the workload runs there now and may keep running.
    pub(super) current_share: Option<u32>,
    /// Whether the rest of its namespace runs there.
    pub(super) beside: bool,
    /// Whether it is chosen only if there is no other.
    pub(super) avoided: bool,
    pub(super) free: Option<Amounts>,
    /// How many replicas fit, including the present ones.
    pub(super) fits: Option<u32>,
    /// The largest share: the least of bounds, quotas, estimate and, where it counts, `fits`.
    pub(super) capacity: Option<u32>,
    /// The reason for the limit, if there is one.
    pub(super) limit: Option<ShareLimit>,
    pub(super) bounds: ShareBounds,
    pub(super) weight: u64,
    pub(super) score: Option<u64>,
    pub(super) tie: u64,
}

impl EvaluatedCluster<'_> {
    pub(super) fn name(&self) -> &str {
        self.candidate.name()
    }

    pub(super) fn is_open(&self) -> bool {
        self.current_share.is_some() || self.tier.is_some() && self.rejection.is_none()
    }

    pub(super) fn pick(&self, tier: usize) -> Pick {
        // A cluster that takes no new workloads keeps the share of those it runs.
        let held = self.current_share.filter(|_| self.rejection.as_ref().is_some_and(Rejection::freezes));
        let ShareBounds { min, max, .. } = self.bounds;
        let cluster = self.name().to_owned();
        let (weight, capacity, limit) = (self.weight, self.capacity, self.limit);
        Pick { cluster, tier, weight, min, max, capacity, limit, held }
    }
}

pub(super) fn fleet<'a>(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    candidates: &'a [Candidate],
    current: &CurrentPlacement,
) -> Vec<EvaluatedCluster<'a>> {
    let mut sorted: Vec<&Candidate> = candidates.iter().collect();
    sorted.sort_by(|a, b| a.name().cmp(b.name()));
    let changed = current.fingerprint.is_some_and(|fingerprint| fingerprint != effective.fingerprint());
    let mut evaluated: Vec<EvaluatedCluster> = sorted
        .into_iter()
        .map(|candidate| evaluate_one(effective, request, candidate, current, changed))
        .collect();
    score::assign(&mut evaluated);
    weigh(&effective.spec, request, &mut evaluated);
    evaluated
}

fn evaluate_one<'a>(
    effective: &EffectivePlacement,
    request: &PlacementRequest,
    candidate: &'a Candidate,
    current: &CurrentPlacement,
    placement_changed: bool,
) -> EvaluatedCluster<'a> {
    let spec = &effective.spec;
    let value = as_value(spec, candidate.cluster);
    let (tier, unselected) = tier_of(spec, candidate.cluster, &value);
    let bounds =
        share_bounds(spec, |selector| select::cluster(selector, candidate.cluster, &value) == Selected::Yes);
    let share = current.share(candidate.name());
    let leaves = must_leave(spec, candidate);
    // A weight of 0 excludes a cluster.
    let weightless = request.extent != Extent::Copied
        && spec.weights == Weights::Static
        && bounds.weight.unwrap_or_default() == 0;
    let current_share =
        share.filter(|_| leaves.is_none() && !weightless && (tier.is_some() || !placement_changed));
    let headroom = Headroom::of(request, candidate, share);
    let rejection = leaves
        .or(unselected)
        .or_else(|| closed(spec, request, candidate, weightless))
        .or_else(|| headroom.tightest.clone());
    // Free capacity counts if there is a fallback, or shares follow capacity. Otherwise a cluster may add nodes for
    // unschedulable pods, and only bounds, quotas and estimates limit it.
    let free_counts = spec.weights == Weights::Capacity || !spec.fallback_groups.is_empty();
    let ceilings = [
        (ShareLimit::Maximum, bounds.max),
        (ShareLimit::Bound, headroom.bounded),
        (ShareLimit::Quota, headroom.quota),
        (ShareLimit::Estimate, candidate.estimate),
        (ShareLimit::FreeCapacity, headroom.fits.filter(|_| free_counts)),
    ];
    let known = ceilings.into_iter().filter_map(|(ceiling, most)| Some((most?, ceiling)));
    let capacity = ceilings[1..].iter().filter_map(|(_, most)| *most).min();
    let avoided = untolerated(spec, candidate.cluster, Effect::PreferNoSchedule).is_some();
    EvaluatedCluster {
        tie: api::meta::hash::hash(&[request.key, candidate.name()]),
        capacity,
        limit: known.min_by_key(|(most, _)| *most).map(|(_, ceiling)| ceiling),
        free: headroom.free,
        fits: headroom.fits,
        score: None,
        weight: 1,
        candidate,
        tier,
        rejection,
        current_share,
        beside: request.beside == Some(candidate.name()),
        avoided,
        bounds,
    }
}

/// Only expressions read it.
fn as_value(spec: &PlacementSpec, cluster: &PhysicalCluster) -> Value {
    let groups = spec.fallback_groups.iter().map(|group| &group.cluster_selector);
    let rules = spec.shares.iter().map(|rule| &rule.cluster_selector);
    let reads_value =
        groups.chain(rules).chain([&spec.cluster_selector]).any(|selector| !selector.expressions.is_empty());
    if reads_value { serde_json::to_value(cluster).unwrap_or_default() } else { Value::Null }
}

fn tier_of(
    spec: &PlacementSpec,
    cluster: &PhysicalCluster,
    value: &Value,
) -> (Option<usize>, Option<Rejection>) {
    let first = select::cluster(&spec.cluster_selector, cluster, value);
    if first == Selected::Yes {
        return (Some(0), None);
    }
    let selects = |selector: &ClusterSelector| select::cluster(selector, cluster, value) == Selected::Yes;
    match spec.fallback_groups.iter().position(|group| selects(&group.cluster_selector)) {
        Some(group) => (Some(group + 1), None),
        None => (None, Some(Rejection::NotSelected(first))),
    }
}

/// Why a workload has to leave a cluster.
fn must_leave(spec: &PlacementSpec, candidate: &Candidate) -> Option<Rejection> {
    if candidate.cluster.metadata.is_being_deleted() {
        return Some(Rejection::Leaving);
    }
    if candidate.cluster.spec.drain {
        return Some(Rejection::Drained);
    }
    if let Some(why) = &candidate.failed {
        return Some(Rejection::Failed { why: why.clone() });
    }
    untolerated(spec, candidate.cluster, Effect::NoExecute).map(|taint| Rejection::Tainted(taint.clone()))
}

/// Why a cluster takes no new workloads of any size.
fn closed(
    spec: &PlacementSpec,
    request: &PlacementRequest,
    candidate: &Candidate,
    weightless: bool,
) -> Option<Rejection> {
    let cluster = candidate.cluster;
    if !candidate.usable {
        return Some(Rejection::NotGranted);
    }
    if let Some(path) = cluster.spec.dedicated_to.as_deref().filter(|path| *path != request.logical_cluster) {
        return Some(Rejection::Dedicated { to: path.to_owned() });
    }
    if let Some(path) = &candidate.circular {
        return Some(Rejection::Circular { is: Some(path.clone()) });
    }
    if !cluster.spec.schedulable {
        return Some(Rejection::Cordoned);
    }
    if let Some(taint) = untolerated(spec, cluster, Effect::NoSchedule) {
        return Some(Rejection::Tainted(taint.clone()));
    }
    if let Some(rejection) = unready(cluster) {
        return Some(rejection);
    }
    if let Some(kind) = request.kinds.iter().find(|kind| lacks_kind(cluster, kind)) {
        return Some(Rejection::KindNotServed(kind.clone()));
    }
    if pod_security::level(&cluster.spec) == PodSecurity::Baseline && !request.violations.is_empty() {
        return Some(Rejection::PodSecurity(request.violations.to_vec()));
    }
    if let Some(claim) = &candidate.claim_elsewhere {
        return Some(Rejection::DataElsewhere(claim.clone()));
    }
    weightless.then_some(Rejection::NoWeight)
}

/// Whether a cluster is known not to serve a kind. One that has not reported its kinds is not known to lack any.
pub fn lacks_kind(cluster: &PhysicalCluster, kind: &GroupKind) -> bool {
    let kinds = cluster.status.as_ref().map(|status| status.kinds.as_slice()).unwrap_or_default();
    let is_it = |served: &ServedKind| served.group == kind.group && served.kind == kind.kind;
    !kinds.is_empty() && !kinds.iter().any(is_it)
}

fn unready(cluster: &PhysicalCluster) -> Option<Rejection> {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.r#type == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => {
            Some(Rejection::NotReady { status: ready.status.clone(), message: ready.message.clone() })
        }
        None => Some(Rejection::NeverReported),
    }
}

fn untolerated<'a>(spec: &PlacementSpec, cluster: &'a PhysicalCluster, effect: Effect) -> Option<&'a Taint> {
    let mut taints = cluster.spec.taints.iter().filter(|taint| taint.effect == effect);
    taints.find(|taint| !spec.tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_none_or(|effect| effect == taint.effect);
    let key =
        toleration.key.is_empty() && toleration.operator == Operator::Exists || toleration.key == taint.key;
    effect && key && (toleration.operator == Operator::Exists || toleration.value == taint.value)
}

/// How many replicas fit. None: unknown.
struct Headroom {
    free: Option<Amounts>,
    fits: Option<u32>,
    bounded: Option<u32>,
    quota: Option<u32>,
    /// The bound or quota that leaves too little, if one does.
    tightest: Option<Rejection>,
}

impl Headroom {
    /// The requests that a cluster reports include those of this workload, so its share fits on top of the free
    /// capacity, without its unschedulable pods, which have no requests there yet. A bound is counted without the share;
    /// a lowered bound lets nothing grow, and moves nothing.
    fn of(request: &PlacementRequest, candidate: &Candidate, share: Option<u32>) -> Headroom {
        let here = share.unwrap_or_default();
        let more =
            |left: &Amounts, here: u32| fits(left, &request.each).map(|more| more.saturating_add(here));
        let status = candidate.cluster.status.as_ref();
        let free = status.filter(|status| !status.allocatable.is_empty()).map(|status| {
            minus(&quantity::amounts(&status.allocatable), &quantity::amounts(&status.requested))
        });
        let limits = limits(candidate);
        let counted = |limit: &CapacityLimit| if limit.quota.is_some() { here } else { 0 };
        let within = |limit: &CapacityLimit| more(&limit.left(), counted(limit)).map(|fits| fits.max(here));
        let needed = if request.extent == Extent::Divided { 1 } else { request.replicas.max(1) };
        let tightest = limits.iter().find(|limit| within(limit).is_some_and(|fits| fits < needed));
        let of = |quota: bool| {
            limits.iter().filter(|limit| limit.quota.is_some() == quota).filter_map(within).min()
        };
        Headroom {
            fits: free.as_ref().and_then(|free| more(free, here.saturating_sub(candidate.waiting))),
            free,
            bounded: of(false),
            quota: of(true),
            tightest: tightest
                .and_then(|limit| limit.exceeded(&request.each, needed.saturating_sub(counted(limit)))),
        }
    }
}

/// A bound of the cluster, or a quota of the namespace there.
struct CapacityLimit {
    /// The name of the quota; none for a bound.
    quota: Option<String>,
    most: Amounts,
    used: Amounts,
}

impl CapacityLimit {
    fn left(&self) -> Amounts {
        minus(&self.most, &self.used)
    }

    fn exceeded(&self, each: &Amounts, needed: u32) -> Option<Rejection> {
        let left = self.left();
        let requested = |amount: &i128| amount * i128::from(needed.max(1));
        let (resource, amount) = each
            .iter()
            .find(|(name, amount)| left.get(*name).is_some_and(|left| *left < requested(amount)))?;
        let (most, used) = (self.most.get(resource)?, self.used.get(resource).unwrap_or(&0));
        let (resource, requested) = (resource.clone(), requested(amount));
        Some(Rejection::Exceeded { quota: self.quota.clone(), resource, most: *most, used: *used, requested })
    }
}

fn limits(candidate: &Candidate) -> Vec<CapacityLimit> {
    let bounds = quantity::amounts(&candidate.cluster.spec.bounds);
    let used = candidate.taken.clone();
    let mut limits = vec![CapacityLimit { quota: None, most: bounds, used }];
    let status = candidate.cluster.status.as_ref();
    let quotas = status.map(|status| status.quotas.as_slice()).unwrap_or_default();
    let here = quotas.iter().filter(|quota| quota.namespace == candidate.namespace);
    limits.extend(here.map(|quota| CapacityLimit {
        quota: Some(format!("{}/{}", quota.namespace, quota.name)),
        most: requests(quantity::amounts(&quota.hard)),
        used: requests(quantity::amounts(&quota.used)),
    }));
    limits
}

/// A quota names `requests.cpu`, or `cpu` for short, what a pod names `cpu`.
fn requests(amounts: Amounts) -> Amounts {
    let named = |(name, amount): (String, i128)| match name.strip_prefix("requests.") {
        Some(resource) => (resource.to_owned(), amount),
        None => (name, amount),
    };
    amounts.into_iter().filter(|(name, _)| !name.starts_with("limits.")).map(named).collect()
}

/// Sets the weights of the shares. Unknown capacity counts as average.
fn weigh(spec: &PlacementSpec, request: &PlacementRequest, evaluated: &mut [EvaluatedCluster]) {
    let known: BTreeMap<usize, u64> = evaluated
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_open())
        .filter_map(|(at, one)| Some((at, u64::from(one.fits?))))
        .collect();
    let average = known.values().sum::<u64>().checked_div(known.len() as u64).unwrap_or(1).max(1);
    for (at, one) in evaluated.iter_mut().enumerate() {
        one.weight = match spec.weights {
            Weights::Equal => 1,
            Weights::Static if request.extent != Extent::Copied => one.bounds.weight.unwrap_or_default(),
            Weights::Static => 1,
            Weights::Capacity => known.get(&at).copied().unwrap_or(average),
        };
    }
}
