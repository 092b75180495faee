//! The write that each target may get now.
//!
//! Replicas change in the order that never requests too many or too few ([`scaling_order`]); templates change in the
//! order that never takes down more than the whole may miss ([`rollout`], [`ordinals`]).

use std::collections::BTreeMap;

use api::fleet::{Role, Target};
use serde_json::Value;

use crate::division::ordinals::{self, OrdinalRange};
use crate::division::rollout::{self, RolloutBounds, RolloutGrant, RolloutStage, RolloutTarget};
use crate::division::scaling_order::{self, ObservedTarget, Slack};
use crate::division::{self, DivisionRule, REPLICAS, TargetPatch};
use crate::placement::autoscaled::{self, ReplicaRequest};
use crate::placement::context::PlacementContext;
use crate::placement::decide::PlacementDecision;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::status::completed;

const START: &str = "/spec/ordinals/start";
const STRATEGY: &str = "/spec/strategy/rollingUpdate";
const SUSPEND: &str = "/spec/suspend";

/// The write to one target.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum TargetWrite {
    /// No write: the target waits for its turn, or leaves.
    Skip,
    /// Only these fields of the existing mailbox object.
    Fields(TargetPatch),
    /// The whole object with these fields; with the template it has, if it waits for the new one.
    Full { patch: TargetPatch, keeps_template: bool },
}

/// Plans the writes of all targets of one object.
pub(super) struct TargetPlanner<'a> {
    context: &'a PlacementContext<'a>,
    decided: &'a PlacementDecision,
    /// The replicas that each target may have now.
    allowed: BTreeMap<String, u32>,
}

impl<'a> TargetPlanner<'a> {
    pub(super) fn new(
        context: &'a PlacementContext<'a>,
        decided: &'a PlacementDecision,
    ) -> TargetPlanner<'a> {
        TargetPlanner { context, decided, allowed: allowed(context, decided) }
    }

    pub(super) fn of(&self, target: &Target, mailbox_object: &MailboxObject) -> TargetWrite {
        let TargetPlanner { context, decided, .. } = *self;
        // A completed Job is not started again on a target whose mailbox object was deleted.
        if mailbox_object.is_being_deleted()
            || mailbox_object.object.is_none() && completed::is_completed(context.object)
        {
            return TargetWrite::Skip;
        }
        let scaled = self.scaled(target, mailbox_object);
        let number = match scaled {
            Some(request) => Some(ReplicaWrite::Set(request.number)),
            None => self.counted(target, mailbox_object),
        };
        let number = match number {
            Some(ReplicaWrite::Wait) => return TargetWrite::Skip,
            Some(ReplicaWrite::Set(number)) => Some(number),
            None => None,
        };
        let at = context.replicas_at();
        let numbered = |patch: TargetPatch| match number {
            Some(number) => {
                TargetPatch(patch.0.into_iter().chain([(at.to_owned(), number.into())]).collect())
            }
            None => patch,
        };
        if target.role == Role::Leaving {
            return match number.filter(|_| scaled.is_none_or(|request| !request.by_autoscaler)) {
                Some(_) => TargetWrite::Fields(numbered(TargetPatch::default())),
                None => TargetWrite::Skip,
            };
        }
        if decided.rule == DivisionRule::Schedule && is_elsewhere(context, mailbox_object) {
            let patch = TargetPatch(vec![(SUSPEND.to_owned(), true.into())]);
            return TargetWrite::Full { patch, keeps_template: false };
        }
        match self.rollout_grant(target, mailbox_object) {
            Some(grant) if !grant.may_update => {
                TargetWrite::Full { patch: numbered(TargetPatch::default()), keeps_template: true }
            }
            Some(grant) => TargetWrite::Full { patch: numbered(grant.patch()), keeps_template: false },
            None => TargetWrite::Full { patch: numbered(TargetPatch::default()), keeps_template: false },
        }
    }

    /// The replicas requested of a target with an autoscaler. None without one, or while it waits for others to terminate.
    pub(super) fn scaled(&self, target: &Target, mailbox_object: &MailboxObject) -> Option<ReplicaRequest> {
        let TargetPlanner { context, decided, .. } = *self;
        let at = context.replicas_at();
        if !context.is_autoscaled() || !decided.rule.has_replicas() {
            return None;
        }
        let share = target.share.and_then(|share| u32::try_from(share).ok());
        match (decided.plan.total, share) {
            // The user scaled to zero, which applies to every target.
            (Some(0), _) => Some(ReplicaRequest { number: 0, by_autoscaler: false }),
            (Some(_), _) if is_handed_over(context, decided) => self.handed_over(target, mailbox_object),
            (Some(_), Some(share)) if mailbox_objects::is_staying(target) => {
                let is_moving = autoscaled::is_moving(&decided.record.spec.targets);
                Some(autoscaled::next(autoscaled::ObservedReplicas::of(mailbox_object, at), share, is_moving))
            }
            _ => mailbox_object.number(at).map(|number| ReplicaRequest { number, by_autoscaler: true }),
        }
    }

    /// An autoscaler does not scale from zero replicas, so a leaving target is scaled down as if it had no autoscaler.
    fn handed_over(&self, target: &Target, mailbox_object: &MailboxObject) -> Option<ReplicaRequest> {
        let TargetPlanner { context, .. } = *self;
        match self.counted(target, mailbox_object)? {
            ReplicaWrite::Wait => None,
            ReplicaWrite::Set(number) if mailbox_objects::is_staying(target) => Some(autoscaled::next(
                autoscaled::ObservedReplicas::of(mailbox_object, context.replicas_at()),
                number,
                true,
            )),
            ReplicaWrite::Set(number) => Some(ReplicaRequest { number, by_autoscaler: false }),
        }
    }

    /// The replicas requested of a target without autoscaler.
    fn counted(&self, target: &Target, mailbox_object: &MailboxObject) -> Option<ReplicaWrite> {
        let TargetPlanner { decided, .. } = *self;
        decided.plan.total?;
        match decided.rule {
            DivisionRule::Replicas => Some(self.number(target, mailbox_object)),
            DivisionRule::Ordinals => Some(self.ordinal_number(target, mailbox_object)),
            _ => None,
        }
    }

    /// For replicas that are interchangeable.
    fn number(&self, target: &Target, mailbox_object: &MailboxObject) -> ReplicaWrite {
        let TargetPlanner { context, .. } = *self;
        let allowed = &self.allowed;
        match (allowed.get(&target.cluster), mailbox_object.number(context.replicas_at())) {
            (Some(number), _) => ReplicaWrite::Set(*number),
            (None, Some(requested)) => ReplicaWrite::Set(requested),
            (None, None) if target.share == Some(0) => ReplicaWrite::Set(0),
            (None, None) => ReplicaWrite::Wait,
        }
    }

    /// For ordinals: a range starts only when all of it may.
    fn ordinal_number(&self, target: &Target, mailbox_object: &MailboxObject) -> ReplicaWrite {
        let TargetPlanner { decided, .. } = *self;
        let share = target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or_default();
        let desired = if mailbox_objects::is_staying(target) { share } else { 0 };
        match (self.allowed.get(&target.cluster), mailbox_object.number(REPLICAS)) {
            (Some(number), _) if *number == desired => ReplicaWrite::Set(desired),
            (None, Some(requested))
                if requested == desired && starts_as_planned(decided, target, mailbox_object) =>
            {
                ReplicaWrite::Set(requested)
            }
            (_, None) if desired == 0 => ReplicaWrite::Set(0),
            _ => ReplicaWrite::Wait,
        }
    }

    /// The rollout grant of a target. None if all targets have the template, or none has to wait.
    fn rollout_grant(&self, target: &Target, mailbox_object: &MailboxObject) -> Option<RolloutGrant> {
        let TargetPlanner { context, decided, .. } = *self;
        let staying: Vec<(&Target, &MailboxObject)> =
            mailbox_objects::at_targets(&context.mailbox_objects, &decided.record.spec.targets)
                .into_iter()
                .filter(|(target, mailbox_object)| {
                    mailbox_objects::is_staying(target) && mailbox_object.object.is_some()
                })
                .collect();
        let is_old = |mailbox_object: &MailboxObject| {
            let desired = context.template_for(mailbox_object);
            mailbox_object.template().is_some() && desired.is_some() && mailbox_object.template() != desired
        };
        if staying.len() < 2 {
            return None;
        }
        let keep = RolloutGrant { surge: 0, unavailable: 0, may_update: false };
        match decided.rule {
            DivisionRule::Replicas => {
                let none = BTreeMap::new();
                let next = if context.is_autoscaled() { &none } else { &self.allowed };
                let turns: Vec<RolloutTarget> = staying
                    .iter()
                    .map(|(_, mailbox_object)| rollout_target(context, mailbox_object, next))
                    .collect();
                // The last target of a rollout keeps its grant, too.
                if turns.iter().all(|turn| turn.stage == RolloutStage::Done) {
                    return None;
                }
                let total = match context.is_autoscaled() {
                    true => turns.iter().map(|turn| turn.share).sum(),
                    false => decided.plan.total?,
                };
                let bounds = rollout::bounds(context.object, total)?;
                let at = staying.iter().position(|(other, _)| other.cluster == target.cluster)?;
                let grant = rollout::turns(bounds, &context.key(), &turns).into_iter().nth(at)?;
                // A target that is rolling keeps the bounds it was written.
                if turns[at].stage == RolloutStage::Waiting { Some(grant) } else { Some(keep) }
            }
            DivisionRule::Ordinals if is_old(mailbox_object) => {
                let range = |mailbox_object: &MailboxObject| {
                    let object = mailbox_object.object.as_ref();
                    let start = object.map_or(0, |object| division::number(object, START, 0));
                    OrdinalRange { start, len: mailbox_object.number(REPLICAS).unwrap_or_default() }
                };
                let rows: Vec<(&str, OrdinalRange, bool)> = staying
                    .iter()
                    .map(|(_, mailbox_object)| {
                        (
                            mailbox_object.name(),
                            range(mailbox_object),
                            !is_old(mailbox_object)
                                && is_done(
                                    mailbox_object,
                                    mailbox_object.number(REPLICAS).unwrap_or_default(),
                                ),
                        )
                    })
                    .collect();
                let may_update = ordinals::next_to_update(&rows) == Some(target.cluster.as_str());
                if may_update { None } else { Some(keep) }
            }
            _ => None,
        }
    }
}

/// Whether a leaving target has to terminate before others take over.
fn is_handed_over(context: &PlacementContext, decided: &PlacementDecision) -> bool {
    context.exclusive.is_some()
        && decided.record.spec.targets.iter().any(|target| target.role == Role::Leaving)
}

/// Whether another mailbox still has the object.
fn is_elsewhere(context: &PlacementContext, mailbox_object: &MailboxObject) -> bool {
    context
        .mailbox_objects
        .iter()
        .any(|other| other.mailbox != mailbox_object.mailbox && other.object.is_some())
}

enum ReplicaWrite {
    Set(u32),
    /// The target may neither start nor change.
    Wait,
}

fn starts_as_planned(decided: &PlacementDecision, target: &Target, mailbox_object: &MailboxObject) -> bool {
    let planned =
        decided.plan.patch(&target.cluster).and_then(|patch| patch.0.iter().find(|(at, _)| at == START));
    let start = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let present = mailbox_object.object.as_ref().and_then(|object| object.pointer(START));
    // A target without replicas may start anywhere.
    mailbox_object.number(REPLICAS) == Some(0)
        || planned.is_none_or(|(_, value)| start(Some(value)) == start(present))
}

fn allowed(context: &PlacementContext, decided: &PlacementDecision) -> BTreeMap<String, u32> {
    let at = context.replicas_at();
    let targets = mailbox_objects::at_targets(&context.mailbox_objects, &decided.record.spec.targets);
    let observed = |(_, mailbox_object): &(&Target, &MailboxObject)| {
        let requested = context.desired_replicas(mailbox_object)?;
        let reported = |field: &str| mailbox_object.reported(field).unwrap_or_default();
        let running = if mailbox_object.has_observed() {
            reported("replicas")
        } else {
            requested.max(reported("replicas"))
        };
        let running =
            running.max(context.terminating_pods.get(&mailbox_object.mailbox).copied().unwrap_or_default());
        let leaving = mailbox_object.is_being_deleted();
        Some((
            mailbox_object.name().to_owned(),
            ObservedTarget { requested, available: mailbox_object.available(), running, leaving },
        ))
    };
    let observed: BTreeMap<String, ObservedTarget> = targets.iter().filter_map(observed).collect();
    let share = |target: &Target| Some((target.cluster.clone(), u32::try_from(target.share?).ok()?));
    let staying = decided.record.spec.targets.iter().filter(|target| mailbox_objects::is_staying(target));
    let mut desired: BTreeMap<String, u32> = staying.filter_map(share).collect();
    // The old targets keep the replicas that do not fit on the new ones.
    let mut pending = decided.plan.pending;
    for (target, mailbox_object) in targets.iter().filter(|(target, _)| target.role == Role::Leaving) {
        let kept = mailbox_object.number(at).unwrap_or_default().min(pending);
        pending -= kept;
        desired.insert(target.cluster.clone(), kept);
    }
    scaling_order::next(&observed, &desired, slack(context, decided))
}

fn slack(context: &PlacementContext, decided: &PlacementDecision) -> Slack {
    if context.exclusive.is_some() {
        return Slack::exclusive();
    }
    let leaving = |target: &Target| match target.role {
        Role::Leaving => target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or_default(),
        _ => 0,
    };
    let moving: u32 = decided.record.spec.targets.iter().map(leaving).sum();
    let total = decided.plan.total.unwrap_or_default();
    let bounds = rollout::bounds(context.object, total).unwrap_or(RolloutBounds { surge: 0, unavailable: 0 });
    // Replicas may be missing only if no surge is allowed: with surge, the new ones are created first.
    match bounds.surge.max(moving) {
        0 => Slack::new(0, bounds.unavailable),
        surge => Slack::new(surge, 0),
    }
}

/// Replicas that are about to be requested do not exist yet, so they count as down: replicas change before templates.
fn rollout_target<'a>(
    context: &PlacementContext,
    mailbox_object: &'a MailboxObject,
    next: &BTreeMap<String, u32>,
) -> RolloutTarget<'a> {
    let requested = context.desired_replicas(mailbox_object).unwrap_or_default();
    let share = next.get(mailbox_object.name()).copied().unwrap_or_default().max(requested);
    let down = share.saturating_sub(mailbox_object.available());
    let is_degraded = context.degraded.mailboxes.contains(&mailbox_object.mailbox);
    let stage = match context.template_for(mailbox_object) {
        Some(desired) if mailbox_object.template() != Some(desired) => RolloutStage::Waiting,
        // The template cannot be made for this target, so the rollout does not wait for it.
        None => RolloutStage::Done,
        Some(_) if is_done(mailbox_object, requested) => RolloutStage::Done,
        Some(_) => {
            let granted = |field: &str| {
                let strategy = mailbox_object.object.as_ref().and_then(|object| object.pointer(STRATEGY));
                strategy.map_or(0, |strategy| division::number(strategy, &format!("/{field}"), 0))
            };
            RolloutStage::Rolling(RolloutBounds {
                surge: granted("maxSurge"),
                unavailable: granted("maxUnavailable"),
            })
        }
    };
    RolloutTarget { cluster: mailbox_object.name(), share, down, is_degraded, stage }
}

/// Whether all replicas of a target are updated and available.
fn is_done(mailbox_object: &MailboxObject, requested: u32) -> bool {
    mailbox_object.has_observed()
        && mailbox_object.reported("updatedReplicas") == Some(requested)
        && mailbox_object.reported("replicas") == Some(requested)
        && mailbox_object.available() >= requested
}
