//! Estimates how many replicas of a workload fit on a cluster, from its unschedulable pods.
//!
//! A cluster may have enough free capacity in total and not enough on any node, or none of the kind a workload needs;
//! that is only known once it is tried. If pods are unschedulable for a minute, the scheduled ones are the estimate,
//! and the rest is placed elsewhere.
//!
//! ```text
//!   a: 5 requested, 2 unschedulable for a minute ──► a fits 3 ──► shares: a 3, b 7 ──► the estimate still holds
//! ```
//!
//! Estimates are stored in the record. The unschedulable pods are gone as soon as the share shrinks, and without a note
//! the same share would be requested again. After a while the estimate expires and is tried again: clusters grow.

use std::collections::BTreeMap;
use std::time::Duration;

use api::meta::is_being_deleted;
use api::names::ESTIMATES;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::division::DivisionRule;
use crate::placement::context::PlacementContext;
use crate::snapshot::Caches;
use crate::snapshot::mailbox_objects::{self, MailboxObject};

/// How long a pod is unschedulable before the cluster counts as full. The scheduler retries several times meanwhile.
pub(crate) const UNSCHEDULABLE_AFTER: Duration = Duration::from_secs(60);
/// How long an estimate is valid. Adding a node takes minutes.
const ESTIMATE_TTL: Duration = Duration::from_secs(600);

/// How many replicas fit, and when that was observed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CapacityEstimate {
    pub(crate) fits: u32,
    at: Timestamp,
}

/// The estimates for a workload, by cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CapacityEstimates {
    by_cluster: BTreeMap<String, CapacityEstimate>,
    /// The pods that are unschedulable at the moment.
    waiting: BTreeMap<String, u32>,
    /// When to reconcile again without an event.
    pub(crate) requeue_after: Option<Duration>,
}

impl CapacityEstimates {
    /// The recorded estimates, updated with the present pods.
    pub(crate) fn of(caches: &Caches, context: &PlacementContext) -> CapacityEstimates {
        let text = context.record.as_ref().and_then(|record| record.metadata.annotations.get(ESTIMATES));
        let by_cluster = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let mut estimates = CapacityEstimates { by_cluster, ..CapacityEstimates::default() };
        let now = context.now;
        estimates.expire(now);
        if context.rule() == DivisionRule::Replicas {
            let at = context.replicas_at();
            let short = mailbox_objects::at_targets(&context.mailbox_objects, context.recorded())
                .into_iter()
                .filter_map(|(_, mailbox_object)| Some((mailbox_object, mailbox_object.number(at)?)))
                .filter(|(mailbox_object, requested)| {
                    mailbox_object.reported("availableReplicas").unwrap_or_default() < *requested
                });
            short.for_each(|(mailbox_object, _)| {
                estimates.observe(mailbox_object.name(), &pods(caches, mailbox_object), now)
            });
        }
        estimates
    }

    fn expire(&mut self, now: Timestamp) {
        self.by_cluster.retain(|_, estimate| since(estimate.at, now) < ESTIMATE_TTL);
        let last = self.by_cluster.values().map(|estimate| ESTIMATE_TTL - since(estimate.at, now)).min();
        self.requeue_after = last;
    }

    /// Updates an estimate from the pods, each with the time since which it is unschedulable. The requested replicas are
    /// not considered: they shrink as soon as there is an estimate, and the pods are still the same.
    fn observe(&mut self, cluster: &str, pods: &[Option<Timestamp>], now: Timestamp) {
        let waiting = || pods.iter().flatten();
        if let Ok(count @ 1..) = u32::try_from(waiting().count()) {
            self.waiting.insert(cluster.to_owned(), count);
        }
        let long = waiting().filter(|begun| since(**begun, now) >= UNSCHEDULABLE_AFTER).count();
        let left = waiting().map(|begun| UNSCHEDULABLE_AFTER.saturating_sub(since(*begun, now)));
        let next = left.filter(|left| !left.is_zero()).min();
        self.requeue_after = self.requeue_after.into_iter().chain(next).min();
        let fits = u32::try_from(pods.len() - long).unwrap_or(u32::MAX);
        // An unchanged estimate is not written again.
        if long > 0 && self.fits(cluster) != Some(fits) {
            self.by_cluster.insert(cluster.to_owned(), CapacityEstimate { fits, at: now });
        }
    }

    /// How many replicas fit on a cluster, if there is an estimate.
    pub(crate) fn fits(&self, cluster: &str) -> Option<u32> {
        self.by_cluster.get(cluster).map(|estimate| estimate.fits)
    }

    /// The unschedulable pods on a cluster. The cluster does not report those as requested.
    pub(crate) fn waiting(&self, cluster: &str) -> u32 {
        self.waiting.get(cluster).copied().unwrap_or_default()
    }

    /// The same with the pending replicas added to the first cluster: they wait there as unschedulable pods, which a
    /// cluster autoscaler can see.
    pub(crate) fn with_pending(&self, pending: u32) -> Option<CapacityEstimates> {
        let mut estimates = self.clone();
        estimates.by_cluster.values_mut().next()?.fits += pending;
        Some(estimates)
    }

    /// The value of the annotation.
    pub(crate) fn text(&self) -> Option<String> {
        let text = serde_json::to_string(&self.by_cluster).ok();
        text.filter(|_| !self.by_cluster.is_empty())
    }
}

pub(crate) fn since(begun: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(begun)).unwrap_or_default()
}

/// The pods of a mailbox object that are not being deleted, with the time since which they are unschedulable.
fn pods(caches: &Caches, mailbox_object: &MailboxObject) -> Vec<Option<Timestamp>> {
    let pods = mailbox_objects::pods_of(caches, mailbox_object);
    let staying = pods.iter().filter(|pod| !is_being_deleted(pod));
    staying.map(unschedulable).collect()
}

pub(crate) fn unschedulable(pod: &Value) -> Option<Timestamp> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| {
        condition["type"] == "PodScheduled"
            && condition["status"] == "False"
            && condition["reason"] == "Unschedulable"
    })?;
    condition["lastTransitionTime"].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn estimates_are_recorded_until_they_expire() {
        let now = Timestamp::now();
        let mut estimates = CapacityEstimates::default();
        let estimate =
            |fits: u32, seconds: u64| CapacityEstimate { fits, at: now - Duration::from_secs(seconds) };
        estimates.by_cluster.insert("a".to_owned(), estimate(3, 599));
        estimates.by_cluster.insert("b".to_owned(), estimate(1, 600));
        estimates.expire(now);
        assert_eq!((estimates.fits("a"), estimates.fits("b")), (Some(3), None));
        assert_eq!(estimates.requeue_after, Some(Duration::from_secs(1)));
        let read: BTreeMap<String, CapacityEstimate> =
            serde_json::from_str(&estimates.text().unwrap()).unwrap();
        assert_eq!(read, estimates.by_cluster);
        // Two replicas fit on no other cluster.
        assert_eq!(estimates.with_pending(2).unwrap().fits("a"), Some(5));
        assert_eq!(CapacityEstimates::default().text(), None);
    }

    /// Two of five pods were unschedulable, so three fit and fewer were requested. Until the two were deleted they were
    /// subtracted again from the smaller number, and in the end none seemed to fit.
    #[test]
    fn unschedulable_pods_lower_an_estimate_only_once() {
        let now = Timestamp::now();
        let long = Some(now - Duration::from_secs(3600));
        let mut estimates = CapacityEstimates::default();
        let mut check = |pods: &[Option<Timestamp>], expected: Option<u32>| {
            estimates.observe("a", pods, now);
            assert_eq!(estimates.fits("a"), expected, "{pods:?}");
        };
        check(&[None, None, None, None, Some(now)], None);
        check(&[None, None, None, long, long], Some(3));
        check(&[None, None, None, long, long], Some(3));
        check(&[None, None, None, long], Some(3));
        check(&[None, None, None], Some(3));
    }

    #[test]
    fn only_unschedulable_pods_count_as_waiting_for_capacity() {
        let pod = |reason: &str| {
            let condition = json!({ "type": "PodScheduled", "status": "False", "reason": reason,
                "lastTransitionTime": "2026-01-01T00:00:00Z" });
            json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }, condition] } })
        };
        assert!(unschedulable(&pod("Unschedulable")).is_some());
        assert!(unschedulable(&pod("SchedulingGated")).is_none());
        assert!(unschedulable(&json!({ "status": {} })).is_none());
    }
}
