//! Divides an object over its targets.
//!
//! Kinds differ in what is divided: replicas of a Deployment, ordinals of a StatefulSet, completions of a Job; a ConfigMap
//! is copied to every target, a CronJob runs on one. A table has the rule of each kind; other kinds are copied. The result
//! is a [`Part`] for each target: fields to set in its copy of the object.
//!
//! ```text
//!   Deployment web: 10  ──►  east: replicas 6, maxUnavailable 1      west: replicas 4, maxUnavailable 1
//!   StatefulSet db: 5   ──►  east: ordinals 0..3                     west: ordinals 3..5
//! ```

pub(crate) mod autoscaled;
pub mod job;
pub mod limits;
pub mod ordinals;
pub mod rollout;
pub mod scaling_order;
pub mod waves;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use api::fleet::{Division, Role, Target};
use api::meta::hash::hash;
use api::meta::pointer;
use serde_json::Value;

use crate::placement::targets::{Pick, shares};

/// How a kind is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
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
    /// On one target, and suspended while another mailbox has a copy: a schedule fires once.
    Schedule,
}

impl Rule {
    /// Whether it has replicas that an autoscaler may change.
    pub fn has_replicas(self) -> bool {
        matches!(self, Rule::Replicas | Rule::Ordinals)
    }
}

/// Kinds that are not copied to every target.
const KINDS: &[(&str, &str, Rule)] = &[
    ("apps", "Deployment", Rule::Replicas),
    ("apps", "ReplicaSet", Rule::Replicas),
    ("", "ReplicationController", Rule::Replicas),
    ("apps", "StatefulSet", Rule::Ordinals),
    ("batch", "Job", Rule::Completions),
    ("batch", "CronJob", Rule::Schedule),
    ("", "Pod", Rule::One),
    ("", "PersistentVolumeClaim", Rule::One),
    ("autoscaling", "HorizontalPodAutoscaler", Rule::Autoscaler),
    ("policy", "PodDisruptionBudget", Rule::Budget),
];

/// How a kind is divided. `scaled`: a custom kind with a scale subresource whose user wants it divided.
pub fn rule(group: &str, kind: &str, scaled: bool) -> Rule {
    let row = KINDS.iter().find(|(of, name, _)| *of == group && *name == kind);
    row.map_or(if scaled { Rule::Replicas } else { Rule::Copy }, |(_, _, rule)| *rule)
}

/// Fields to set in the copy of a target.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Part(pub Vec<(String, Value)>);

impl Part {
    fn set(mut self, pointer: &str, value: impl Into<Value>) -> Part {
        self.0.push((pointer.to_owned(), value.into()));
        self
    }

    /// Sets the fields. A field that cannot be set, because the object does not match its kind, is skipped.
    pub fn apply(&self, object: &mut Value) {
        for (pointer, value) in &self.0 {
            let _ = pointer::set(object, pointer, value.clone());
        }
    }
}

/// The parts of all targets. A target that is not in `parts` gets nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// In the order of the targets, which is that of the ordinals.
    pub parts: Vec<(String, Part)>,
    /// The number that is divided and each target's share of it; none if nothing is divided.
    pub total: Option<u32>,
    pub shares: BTreeMap<String, u32>,
    pub pending: u32,
}

impl Plan {
    pub fn part(&self, cluster: &str) -> Option<&Part> {
        self.parts.iter().find(|(name, _)| name == cluster).map(|(_, part)| part)
    }

    fn copies(picks: &[Pick]) -> Plan {
        let parts = picks.iter().map(|pick| (pick.cluster.clone(), Part::default())).collect();
        Plan { parts, ..Plan::default() }
    }
}

/// The object to divide, and how.
#[derive(Clone, Copy, Debug)]
pub struct Dividend<'a> {
    pub object: &'a Value,
    pub rule: Rule,
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
pub fn plan(dividend: &Dividend, picks: &[Pick], recorded: &[Target]) -> Plan {
    let staying: Vec<Target> =
        recorded.iter().filter(|target| target.role != Role::Leaving).cloned().collect();
    let recorded = staying.as_slice();
    let divides = dividend.division == Division::Divide;
    match dividend.rule {
        Rule::One | Rule::Schedule => one(dividend.key, picks, recorded),
        Rule::Replicas if divides => replicas(dividend, picks),
        Rule::Ordinals if divides => ordinals::plan(dividend, picks, recorded),
        Rule::Completions if divides => job::plan(dividend, picks, recorded),
        Rule::Autoscaler if divides => limits::autoscaler(dividend, picks),
        // A budget is divided by the pods it selects; without them it is copied.
        _ => Plan::copies(picks),
    }
}

/// A number in an object. A missing one has its default; a negative one is invalid and counts as 0.
pub(crate) fn number(object: &Value, pointer: &str, default: u32) -> u32 {
    let found = object.pointer(pointer).and_then(Value::as_i64);
    found.map_or(default, |number| u32::try_from(number.max(0)).unwrap_or(u32::MAX))
}

fn replicas(dividend: &Dividend, picks: &[Pick]) -> Plan {
    let total = dividend.scaled.unwrap_or_else(|| number(dividend.object, dividend.replicas_at, 1));
    let (shares, pending) = match dividend.scaled.is_some() && total as usize >= picks.len() {
        true => shares(total, dividend.key, &picks.iter().map(Pick::with_one).collect::<Vec<_>>()),
        false => shares(total, dividend.key, picks),
    };
    let bounds = rollout::bounds(dividend.object, total).filter(|_| picks.len() > 1);
    let steps = bounds.map(|bounds| rollout::apportion(bounds, dividend.key, &shares));
    let part = |pick: &Pick| {
        let part = Part::default().set(dividend.replicas_at, shares[&pick.cluster]);
        match &steps {
            Some(steps) => steps[&pick.cluster].clone().written(part),
            None => part,
        }
    };
    let parts = picks.iter().map(|pick| (pick.cluster.clone(), part(pick))).collect();
    Plan { parts, total: Some(total), shares, pending }
}

/// Keeps the present target if it is still chosen; otherwise takes the heaviest.
fn one(key: &str, picks: &[Pick], recorded: &[Target]) -> Plan {
    let here = |pick: &&Pick| recorded.iter().any(|target| target.cluster == pick.cluster);
    let first = |pick: &&Pick| (pick.tier, std::cmp::Reverse(pick.weight), hash(&[key, &pick.cluster]));
    let chosen = picks.iter().filter(here).min_by_key(first).or_else(|| picks.iter().min_by_key(first));
    let parts = chosen.map(|pick| (pick.cluster.clone(), Part::default())).into_iter().collect();
    Plan { parts, ..Plan::default() }
}
