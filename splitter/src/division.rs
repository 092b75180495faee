//! Divides an object over its targets.
//!
//! Kinds differ in what is divided: replicas of a Deployment, ordinals of a StatefulSet, completions of a Job; a ConfigMap
//! is copied to every target, a CronJob runs on one. A table has the rule of each kind; other kinds are copied. The result
//! is a [`TargetPatch`] for each target: fields to set in its mailbox object.
//!
//! ```text
//!   Deployment web: 10  ──►  east: replicas 6, maxUnavailable 1      west: replicas 4, maxUnavailable 1
//!   StatefulSet db: 5   ──►  east: ordinals 0..3                     west: ordinals 3..5
//! ```

pub mod job;
pub mod limits;
pub mod ordinals;
pub mod pick;
pub mod rollout;
pub mod scaling_order;
pub mod shares;
pub mod waves;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use api::fleet::{Division, Role, Target};
use api::meta::hash::hash;
use serde_json::Value;

pub(crate) use crate::transform::target_patch::{TargetPatch, number};
use pick::{Pick, shares};

/// How a kind is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DivisionRule {
    /// `spec.replicas`; for a Deployment also the bounds of its rolling update.
    Replicas,
    /// Replicas with ordinals.
    Ordinals,
    /// Of a Job.
    Completions,
    /// See [`limits::autoscaler`].
    Autoscaler,
    /// See [`limits::budget`].
    Budget,
    /// The same on every target.
    Copy,
    /// On exactly one target.
    One,
    /// On one target, and suspended while another mailbox has the object: a schedule fires once.
    Schedule,
}

impl DivisionRule {
    /// Whether it has replicas that an autoscaler may change.
    pub fn has_replicas(self) -> bool {
        matches!(self, DivisionRule::Replicas | DivisionRule::Ordinals)
    }
}

/// Kinds that are not copied to every target.
const KINDS: &[(&str, &str, DivisionRule)] = &[
    ("apps", "Deployment", DivisionRule::Replicas),
    ("apps", "ReplicaSet", DivisionRule::Replicas),
    ("", "ReplicationController", DivisionRule::Replicas),
    ("apps", "StatefulSet", DivisionRule::Ordinals),
    ("batch", "Job", DivisionRule::Completions),
    ("batch", "CronJob", DivisionRule::Schedule),
    ("", "Pod", DivisionRule::One),
    ("", "PersistentVolumeClaim", DivisionRule::One),
    ("autoscaling", "HorizontalPodAutoscaler", DivisionRule::Autoscaler),
    ("policy", "PodDisruptionBudget", DivisionRule::Budget),
];

/// How a kind is divided. `scaled`: a custom kind with a scale subresource whose user requested division.
pub fn rule(group: &str, kind: &str, scaled: bool) -> DivisionRule {
    let row = KINDS.iter().find(|(of, name, _)| *of == group && *name == kind);
    row.map_or(if scaled { DivisionRule::Replicas } else { DivisionRule::Copy }, |(_, _, rule)| *rule)
}

/// The patches of all targets. A target without a patch gets no mailbox object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DivisionPlan {
    /// In the order of the targets, which is that of the ordinals.
    pub patches: Vec<(String, TargetPatch)>,
    /// The number that is divided and each target's share of it; none if nothing is divided.
    pub total: Option<u32>,
    pub shares: BTreeMap<String, u32>,
    pub pending: u32,
}

impl DivisionPlan {
    pub fn patch(&self, cluster: &str) -> Option<&TargetPatch> {
        self.patches.iter().find(|(name, _)| name == cluster).map(|(_, patch)| patch)
    }

    fn undivided(picks: &[Pick]) -> DivisionPlan {
        let patches = picks.iter().map(|pick| (pick.cluster.clone(), TargetPatch::default())).collect();
        DivisionPlan { patches, ..DivisionPlan::default() }
    }
}

/// The object to divide, and how.
#[derive(Clone, Copy, Debug)]
pub struct Dividend<'a> {
    pub object: &'a Value,
    pub rule: DivisionRule,
    /// The pointer to the replicas of a custom kind.
    pub replicas_at: &'a str,
    pub division: Division,
    /// `namespace/name`.
    pub key: &'a str,
    /// Divided instead of the replicas, for an autoscaled object. Every target gets at least one replica if there are
    /// enough, because an autoscaler does not scale from zero.
    pub scaled: Option<u32>,
}

/// The scale path of a custom kind (`.spec.pool.size`) as a JSON pointer. Only paths of fields are supported.
pub fn pointer_of(path: &str) -> Option<String> {
    let fields = path.strip_prefix('.')?.split('.');
    let plain = |field: &&str| !field.is_empty() && !field.contains(['[', ']', '/', '~']);
    let fields: Vec<&str> = fields.map(|field| Some(field).filter(plain)).collect::<Option<_>>()?;
    Some(format!("/{}", fields.join("/")))
}

pub const REPLICAS: &str = "/spec/replicas";

/// Divides an object over the chosen clusters. `recorded` are its present targets, in order; leaving ones do not count.
pub fn plan(dividend: &Dividend, picks: &[Pick], recorded: &[Target]) -> DivisionPlan {
    let staying: Vec<Target> =
        recorded.iter().filter(|target| target.role != Role::Leaving).cloned().collect();
    let recorded = staying.as_slice();
    let divides = dividend.division == Division::Divide;
    match dividend.rule {
        DivisionRule::One | DivisionRule::Schedule => one(dividend.key, picks, recorded),
        DivisionRule::Replicas if divides => replicas(dividend, picks),
        DivisionRule::Ordinals if divides => ordinals::plan(dividend, picks, recorded),
        DivisionRule::Completions if divides => job::plan(dividend, picks, recorded),
        DivisionRule::Autoscaler if divides => limits::autoscaler(dividend, picks),
        // A budget is divided by the pods it selects; without them it is copied.
        _ => DivisionPlan::undivided(picks),
    }
}

fn replicas(dividend: &Dividend, picks: &[Pick]) -> DivisionPlan {
    let total = dividend.scaled.unwrap_or_else(|| number(dividend.object, dividend.replicas_at, 1));
    let (shares, pending) = match dividend.scaled.is_some() && total as usize >= picks.len() {
        true => shares(total, dividend.key, &picks.iter().map(Pick::with_one).collect::<Vec<_>>()),
        false => shares(total, dividend.key, picks),
    };
    let bounds = rollout::bounds(dividend.object, total).filter(|_| picks.len() > 1);
    let steps = bounds.map(|bounds| rollout::apportion(bounds, dividend.key, &shares));
    let patch = |pick: &Pick| {
        let patch = TargetPatch::default().set(dividend.replicas_at, shares[&pick.cluster]);
        match &steps {
            Some(steps) => steps[&pick.cluster].clone().write_into(patch),
            None => patch,
        }
    };
    let patches = picks.iter().map(|pick| (pick.cluster.clone(), patch(pick))).collect();
    DivisionPlan { patches, total: Some(total), shares, pending }
}

/// Keeps the present target if it is still chosen; otherwise takes the heaviest.
fn one(key: &str, picks: &[Pick], recorded: &[Target]) -> DivisionPlan {
    let here = |pick: &&Pick| recorded.iter().any(|target| target.cluster == pick.cluster);
    let first = |pick: &&Pick| (pick.tier, std::cmp::Reverse(pick.weight), hash(&[key, &pick.cluster]));
    let chosen = picks.iter().filter(here).min_by_key(first).or_else(|| picks.iter().min_by_key(first));
    let patches = chosen.map(|pick| (pick.cluster.clone(), TargetPatch::default())).into_iter().collect();
    DivisionPlan { patches, ..DivisionPlan::default() }
}
