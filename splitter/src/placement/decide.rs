//! Where an object runs: chooses targets, and plans the record of the decision. A pure function.
//!
//! ```text
//!   annotations, Placements ─► effective placement ─┐
//!   PhysicalClusters ─► candidates ─────────────────┼─► choose ─► divide ─► one migration step ─► record (one commit)
//!   the record so far ─► current targets ───────────┘
//! ```

use api::cluster::Path;
use api::fleet::{Chosen, Distribution, DistributionSpec, Division, GroupKind, Role, Target};
use api::meta::quantity::Amounts;
use api::names::{ESTIMATES, MOVING_SINCE, PLACEMENT_HASH};
use jiff::Timestamp;

use crate::division;
use crate::division::pick::Pick;
use crate::division::{Dividend, DivisionPlan, DivisionRule};
use crate::placement::autoscaled;
use crate::placement::context::PlacementContext;
use crate::placement::estimate::CapacityEstimates;
use crate::placement::migration::{self, ExclusiveReason, MigrationPlan, MigrationStep};
use crate::placement::pod_security;
use crate::placement::reservations::{self, CapacityReservations, ClusterName};
use crate::placement::targets::{
    self, Candidate, ChoiceOutcome, ClaimLocation, CurrentPlacement, PlacementRequest, TargetChoice,
};
use crate::policy::{self, AnnotationLevel, EffectivePlacement};
use crate::snapshot::mailbox_objects;
use crate::snapshot::placement_index::PlacementIndex;
use crate::snapshot::record;
use crate::snapshot::{MemberCluster, ObjectRef};

/// A placement decision.
#[derive(Debug)]
pub(crate) struct PlacementDecision {
    /// The record to write.
    pub(crate) record: Distribution,
    /// Whether the record is the present one.
    pub(crate) is_recorded: bool,
    pub(crate) plan: DivisionPlan,
    pub(crate) rule: DivisionRule,
    pub(crate) decision: TargetChoice,
    pub(crate) step: MigrationStep,
    /// Why it has no target, or not those of its policy.
    pub(crate) unplaced: Option<String>,
    /// Why some replicas have no target.
    pub(crate) pending_reason: Option<String>,
    pub(crate) reservation: Reservation,
}

impl PlacementDecision {
    /// Whether more free capacity could change the decision: replicas are pending, or run on a fallback.
    pub(crate) fn waits_for_capacity(&self) -> bool {
        let is_last_resort = self.decision.picks.iter().any(|pick| pick.tier > 0);
        self.unplaced.is_some() || self.plan.pending > 0 || is_last_resort
    }
}

/// The capacity and claims that a decision reserves, and the cluster it chose for a namespace without policy.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reservation {
    requests: Vec<(ClusterName, Amounts)>,
    claims: Vec<String>,
    default_cluster: Option<String>,
}

impl Reservation {
    /// Replaces the reservation of an object. Returns whether capacity was released.
    pub(crate) fn reserve(
        &self,
        reservations: &mut CapacityReservations,
        subject: &ObjectRef,
        targets: &[Target],
    ) -> bool {
        if let Some(cluster) = &self.default_cluster {
            reservations.set_default(subject.cluster(), &subject.key.namespace, cluster);
        }
        reservations.mount(subject, &self.claims, targets);
        reservations.set(subject, self.requests.clone())
    }
}

/// Decides where an object runs, from everything that is known about it, what others have reserved, and how far the
/// other objects of its namespace are.
pub(crate) fn decide(
    context: &PlacementContext,
    reservations: &CapacityReservations,
    placement_index: &PlacementIndex,
) -> PlacementDecision {
    let estimates = &context.estimates;
    let (level, effective) = context.effective_placement();
    let current = current(context);
    let before = PreviousTargets { held: held(context, &current), current };
    let (mut decision, mut plan) = choose_and_divide(reservations, context, &effective, estimates, &before);
    if let Some(waiting) = estimates.with_pending(plan.pending).filter(|_| plan.pending > 0) {
        (decision, plan) = choose_and_divide(reservations, context, &effective, &waiting, &before);
    }
    let effective = effective.ok();
    let held = &before.held;
    let mut unplaced = match &decision.outcome {
        ChoiceOutcome::Placed => None,
        ChoiceOutcome::Held { why } | ChoiceOutcome::Pending { why } => Some(why.clone()),
    };
    let by_default =
        effective.as_ref().is_some_and(|effective| *effective == EffectivePlacement::default_choice());
    let default_cluster = decision.picks.first().filter(|_| by_default).map(|pick| pick.cluster.clone());
    if let Some(why) =
        context.exclusive.and_then(|exclusive| reason_to_stay(exclusive, held, &decision.picks))
    {
        let division = effective.as_ref().map(|effective| effective.spec.division).unwrap_or_default();
        plan = divide(context, division, &as_recorded(held), held);
        unplaced = Some(why);
    }
    let desired: Vec<(String, Option<i64>)> = plan
        .patches
        .iter()
        .map(|(cluster, _)| (cluster.clone(), plan.shares.get(cluster).map(|share| i64::from(*share))))
        .collect();
    let next = migration::plan_migration(held, &desired, &context.readiness, moving_for(context));
    let next = with_namespace(placement_index, context, level, held, next);
    let next = with_capacity_for_all(held, &plan, next);
    let spec = DistributionSpec {
        chosen_by: match &effective {
            Some(effective) => effective.by.clone(),
            None => {
                context.record.as_ref().map_or_else(Chosen::default, |record| record.spec.chosen_by.clone())
            }
        },
        total: plan.total.map(i64::from),
        pending: i64::from(plan.pending),
        targets: next.targets,
        ..DistributionSpec::default()
    };
    let pods = context.pods(&spec.targets, &plan);
    let reservation = Reservation {
        requests: reservations::target_requests(&context.each(), &spec.targets, &context.members, &pods),
        claims: context.claims.keys().cloned().collect(),
        default_cluster,
    };
    let (record, is_recorded) =
        planned_record(context, spec, effective.as_ref(), &next.step, unplaced.is_none());
    PlacementDecision {
        record,
        is_recorded,
        rule: context.rule(),
        pending_reason: pending_reason(&plan, &decision.picks),
        plan,
        decision,
        step: next.step,
        unplaced,
        reservation,
    }
}

/// Why replicas are pending: the limit of every chosen cluster.
fn pending_reason(plan: &DivisionPlan, picks: &[Pick]) -> Option<String> {
    if plan.pending == 0 {
        return None;
    }
    let summary = pending_message(plan);
    // Sorted by name: the order of the picks may change with every report, and the message should not.
    let mut picks: Vec<&Pick> = picks.iter().collect();
    picks.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let why: Vec<String> = picks.into_iter().filter_map(Pick::limit_message).collect();
    Some(if why.is_empty() { summary } else { format!("{summary}; {}", why.join("; ")) })
}

fn pending_message(plan: &DivisionPlan) -> String {
    format!(
        "{} of {} are pending: no target has capacity for them",
        plan.pending,
        plan.total.unwrap_or_default()
    )
}

/// The recorded targets that may still hold the object.
struct PreviousTargets {
    /// Those that may be chosen again.
    current: Vec<Target>,
    /// Those that may hold the object, and are kept in the record until others have taken over.
    held: Vec<Target>,
}

/// Chooses targets and divides the object over them.
fn choose_and_divide(
    reservations: &CapacityReservations,
    context: &PlacementContext,
    effective: &Result<EffectivePlacement, policy::InvalidAnnotation>,
    estimates: &CapacityEstimates,
    before: &PreviousTargets,
) -> (TargetChoice, DivisionPlan) {
    let (decision, division) = match effective {
        Ok(effective) => {
            (choose(reservations, context, effective, estimates, &before.current), effective.spec.division)
        }
        Err(invalid) => {
            let (why, division) = (invalid.to_string(), Division::default());
            let decision =
                evaluate_candidates(reservations, context, division, estimates, |request, candidates| {
                    targets::hold_current(&why, &request, candidates, &existing(context))
                });
            (decision, division)
        }
    };
    let plan = divide(context, division, &decision.picks, &before.held);
    (decision, plan)
}

fn divide(context: &PlacementContext, division: Division, picks: &[Pick], held: &[Target]) -> DivisionPlan {
    let recorded = recorded_for_division(context.recorded(), held);
    let (rule, key, replicas_at) = (context.rule(), context.key(), context.replicas_at());
    let scaled = autoscaled::total(context, picks);
    let dividend = Dividend { object: context.object, rule, replicas_at, division, key: &key, scaled };
    division::plan(&dividend, picks, recorded)
}

/// The record that a division continues: the whole record, targets that hold nothing any more included. The ordinals of a
/// removed target go to another target, and those of the other targets are unchanged. A record of which no target holds
/// anything is not continued.
fn recorded_for_division<'a>(recorded: &'a [Target], held: &[Target]) -> &'a [Target] {
    if held.is_empty() { &[] } else { recorded }
}

fn choose(
    reservations: &CapacityReservations,
    context: &PlacementContext,
    effective: &EffectivePlacement,
    estimates: &CapacityEstimates,
    current: &[Target],
) -> TargetChoice {
    let namespace = &context.subject.key.namespace;
    let by_default = *effective == EffectivePlacement::default_choice();
    let beside = by_default.then(|| reservations.default_of(context.subject.cluster(), namespace)).flatten();
    let own = context.key();
    // Without a policy, the whole namespace is placed on the same cluster.
    let key = if by_default { namespace } else { &own };
    let fingerprint =
        context.record.as_ref().and_then(|record| record.metadata.annotations.get(PLACEMENT_HASH));
    let current = CurrentPlacement { targets: current, fingerprint: fingerprint.map(String::as_str) };
    evaluate_candidates(reservations, context, effective.spec.division, estimates, |request, candidates| {
        let request = PlacementRequest { key, beside: beside.as_deref(), ..request };
        targets::choose(effective, &request, candidates, &current)
    })
}

/// The recorded targets that are kept unless a placement, drain or failure moves them. A target to which nothing was sent
/// holds nothing: if its physical cluster was removed, may not be used, is dedicated to another logical cluster or does not
/// answer, the target is not chosen again.
fn current(context: &PlacementContext) -> Vec<Target> {
    let permissions = &context.permissions;
    let is_sent = |target: &Target| {
        context
            .mailbox_objects
            .iter()
            .any(|mailbox_object| mailbox_object.is_at(&target.cluster) && mailbox_object.object.is_some())
    };
    let is_open = |target: &Target| {
        let member = context.members.iter().find(|member| member.name() == target.cluster);
        member.is_some_and(|member| {
            let is_elsewhere = permissions.dedicated_elsewhere(member).is_some();
            member.is_ready() && permissions.is_granted(member) && !is_elsewhere
        })
    };
    context.recorded().iter().filter(|target| is_sent(target) || is_open(target)).cloned().collect()
}

/// The recorded targets that may hold the object. Dropped from the record are those that hold nothing for certain: a removed
/// physical cluster, or one that cannot be used. A target is kept while the mailbox of its physical cluster is not known, and
/// while the object still runs on a former physical cluster of the same name.
///
/// Some records keep all targets. Without its record a completed Job would start again elsewhere, a pod would run twice,
/// and a workload would start with an empty volume. A Job of which some targets are left keeps the others, because the
/// indexes of a running Job cannot be changed.
fn held(context: &PlacementContext, current: &[Target]) -> Vec<Target> {
    let is_on_former = |target: &Target| {
        let mut former = context
            .mailbox_objects
            .iter()
            .filter(|mailbox_object| !mailbox_object.is_nearest && mailbox_object.object.is_some());
        former.any(|mailbox_object| mailbox_object.member.name() == target.cluster)
    };
    let is_unknown = |target: &Target| {
        let mut members = context.members.iter();
        members.any(|member| member.name() == target.cluster && member.mailbox().is_none())
    };
    let is_held = |target: &&Target| current.contains(target) || is_on_former(target) || is_unknown(target);
    let held: Vec<Target> = context.recorded().iter().filter(is_held).cloned().collect();
    match context.exclusive {
        Some(ExclusiveReason::CompletedJob | ExclusiveReason::BarePod | ExclusiveReason::Volume) => {
            context.recorded().to_vec()
        }
        Some(ExclusiveReason::RunningJob) if !held.is_empty() => context.recorded().to_vec(),
        _ => held,
    }
}

/// The recorded targets whose physical clusters exist.
fn existing(context: &PlacementContext) -> Vec<Target> {
    let exists = |target: &&Target| context.members.iter().any(|member| member.name() == target.cluster);
    context.recorded().iter().filter(exists).cloned().collect()
}

/// Evaluates all physical clusters with everything known about them, and lets `decides` choose.
fn evaluate_candidates(
    reservations: &CapacityReservations,
    context: &PlacementContext,
    division: Division,
    estimates: &CapacityEstimates,
    decides: impl FnOnce(PlacementRequest, &[Candidate]) -> TargetChoice,
) -> TargetChoice {
    let path = context.permissions.path().map(Path::to_string).unwrap_or_default();
    let kind = &context.watched.kind;
    let kinds = [GroupKind { group: kind.group.clone(), kind: kind.name.clone() }];
    let request = PlacementRequest {
        key: &context.key(),
        logical_cluster: &path,
        kinds: &kinds,
        violations: &pod_security::violations(context.object),
        each: context.each(),
        replicas: context.replicas(context.rule()),
        extent: context.extent(division),
        beside: None,
    };
    let candidates: Vec<Candidate> = context
        .members
        .iter()
        .map(|member| Candidate {
            estimate: estimates.fits(member.name()),
            waiting: estimates.waiting(member.name()),
            circular: context.permissions.cycle_through(member).map(str::to_owned),
            ..candidate(reservations, context, member)
        })
        .collect();
    decides(request, &candidates)
}

fn candidate<'a>(
    reservations: &CapacityReservations,
    context: &PlacementContext,
    member: &'a MemberCluster,
) -> Candidate<'a> {
    let name = (member.owner, member.name().to_owned());
    Candidate {
        usable: context.permissions.is_granted(member),
        taken: reservations.taken_from(context.subject, &name),
        namespace: mailbox_objects::namespace_on(
            member,
            context.subject.cluster(),
            &context.subject.key.namespace,
        ),
        claim_elsewhere: claim_elsewhere(reservations, context, member.name()),
        ..Candidate::new(&member.object)
    }
}

/// A claim whose data is not on a cluster. The data is where the claim was sent or, before it is sent, where another
/// workload that mounts it is placed.
fn claim_elsewhere(
    reservations: &CapacityReservations,
    context: &PlacementContext,
    cluster: &str,
) -> Option<ClaimLocation> {
    context.claims.iter().find_map(|(name, locations)| {
        let reserved = || reservations.mounted(context.subject, name);
        let clusters = if locations.is_empty() { reserved() } else { locations.clone() };
        let at = clusters.first().filter(|_| !clusters.contains(cluster))?;
        Some(ClaimLocation { name: name.clone(), at: at.clone() })
    })
}

/// Why an object stays on its target: it must not run twice, and cannot be stopped.
fn reason_to_stay(exclusive: ExclusiveReason, recorded: &[Target], picks: &[Pick]) -> Option<String> {
    let leaving = recorded
        .iter()
        .find(|target| {
            mailbox_objects::is_staying(target) && !picks.iter().any(|pick| pick.cluster == target.cluster)
        })
        .filter(|_| !picks.is_empty())?;
    let why = match exclusive {
        ExclusiveReason::Recreate | ExclusiveReason::Ordinals => return None,
        ExclusiveReason::BarePod => "a Pod cannot be moved; delete it and create it again",
        ExclusiveReason::RunningJob => "the Job is running and would start over elsewhere",
        ExclusiveReason::CompletedJob => "the Job is completed and would start over elsewhere",
        ExclusiveReason::Volume => {
            "its volume can be mounted on one physical cluster only, and the data is there"
        }
    };
    Some(format!("the object stays on {}: {why}", leaving.cluster))
}

/// The present targets as picks.
fn as_recorded(recorded: &[Target]) -> Vec<Pick> {
    let staying = recorded.iter().filter(|target| mailbox_objects::is_staying(target));
    let pick = |target: &Target| {
        let weight = target.share.and_then(|share| u64::try_from(share).ok()).unwrap_or_default().max(1);
        Pick { weight, held: None, ..targets::held_pick(target) }
    };
    staying.map(pick).collect()
}

fn moving_for(context: &PlacementContext) -> u64 {
    let since = context.record.as_ref().and_then(|record| record.metadata.annotations.get(MOVING_SINCE));
    let since = since.and_then(|text| text.parse::<Timestamp>().ok());
    since.map_or(0, |since| u64::try_from(context.now.duration_since(since).as_secs()).unwrap_or_default())
}

/// A namespace that moves as a whole finishes together: a ConfigMap must not leave before the pods that mount it.
fn with_namespace(
    placement_index: &PlacementIndex,
    context: &PlacementContext,
    level: Option<AnnotationLevel>,
    recorded: &[Target],
    next: MigrationPlan,
) -> MigrationPlan {
    if next.step != MigrationStep::Finished || level == Some(AnnotationLevel::Object) {
        return next;
    }
    match placement_index.blocks_migration(context.subject, recorded, context.policies) {
        Some(why) => {
            MigrationPlan { targets: recorded.to_vec(), step: MigrationStep::Waiting { on: vec![why] } }
        }
        None => next,
    }
}

/// A target is not left while the new ones lack capacity.
fn with_capacity_for_all(recorded: &[Target], plan: &DivisionPlan, next: MigrationPlan) -> MigrationPlan {
    let leaving = recorded.iter().find(|target| target.role == Role::Leaving);
    match leaving.filter(|_| next.step == MigrationStep::Finished && plan.pending > 0) {
        Some(_) => MigrationPlan {
            targets: recorded.to_vec(),
            step: MigrationStep::Waiting { on: vec![pending_message(plan)] },
        },
        None => next,
    }
}

/// The record with a decision, and whether it is the present one.
fn planned_record(
    context: &PlacementContext,
    spec: DistributionSpec,
    effective: Option<&EffectivePlacement>,
    step: &MigrationStep,
    is_placed: bool,
) -> (Distribution, bool) {
    let before = context.record.as_ref();
    let is_moving = spec.targets.iter().any(|target| target.role != Role::Steady);
    let since = before.and_then(|before| before.metadata.annotations.get(MOVING_SINCE));
    let since = match (is_moving, step) {
        (false, _) => None,
        (true, MigrationStep::Started) => Some(context.now.to_string()),
        (true, _) => since.cloned().or_else(|| Some(context.now.to_string())),
    };
    // A placement that could not be satisfied is not recorded as the one in effect, so that it is tried again.
    let fingerprint = match effective.filter(|_| is_placed) {
        Some(effective) => Some(effective.fingerprint()),
        None => before.and_then(|before| before.metadata.annotations.get(PLACEMENT_HASH)).cloned(),
    };
    let annotations =
        [(PLACEMENT_HASH, fingerprint), (MOVING_SINCE, since), (ESTIMATES, context.estimates.text())];
    let now = record::written(context.watched, context.object, before, spec, &annotations);
    let comparable = |record: &Distribution| {
        (
            record.spec.clone(),
            record.metadata.annotations.clone(),
            record.metadata.rest.get("ownerReferences").cloned(),
        )
    };
    match before {
        Some(before) if comparable(before) == comparable(&now) => (before.clone(), true),
        _ => (now, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::tests::{self as rows, picks, target_specs};
    use serde_json::json;

    /// A target of a StatefulSet was removed, and the division continued only what the other targets had. Their ranges slid
    /// down to ordinal 0, so all their pods were stopped and started again with other names and volumes.
    #[test]
    fn the_ordinals_of_a_removed_target_do_not_slide() {
        let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": { "replicas": 7 } });
        let record = rows::recorded(&[("a", 3), ("b", 2), ("c", 2)]);
        let continued = recorded_for_division(&record, &record[1..]);
        let spec = |len: u32, start: u32| json!({ "replicas": len, "ordinals": { "start": start } });
        let expected = [("b".to_owned(), spec(5, 0)), ("c".to_owned(), spec(2, 5))];
        assert_eq!(target_specs(&set, &picks(&[("b", 1), ("c", 1)]), continued), expected);
        assert!(recorded_for_division(&record, &[]).is_empty());
    }
}
