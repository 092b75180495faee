//! The replicas of an autoscaled object, which every target scales by itself.
//!
//! ```text
//!   user's object: 1      east: 1, then 10 by the autoscaler there      moved to west: 10 there, then east is scaled down
//! ```
//!
//! The autoscaler of a target sets its replicas once it has at least one: Kubernetes does not scale from zero, so every
//! target starts with one or more. Only during a migration more replicas are requested of a target than it has: the new
//! targets get as many replicas as before the migration, before an old target is removed or, for exclusive workloads,
//! after that.
//!
//! The sum of the replicas is written back to the user's object, as an autoscaler in the logical cluster would.
//!
//! Two autoscalers would give the same ordinal to two pods, so an autoscaled StatefulSet is on one target.

use api::fleet::{Role, Target};

use serde_json::Value;

use crate::division;
use crate::division::pick::Pick;
use crate::placement::context::PlacementContext;
use crate::snapshot::mailbox_objects::{self, MailboxObject};

pub(crate) fn is_moving(targets: &[Target]) -> bool {
    targets.iter().any(|target| target.role != Role::Steady)
}

/// The total that is divided instead of the user's replicas. None without an autoscaler, or if the user scaled to zero,
/// which disables autoscaling.
pub(crate) fn total(context: &PlacementContext, picks: &[Pick]) -> Option<u32> {
    let most = context.scaled_to.filter(|_| context.rule().has_replicas())?;
    let specified = division::number(context.object, context.replicas_at(), 1);
    let each = u32::try_from(picks.len()).ok().filter(|each| *each <= most).unwrap_or_default();
    // Surplus pods of a rolling update do not count: they exceed the maximum of the autoscaler.
    (specified > 0).then(|| moving_total(context, picks).map_or(specified, |total| total.min(most)).max(each))
}

/// The replicas at the start of a migration, or those of the leaving targets by now. Those of the arriving targets are
/// not added.
fn moving_total(context: &PlacementContext, picks: &[Pick]) -> Option<u32> {
    let recorded = context.recorded();
    let sum = |counts: fn(Role) -> bool| -> u32 {
        let counted = mailbox_objects::at_targets(&context.mailbox_objects, recorded)
            .into_iter()
            .filter(|(target, _)| counts(target.role));
        counted
            .filter_map(|(_, mailbox_object)| mailbox_object.current_replicas(context.replicas_at()))
            .fold(0, u32::saturating_add)
    };
    if is_moving(recorded) {
        let started_with = context.record.as_ref().and_then(|record| u32::try_from(record.spec.total?).ok());
        return Some(sum(|role| role == Role::Leaving).max(started_with.unwrap_or_default()));
    }
    let is_picked = |target: &Target| picks.iter().any(|pick| pick.cluster == target.cluster);
    let is_same = recorded.len() == picks.len() && recorded.iter().all(is_picked);
    (!is_same && !recorded.is_empty()).then(|| sum(|_| true))
}

/// The replicas of a mailbox object, requested and reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedReplicas {
    requested: u32,
    reported: u32,
    /// Whether it has replicas and all are available.
    settled: bool,
    /// Whether its autoscaler sets its replicas.
    by_autoscaler: bool,
}

impl ObservedReplicas {
    pub(crate) fn of(mailbox_object: &MailboxObject, replicas_at: &str) -> Option<ObservedReplicas> {
        let reported = mailbox_object.reported("replicas").unwrap_or_default();
        let settled = reported > 0 && mailbox_object.has_observed() && mailbox_object.available() >= reported;
        Some(ObservedReplicas {
            requested: mailbox_object.number(replicas_at)?,
            reported,
            settled,
            by_autoscaler: mailbox_object.is_scaled_downstream(),
        })
    }
}

/// The replicas to request in a mailbox object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReplicaRequest {
    pub(crate) number: u32,
    /// Whether its autoscaler sets them from now on.
    pub(crate) by_autoscaler: bool,
}

/// The replicas to request next, by share. A new mailbox object gets its share; one with enough replicas is left to its
/// autoscaler.
pub(crate) fn next(observed: Option<ObservedReplicas>, share: u32, is_moving: bool) -> ReplicaRequest {
    let Some(observed) = observed else { return ReplicaRequest { number: share, by_autoscaler: share > 0 } };
    let needed = if is_moving { share } else { share.min(1) };
    let is_too_few = observed.requested.max(observed.reported) < needed
        || (observed.settled && observed.reported < needed);
    match is_too_few {
        // The syncer applies this number before the autoscaler takes over again.
        true => ReplicaRequest { number: share, by_autoscaler: false },
        false => ReplicaRequest {
            number: observed.requested,
            by_autoscaler: observed.by_autoscaler || observed.reported >= needed,
        },
    }
}

/// The sum of the replicas that the autoscalers have set, if it differs from the user's object. None during a migration
/// or rolling update, when surplus pods exist, and if the user scaled to zero.
pub(crate) fn downstream_total(
    context: &PlacementContext,
    targets: &[(&Target, &MailboxObject)],
) -> Option<u32> {
    let recorded = context.recorded();
    let most = context.scaled_to.filter(|_| context.rule().has_replicas() && !is_moving(recorded))?;
    let at = context.replicas_at();
    let settled_replicas = |mailbox_object: &MailboxObject| {
        let observed = ObservedReplicas::of(mailbox_object, at).filter(|observed| observed.settled)?;
        let updated =
            mailbox_object.object.as_ref()?.pointer("/status/updatedReplicas").and_then(Value::as_u64);
        updated.is_none_or(|updated| updated == u64::from(observed.reported)).then_some(observed.reported)
    };
    let all: Option<Vec<u32>> =
        targets.iter().map(|(_, mailbox_object)| settled_replicas(mailbox_object)).collect();
    let total: u32 = all.filter(|all| !all.is_empty() && all.len() == recorded.len())?.into_iter().sum();
    // No autoscaler sets more.
    let total = total.min(most);
    let specified = division::number(context.object, at, 1);
    (specified > 0 && specified != total).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaled_target_is_left_to_its_autoscaler_once_it_has_its_share() {
        let check = |observed: (u32, u32, bool, bool), share: u32, is_moving: bool, expected: (u32, bool)| {
            let (requested, reported, settled, by_autoscaler) = observed;
            let request = next(
                Some(ObservedReplicas { requested, reported, settled, by_autoscaler }),
                share,
                is_moving,
            );
            assert_eq!(
                (request.number, request.by_autoscaler),
                expected,
                "{observed:?} of {share}, moving: {is_moving}"
            );
        };
        let (steady, moving) = (false, true);
        // The autoscaler has set the replicas, more or less than the share.
        check((1, 10, true, true), 1, steady, (1, true));
        check((5, 2, true, true), 5, steady, (5, true));
        // No autoscaler scales from zero: the target gets its share, and the autoscaler takes over when it has replicas.
        check((0, 0, false, true), 2, steady, (2, false));
        check((2, 0, false, false), 2, steady, (2, false));
        check((2, 1, false, false), 2, steady, (2, true));
        // A target that takes over is ready at its share or above.
        check((1, 4, true, true), 9, moving, (9, false));
        check((9, 4, false, false), 9, moving, (9, false));
        check((9, 9, true, false), 9, moving, (9, true));
        check((1, 12, true, true), 9, moving, (1, true));
        // Scaled down again before the source was removed.
        check((9, 2, true, true), 9, moving, (9, false));
        // Not all of them exist yet.
        check((9, 2, false, true), 9, moving, (9, true));
        assert_eq!(next(None, 3, moving), ReplicaRequest { number: 3, by_autoscaler: true });
        assert_eq!(next(None, 0, steady), ReplicaRequest { number: 0, by_autoscaler: false });
    }
}
