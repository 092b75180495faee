//! Divides limits in proportion to the objects they limit: a PodDisruptionBudget by its pods, a HorizontalPodAutoscaler
//! by its targets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rollout::{Round, resolved};
use super::{Dividend, DivisionPlan, TargetPatch, number};
use crate::division::pick::Pick;
use crate::division::shares::{WeightedCluster, divide};

const MIN: &str = "/spec/minReplicas";
const MAX: &str = "/spec/maxReplicas";

/// Divides a budget by the pods it selects. Percentages are resolved over all pods first and then divided: resolved per
/// target, each would round in its own favour.
pub fn budget(object: &Value, key: &str, pods: &BTreeMap<String, u32>) -> DivisionPlan {
    let total: u32 = pods.values().fold(0, |sum, pods| sum.saturating_add(*pods));
    let apportioned = |pointer: &str, most: fn(u32) -> Option<u32>| {
        let bound = resolved(object.pointer(pointer)?, total, Round::Up)?;
        let members: Vec<WeightedCluster> = pods
            .iter()
            .map(|(cluster, pods)| WeightedCluster {
                max: most(*pods),
                ..WeightedCluster::new(cluster).weighing(u64::from(*pods))
            })
            .collect();
        Some(divide(bound, key, &members).of)
    };
    // No target can have more available pods than it has.
    let minimum = apportioned("/spec/minAvailable", Some).map(|of| ("/spec/minAvailable", of));
    let maximum = apportioned("/spec/maxUnavailable", |_| None).map(|of| ("/spec/maxUnavailable", of));
    let Some((pointer, of)) = minimum.or(maximum) else { return DivisionPlan::default() };
    let patch =
        |(cluster, bound): (&String, u32)| (cluster.clone(), TargetPatch::default().set(pointer, bound));
    DivisionPlan { patches: pods.keys().zip(of).map(patch).collect(), ..DivisionPlan::default() }
}

/// During a migration no target gets smaller limits than it has: an autoscaler scales down to its maximum at once,
/// before the new target has taken over. A leaving target keeps its limits.
pub fn keep_limits(mut plan: DivisionPlan, present: &[(&str, &Value)]) -> DivisionPlan {
    for (cluster, object) in present {
        let at = plan.patches.iter().position(|(name, _)| name == cluster);
        let at = at.unwrap_or_else(|| {
            plan.patches.push(((*cluster).to_owned(), TargetPatch::default().set(MIN, 0).set(MAX, 0)));
            plan.patches.len() - 1
        });
        for (pointer, bound) in &mut plan.patches[at].1.0 {
            let now = number(object, pointer, 1);
            *bound =
                bound.as_u64().map_or(now, |bound| now.max(u32::try_from(bound).unwrap_or(u32::MAX))).into();
        }
    }
    plan
}

/// Divides an autoscaler: together within maximum and minimum, none below 1, the least that Kubernetes scales to. With a
/// maximum below the number of targets, some get none.
pub(super) fn autoscaler(dividend: &Dividend, picks: &[Pick]) -> DivisionPlan {
    let object = dividend.object;
    let (min, max) = (number(object, MIN, 1), number(object, MAX, 1));
    let one_each: Vec<WeightedCluster> =
        picks.iter().map(|pick| WeightedCluster { min: 1, ..pick.member() }).collect();
    let most = divide(max, dividend.key, &one_each).of;
    let bounded: Vec<WeightedCluster> = one_each
        .iter()
        .zip(&most)
        .map(|(member, most)| WeightedCluster { max: Some(*most), ..member.clone() })
        .collect();
    let least = divide(min, dividend.key, &bounded).of;
    let shares: BTreeMap<String, u32> =
        picks.iter().map(|pick| pick.cluster.clone()).zip(most.clone()).collect();
    let rows = picks.iter().zip(least.into_iter().zip(most)).filter(|(_, (_, most))| *most > 0);
    let patch = |least: u32, most: u32| TargetPatch::default().set(MIN, least.max(1)).set(MAX, most);
    let patches = rows.map(|(pick, (least, most))| (pick.cluster.clone(), patch(least, most))).collect();
    let pending = max - shares.values().sum::<u32>();
    DivisionPlan { patches, total: Some(max), shares, pending }
}
