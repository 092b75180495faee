//! Bounds that follow what they bound: a PodDisruptionBudget its pods, a HorizontalPodAutoscaler its targets.

use std::collections::BTreeMap;

use serde_json::Value;

use super::rollout::{Round, resolved};
use super::{Dividend, Part, Plan, number};
use crate::placement::shares::{WeightedCluster, divide};
use crate::placement::targets::Pick;

const MIN: &str = "/spec/minReplicas";
const MAX: &str = "/spec/maxReplicas";

/// A budget over the pods it is about, by cluster. Percentages are taken of all pods together and then apportioned, so that
/// the targets together keep to what was said; each on its own would round in its own favour.
pub fn budget(object: &Value, key: &str, pods: &BTreeMap<String, u32>) -> Plan {
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
    // No target can have more available than it has; if all must be, then all there.
    let minimum = apportioned("/spec/minAvailable", Some).map(|of| ("/spec/minAvailable", of));
    let maximum = apportioned("/spec/maxUnavailable", |_| None).map(|of| ("/spec/maxUnavailable", of));
    let Some((pointer, of)) = minimum.or(maximum) else { return Plan::default() };
    let part = |(cluster, bound): (&String, u32)| (cluster.clone(), Part::default().set(pointer, bound));
    Plan { parts: pods.keys().zip(of).map(part).collect(), ..Plan::default() }
}

/// While something comes or goes nobody is given less than there is: an autoscaler takes away at once what is above its
/// maximum, and what is to be elsewhere instead is not there yet. What leaves keeps what it has.
pub fn kept(mut plan: Plan, present: &[(&str, &Value)]) -> Plan {
    for (cluster, copy) in present {
        let at = plan.parts.iter().position(|(name, _)| name == cluster);
        let at = at.unwrap_or_else(|| {
            plan.parts.push(((*cluster).to_owned(), Part::default().set(MIN, 0).set(MAX, 0)));
            plan.parts.len() - 1
        });
        for (pointer, bound) in &mut plan.parts[at].1.0 {
            let now = number(copy, pointer, 1);
            *bound =
                bound.as_u64().map_or(now, |bound| now.max(u32::try_from(bound).unwrap_or(u32::MAX))).into();
        }
    }
    plan
}

/// An autoscaler on each target: together not above the maximum, not below the minimum, and none below 1, which is the
/// least Kubernetes scales to. With a maximum below the number of targets some have none.
pub(super) fn autoscaler(dividend: &Dividend, picks: &[Pick]) -> Plan {
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
    let part = |least: u32, most: u32| Part::default().set(MIN, least.max(1)).set(MAX, most);
    let parts = rows.map(|(pick, (least, most))| (pick.cluster.clone(), part(least, most))).collect();
    let pending = max - shares.values().sum::<u32>();
    Plan { parts, total: Some(max), shares, pending }
}
