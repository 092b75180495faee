//! The replicas of an autoscaled object, which every target scales by itself.
//!
//! ```text
//!   user's object: 1      east: 1, then 10 by the autoscaler there      moved to west: 10 there, then east is scaled down
//! ```
//!
//! The autoscaler of a target sets its replicas once it has at least one: Kubernetes does not scale from zero, so every
//! target starts with one or more. Only during a migration a target is asked for more than it has: the new targets get
//! as many replicas as there were before an old target is left or, for exclusive workloads, after it is left.
//!
//! The sum of the replicas is written back to the user's object, as an autoscaler in the logical cluster would.
//!
//! Two autoscalers would give the same ordinal to two pods, so an autoscaled StatefulSet is on one target.

use api::fleet::{Role, Target};

use serde_json::Value;

use crate::division;
use crate::placement::context::PlacementContext;
use crate::placement::targets::Pick;
use crate::snapshot::mailbox_objects::{self, MailboxObject};

/// The replicas of a copy by its last report; before that, the requested ones.
pub(crate) fn there(copy: &MailboxObject, replicas_at: &str) -> Option<u32> {
    let asked = copy.number(replicas_at)?;
    Some(copy.reported("replicas").filter(|there| *there > 0).unwrap_or(asked))
}

pub(crate) fn is_moving(targets: &[Target]) -> bool {
    targets.iter().any(|target| target.role != Role::Steady)
}

/// The total that is divided instead of the user's replicas. None without an autoscaler, or if the user scaled to zero,
/// which disables autoscaling.
pub(crate) fn total(context: &PlacementContext, picks: &[Pick]) -> Option<u32> {
    let most = context.scaled_to.filter(|_| context.rule().has_replicas())?;
    let said = division::number(context.object, context.replicas_at(), 1);
    let each = u32::try_from(picks.len()).ok().filter(|each| *each <= most).unwrap_or_default();
    // Surplus pods of a rolling update do not count: they exceed the maximum of the autoscaler.
    (said > 0).then(|| moving_total(context, picks).map_or(said, |total| total.min(most)).max(each))
}

/// The replicas at the start of a migration, or those of the leaving targets by now. Those of the arriving targets are
/// not added.
fn moving_total(context: &PlacementContext, picks: &[Pick]) -> Option<u32> {
    let recorded = context.recorded();
    let sum = |counts: fn(Role) -> bool| -> u32 {
        let counted = mailbox_objects::at_targets(&context.copies, recorded)
            .into_iter()
            .filter(|(target, _)| counts(target.role));
        counted.filter_map(|(_, copy)| there(copy, context.replicas_at())).fold(0, u32::saturating_add)
    };
    if is_moving(recorded) {
        let begun = context.record.as_ref().and_then(|record| u32::try_from(record.spec.total?).ok());
        return Some(sum(|role| role == Role::Leaving).max(begun.unwrap_or_default()));
    }
    let is_picked = |target: &Target| picks.iter().any(|pick| pick.cluster == target.cluster);
    let is_same = recorded.len() == picks.len() && recorded.iter().all(is_picked);
    (!is_same && !recorded.is_empty()).then(|| sum(|_| true))
}

/// The present state of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    asked: u32,
    there: u32,
    /// Whether it has replicas and all are available.
    settled: bool,
    /// Whether its autoscaler sets its replicas.
    left_alone: bool,
}

impl Seen {
    pub(crate) fn of(copy: &MailboxObject, replicas_at: &str) -> Option<Seen> {
        let there = copy.reported("replicas").unwrap_or_default();
        let settled = there > 0 && copy.has_observed() && copy.available() >= there;
        Some(Seen { asked: copy.number(replicas_at)?, there, settled, left_alone: copy.is_scaled_below() })
    }
}

/// The replicas to request of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) number: u32,
    /// Whether its autoscaler sets them from now on.
    pub(crate) left_alone: bool,
}

/// The replicas to request next, by share. A new copy gets its share; one with enough replicas is left to its
/// autoscaler.
pub(crate) fn next(seen: Option<Seen>, share: u32, is_moving: bool) -> Ask {
    let Some(seen) = seen else { return Ask { number: share, left_alone: share > 0 } };
    let needed = if is_moving { share } else { share.min(1) };
    let is_too_few = seen.asked.max(seen.there) < needed || (seen.settled && seen.there < needed);
    match is_too_few {
        // The syncer applies this number before the autoscaler takes over again.
        true => Ask { number: share, left_alone: false },
        false => Ask { number: seen.asked, left_alone: seen.left_alone || seen.there >= needed },
    }
}

/// The sum of the replicas that the autoscalers have set, if it differs from the user's object. None during a migration
/// or rolling update, when surplus pods exist, and if the user scaled to zero.
pub(crate) fn made(context: &PlacementContext, targets: &[(&Target, &MailboxObject)]) -> Option<u32> {
    let recorded = context.recorded();
    let most = context.scaled_to.filter(|_| context.rule().has_replicas() && !is_moving(recorded))?;
    let at = context.replicas_at();
    let made = |copy: &MailboxObject| {
        let seen = Seen::of(copy, at).filter(|seen| seen.settled)?;
        let updated = copy.object.as_ref()?.pointer("/status/updatedReplicas").and_then(Value::as_u64);
        updated.is_none_or(|updated| updated == u64::from(seen.there)).then_some(seen.there)
    };
    let all: Option<Vec<u32>> = targets.iter().map(|(_, copy)| made(copy)).collect();
    let total: u32 = all.filter(|all| !all.is_empty() && all.len() == recorded.len())?.into_iter().sum();
    // No autoscaler sets more.
    let total = total.min(most);
    let said = division::number(context.object, at, 1);
    (said > 0 && said != total).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaled_target_is_left_alone_once_it_has_its_share() {
        let check = |seen: (u32, u32, bool, bool), share: u32, is_moving: bool, expected: (u32, bool)| {
            let (asked, there, settled, left_alone) = seen;
            let ask = next(Some(Seen { asked, there, settled, left_alone }), share, is_moving);
            assert_eq!((ask.number, ask.left_alone), expected, "{seen:?} of {share}, moving: {is_moving}");
        };
        let (steady, moving) = (false, true);
        // What it has is the autoscaler's, more or less than its share.
        check((1, 10, true, true), 1, steady, (1, true));
        check((5, 2, true, true), 5, steady, (5, true));
        // It had none, and no autoscaler scales from zero: it gets its share, and is left alone when it has some.
        check((0, 0, false, true), 2, steady, (2, false));
        check((2, 0, false, false), 2, steady, (2, false));
        check((2, 1, false, false), 2, steady, (2, true));
        // One that takes over has as much as it is to take over, and more is fine.
        check((1, 4, true, true), 9, moving, (9, false));
        check((9, 4, false, false), 9, moving, (9, false));
        check((9, 9, true, false), 9, moving, (9, true));
        check((1, 12, true, true), 9, moving, (1, true));
        // Scaled down again before a target was left.
        check((9, 2, true, true), 9, moving, (9, false));
        // Not all of them are there yet.
        check((9, 2, false, true), 9, moving, (9, true));
        assert_eq!(next(None, 3, moving), Ask { number: 3, left_alone: true });
        assert_eq!(next(None, 0, steady), Ask { number: 0, left_alone: false });
    }
}
