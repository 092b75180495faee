//! What may be written to each target now.
//!
//! Replicas change in the order that never requests too many or too few ([`scaling_order`]); templates change in the
//! order that never takes down more than the whole may miss ([`rollout`], [`ordinals`]).

use std::collections::BTreeMap;

use api::fleet::{Role, Target};
use serde_json::Value;

use crate::division::autoscaled::{self, Ask};
use crate::division::ordinals::{self, Range};
use crate::division::rollout::{self, Bounds, RolloutGrant, RolloutStage, RolloutTarget};
use crate::division::scaling_order::{self, ObservedTarget, Slack};
use crate::division::{self, Part, REPLICAS, Rule};
use crate::placement::context::PlacementContext;
use crate::placement::decide::PlacementDecision;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::status::completed;

const START: &str = "/spec/ordinals/start";
const STRATEGY: &str = "/spec/strategy/rollingUpdate";
const SUSPEND: &str = "/spec/suspend";

/// What is written to one target now.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum TargetWrite {
    /// Nothing: the target waits for its turn, or leaves.
    Skip,
    /// Only these fields of the existing copy.
    Fields(Part),
    /// The whole object with these fields; with the template it has, if it waits for the new one.
    Full { part: Part, keeps_template: bool },
}

pub(super) fn of(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> TargetWrite {
    // A completed Job is not started again where its copy was deleted.
    if copy.is_being_deleted() || copy.object.is_none() && completed::is_completed(context.object) {
        return TargetWrite::Skip;
    }
    let scaled = scaled(context, decided, target, copy);
    let number = match scaled {
        Some(ask) => Some(Number::Is(ask.number)),
        None => counted(context, decided, target, copy),
    };
    let number = match number {
        Some(Number::Waits) => return TargetWrite::Skip,
        Some(Number::Is(number)) => Some(number),
        None => None,
    };
    let at = context.replicas_at();
    let numbered = |part: Part| match number {
        Some(number) => Part(part.0.into_iter().chain([(at.to_owned(), number.into())]).collect()),
        None => part,
    };
    if target.role == Role::Leaving {
        return match number.filter(|_| scaled.is_none_or(|ask| !ask.left_alone)) {
            Some(_) => TargetWrite::Fields(numbered(Part::default())),
            None => TargetWrite::Skip,
        };
    }
    if decided.rule == Rule::Schedule && is_elsewhere(context, copy) {
        let part = Part(vec![(SUSPEND.to_owned(), true.into())]);
        return TargetWrite::Full { part, keeps_template: false };
    }
    match turn(context, decided, target, copy) {
        Some(grant) if !grant.may_update => {
            TargetWrite::Full { part: numbered(Part::default()), keeps_template: true }
        }
        Some(grant) => TargetWrite::Full { part: numbered(grant.part()), keeps_template: false },
        None => TargetWrite::Full { part: numbered(Part::default()), keeps_template: false },
    }
}

/// The replicas requested of a target with an autoscaler. None without one, or while it waits for others to terminate.
pub(super) fn scaled(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Option<Ask> {
    let at = context.replicas_at();
    if !context.is_autoscaled() || !decided.rule.has_replicas() {
        return None;
    }
    let share = target.share.and_then(|share| u32::try_from(share).ok());
    match (decided.plan.total, share) {
        // The user scaled to zero, which applies to every target.
        (Some(0), _) => Some(Ask { number: 0, left_alone: false }),
        (Some(_), _) if is_handed_over(decided) => handed_over(context, decided, target, copy),
        (Some(_), Some(share)) if mailbox_objects::is_staying(target) => {
            let is_moving = autoscaled::is_moving(&decided.record.spec.targets);
            Some(autoscaled::next(autoscaled::Seen::of(copy, at), share, is_moving))
        }
        _ => copy.number(at).map(|number| Ask { number, left_alone: true }),
    }
}

/// Whether a leaving target has to terminate before others take over.
fn is_handed_over(decided: &PlacementDecision) -> bool {
    decided.exclusive && decided.record.spec.targets.iter().any(|target| target.role == Role::Leaving)
}

/// An autoscaler does not scale what has zero replicas, so a leaving target is scaled down as if there were none.
fn handed_over(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Option<Ask> {
    match counted(context, decided, target, copy)? {
        Number::Waits => None,
        Number::Is(number) if mailbox_objects::is_staying(target) => {
            Some(autoscaled::next(autoscaled::Seen::of(copy, context.replicas_at()), number, true))
        }
        Number::Is(number) => Some(Ask { number, left_alone: false }),
    }
}

/// Whether another mailbox still has a copy.
fn is_elsewhere(context: &PlacementContext, copy: &MailboxObject) -> bool {
    context.copies.iter().any(|other| other.mailbox != copy.mailbox && other.object.is_some())
}

enum Number {
    Is(u32),
    /// The target may neither start nor change.
    Waits,
}

/// The replicas requested of a target without autoscaler.
fn counted(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Option<Number> {
    decided.plan.total?;
    match decided.rule {
        Rule::Replicas => Some(number(context, decided, target, copy)),
        Rule::Ordinals => Some(ordinal_number(context, decided, target, copy)),
        _ => None,
    }
}

/// For replicas that are interchangeable.
fn number(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Number {
    let allowed = allowed(context, decided);
    match (allowed.get(&target.cluster), copy.number(context.replicas_at())) {
        (Some(number), _) => Number::Is(*number),
        (None, Some(asked)) => Number::Is(asked),
        (None, None) if target.share == Some(0) => Number::Is(0),
        (None, None) => Number::Waits,
    }
}

/// For ordinals: a range starts only when all of it may.
fn ordinal_number(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Number {
    let share = target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or_default();
    let wanted = if mailbox_objects::is_staying(target) { share } else { 0 };
    match (allowed(context, decided).get(&target.cluster), copy.number(REPLICAS)) {
        (Some(number), _) if *number == wanted => Number::Is(wanted),
        (None, Some(asked)) if asked == wanted && starts_as_planned(decided, target, copy) => {
            Number::Is(asked)
        }
        (_, None) if wanted == 0 => Number::Is(0),
        _ => Number::Waits,
    }
}

fn starts_as_planned(decided: &PlacementDecision, target: &Target, copy: &MailboxObject) -> bool {
    let planned =
        decided.plan.part(&target.cluster).and_then(|part| part.0.iter().find(|(at, _)| at == START));
    let start = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or_default();
    let present = copy.object.as_ref().and_then(|object| object.pointer(START));
    // A target without replicas may start anywhere.
    copy.number(REPLICAS) == Some(0) || planned.is_none_or(|(_, value)| start(Some(value)) == start(present))
}

fn allowed(context: &PlacementContext, decided: &PlacementDecision) -> BTreeMap<String, u32> {
    let at = context.replicas_at();
    let targets = mailbox_objects::at_targets(&context.copies, &decided.record.spec.targets);
    let seen = |(_, copy): &(&Target, &MailboxObject)| {
        let asked = context.wanted_of(copy)?;
        let reported = |field: &str| copy.reported(field).unwrap_or_default();
        let running =
            if copy.has_observed() { reported("replicas") } else { asked.max(reported("replicas")) };
        let running = running.max(context.terminating_pods.get(&copy.mailbox).copied().unwrap_or_default());
        let leaving = copy.is_being_deleted();
        Some((
            copy.name().to_owned(),
            ObservedTarget { asked, available: copy.available(), running, leaving },
        ))
    };
    let seen: BTreeMap<String, ObservedTarget> = targets.iter().filter_map(seen).collect();
    let share = |target: &Target| Some((target.cluster.clone(), u32::try_from(target.share?).ok()?));
    let staying = decided.record.spec.targets.iter().filter(|target| mailbox_objects::is_staying(target));
    let mut wanted: BTreeMap<String, u32> = staying.filter_map(share).collect();
    // Replicas that do not fit on the new targets stay on the old ones.
    let mut pending = decided.plan.pending;
    for (target, copy) in targets.iter().filter(|(target, _)| target.role == Role::Leaving) {
        let kept = copy.number(at).unwrap_or_default().min(pending);
        pending -= kept;
        wanted.insert(target.cluster.clone(), kept);
    }
    scaling_order::next(&seen, &wanted, slack(context, decided))
}

fn slack(context: &PlacementContext, decided: &PlacementDecision) -> Slack {
    if decided.exclusive {
        return Slack::exclusive();
    }
    let leaving = |target: &Target| match target.role {
        Role::Leaving => target.share.and_then(|share| u32::try_from(share).ok()).unwrap_or_default(),
        _ => 0,
    };
    let moving: u32 = decided.record.spec.targets.iter().map(leaving).sum();
    let total = decided.plan.total.unwrap_or_default();
    let bounds = rollout::bounds(context.object, total).unwrap_or(Bounds { surge: 0, unavailable: 0 });
    // Replicas may be missing only if no surge is allowed: with surge, the new ones are created first.
    match bounds.surge.max(moving) {
        0 => Slack::new(0, bounds.unavailable),
        surge => Slack::new(surge, 0),
    }
}

/// The rollout grant of a target. None if all targets have the template, or none has to wait.
fn turn(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
) -> Option<RolloutGrant> {
    let staying: Vec<(&Target, &MailboxObject)> =
        mailbox_objects::at_targets(&context.copies, &decided.record.spec.targets)
            .into_iter()
            .filter(|(target, copy)| mailbox_objects::is_staying(target) && copy.object.is_some())
            .collect();
    let is_old = |copy: &MailboxObject| {
        let wanted = context.template_for(copy);
        copy.template().is_some() && wanted.is_some() && copy.template() != wanted
    };
    if staying.len() < 2 {
        return None;
    }
    let keep = RolloutGrant { surge: 0, unavailable: 0, may_update: false };
    match decided.rule {
        Rule::Replicas => {
            let next = if context.is_autoscaled() { BTreeMap::new() } else { allowed(context, decided) };
            let turns: Vec<RolloutTarget> =
                staying.iter().map(|(_, copy)| replicas_turn(context, copy, &next)).collect();
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
        Rule::Ordinals if is_old(copy) => {
            let range = |copy: &MailboxObject| {
                let object = copy.object.as_ref();
                let start = object.map_or(0, |object| division::number(object, START, 0));
                Range { start, len: copy.number(REPLICAS).unwrap_or_default() }
            };
            let rows: Vec<(&str, Range, bool)> = staying
                .iter()
                .map(|(_, copy)| {
                    (
                        copy.name(),
                        range(copy),
                        !is_old(copy) && is_done(copy, copy.number(REPLICAS).unwrap_or_default()),
                    )
                })
                .collect();
            let may_update = ordinals::next_to_update(&rows) == Some(target.cluster.as_str());
            if may_update { None } else { Some(keep) }
        }
        _ => None,
    }
}

/// Replicas that are about to be requested do not exist yet, so they count as down: replicas change before templates.
fn replicas_turn<'a>(
    context: &PlacementContext,
    copy: &'a MailboxObject,
    next: &BTreeMap<String, u32>,
) -> RolloutTarget<'a> {
    let asked = context.wanted_of(copy).unwrap_or_default();
    let share = next.get(copy.name()).copied().unwrap_or_default().max(asked);
    let down = share.saturating_sub(copy.available());
    let is_degraded = context.degraded.mailboxes.contains(&copy.mailbox);
    let stage = match context.template_for(copy) {
        Some(wanted) if copy.template() != Some(wanted) => RolloutStage::Waiting,
        // The template cannot be made for this target, so the rollout does not wait for it.
        None => RolloutStage::Done,
        Some(_) if is_done(copy, asked) => RolloutStage::Done,
        Some(_) => {
            let granted = |field: &str| {
                let strategy = copy.object.as_ref().and_then(|object| object.pointer(STRATEGY));
                strategy.map_or(0, |strategy| division::number(strategy, &format!("/{field}"), 0))
            };
            RolloutStage::Rolling(Bounds {
                surge: granted("maxSurge"),
                unavailable: granted("maxUnavailable"),
            })
        }
    };
    RolloutTarget { cluster: copy.name(), share, down, is_degraded, stage }
}

/// Whether all replicas of a target are updated and available.
fn is_done(copy: &MailboxObject, asked: u32) -> bool {
    copy.has_observed()
        && copy.reported("updatedReplicas") == Some(asked)
        && copy.reported("replicas") == Some(asked)
        && copy.available() >= asked
}
