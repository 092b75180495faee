//! Where an object runs: everything that has a say is put together, the choice is made, and it is recorded.
//!
//! ```text
//!   annotations, Placements ─► wish ─┐
//!   PhysicalClusters ─► candidates ──┼─► choose ─► divide ─► move one step ─► record (one commit)
//!   the record so far ─► standing ───┘
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use api::fleet::{Chosen, Distribution, DistributionSpec, Division, GroupKind, Role, Target};
use api::names::{ESTIMATES, MOVING_SINCE, WISH};
use controller::remote::CallError;
use jiff::Timestamp;

use crate::controller::{Splitter, lock};
use crate::division;
use crate::division::autoscaled;
use crate::division::{Dividend, Plan, Rule};
use crate::execute::record;
use crate::placement::context::Case;
use crate::placement::estimate::Findings;
use crate::placement::migration::{self, Exclusive, Next, Readiness, Step};
use crate::placement::pod_security;
use crate::placement::policy::{self, Level, Wish};
use crate::placement::reservations::{self, Ledger};
use crate::placement::targets::{self, Candidate, Claim, Decision, Outcome, Pick, Standing, Work};
use crate::snapshot::Member;
use crate::snapshot::mailbox_objects::{self, Copy};
use crate::status;

/// What is so from now on.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) record: Distribution,
    pub(crate) plan: Plan,
    pub(crate) rule: Rule,
    pub(crate) decision: Decision,
    pub(crate) step: Step,
    /// Why it runs nowhere, or not where it is wanted.
    pub(crate) unplaced: Option<String>,
    /// Why there is no place for some of it.
    pub(crate) short: Option<String>,
    /// Whether parts of it must not run twice.
    pub(crate) exclusive: bool,
    /// When to look again, if nothing happens.
    pub(crate) again: Option<Duration>,
}

impl Decided {
    /// Whether there would be something to do if there were more room somewhere: it waits, or is only where it is because
    /// there was none.
    pub(crate) fn wants_room(&self) -> bool {
        let is_last_resort = self.decision.picks.iter().any(|pick| pick.tier > 0);
        self.unplaced.is_some() || self.plan.pending > 0 || is_last_resort
    }
}

/// Decides, and records it.
pub(crate) async fn decide(splitter: &Splitter, case: &Case<'_>) -> Result<Decided, CallError> {
    let findings = Findings::of(splitter, case);
    let Settled { spec, wish, plan, decision, step, unplaced, exclusive } = settle(splitter, case, &findings);
    let notes =
        Notes { wish: wish.as_ref(), step: &step, is_placed: unplaced.is_none(), findings: &findings };
    let record = recorded(splitter, case, spec, &notes).await?;
    let (rule, again, short) = (case.rule(), findings.again, short(&plan, &decision.picks));
    Ok(Decided { record, plan, rule, decision, step, unplaced, short, exclusive, again })
}

/// Why some of it has no place: what lets each of the chosen ones take no more.
fn short(plan: &Plan, picks: &[Pick]) -> Option<String> {
    if plan.pending == 0 {
        return None;
    }
    let said = without_place(plan);
    // In the order of their names: which came first may change with every report.
    let mut picks: Vec<&Pick> = picks.iter().collect();
    picks.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let why: Vec<String> = picks.into_iter().filter_map(Pick::most).collect();
    Some(if why.is_empty() { said } else { format!("{said}; {}", why.join("; ")) })
}

fn without_place(plan: &Plan) -> String {
    format!("{} of {} found no place", plan.pending, plan.total.unwrap_or_default())
}

/// What is to be recorded, and how it came about.
struct Settled {
    spec: DistributionSpec,
    /// None if what was said cannot be understood.
    wish: Option<Wish>,
    plan: Plan,
    decision: Decision,
    step: Step,
    unplaced: Option<String>,
    exclusive: bool,
}

/// The recorded targets of which something is left.
struct Before {
    /// Those that may be chosen again.
    standing: Vec<Target>,
    /// Those that may hold the object, and so stay in the record until others have taken over.
    held: Vec<Target>,
}

/// Decides, and writes down what that takes before anybody else decides: nobody counts on the same room.
fn settle(splitter: &Splitter, case: &Case, findings: &Findings) -> Settled {
    let (level, wish) = case.wish(splitter);
    let exclusive = case.exclusive(splitter);
    let standing = standing(splitter, case);
    let before = Before { held: held(case, exclusive, &standing), standing };
    let mut ledger = lock(&splitter.ledger);
    let (mut decision, mut plan) = planned(splitter, &mut ledger, case, &wish, findings, &before);
    if let Some(waiting) = findings.with_no_other_place(plan.pending).filter(|_| plan.pending > 0) {
        (decision, plan) = planned(splitter, &mut ledger, case, &wish, &waiting, &before);
    }
    let wish = wish.ok();
    let held = &before.held;
    let mut unplaced = match &decision.outcome {
        Outcome::Placed => None,
        Outcome::Held { why } | Outcome::Pending { why } => Some(why.clone()),
    };
    if let Some(why) = exclusive.and_then(|exclusive| rooted(exclusive, held, &decision.picks)) {
        let division = wish.as_ref().map(|wish| wish.spec.division).unwrap_or_default();
        plan = divided(case, division, &as_recorded(held), held);
        unplaced = Some(why);
    }
    let wanted: Vec<(String, Option<i64>)> = plan
        .parts
        .iter()
        .map(|(cluster, _)| (cluster.clone(), plan.shares.get(cluster).map(|share| i64::from(*share))))
        .collect();
    let readiness = readiness(case);
    let next = migration::next(held, &wanted, &readiness, moving_for(case));
    let next = with_its_namespace(splitter, case, level, held, next);
    let next = with_room_for_all(held, &plan, next);
    let spec = DistributionSpec {
        chosen_by: match &wish {
            Some(wish) => wish.by.clone(),
            None => case.record.as_ref().map_or_else(Chosen::default, |record| record.spec.chosen_by.clone()),
        },
        total: plan.total.map(i64::from),
        pending: i64::from(plan.pending),
        targets: next.targets,
        ..DistributionSpec::default()
    };
    let pods = case.pods(&spec.targets, &plan);
    if ledger.set(case.subject, reservations::asks(&case.each(), &spec.targets, &case.members, &pods)) {
        splitter.add_short();
    }
    ledger.mount(case.subject, &case.claims.keys().cloned().collect::<Vec<_>>(), &spec.targets);
    let (step, exclusive) = (next.step, exclusive.is_some());
    Settled { spec, wish, plan, decision, step, unplaced, exclusive }
}

/// Where it should run, and how much of it where.
fn planned(
    splitter: &Splitter,
    ledger: &mut Ledger,
    case: &Case,
    wish: &Result<Wish, policy::Unreadable>,
    findings: &Findings,
    before: &Before,
) -> (Decision, Plan) {
    let (decision, division) = match wish {
        Ok(wish) => (choose(splitter, ledger, case, wish, findings, &before.standing), wish.spec.division),
        Err(unreadable) => {
            let (why, division) = (unreadable.to_string(), Division::default());
            let decision = weighed(splitter, ledger, case, division, findings, |work, candidates| {
                targets::stay(&why, &work, candidates, &existing(case))
            });
            (decision, division)
        }
    };
    let plan = divided(case, division, &decision.picks, &before.held);
    (decision, plan)
}

/// Divides by the whole record, dropped targets included: the ordinals of a lost target go to another one, and those of the
/// others stay as they are. Where nothing is left, it is divided anew.
fn divided(case: &Case, division: Division, picks: &[Pick], held: &[Target]) -> Plan {
    let recorded = if held.is_empty() { &[] } else { case.recorded() };
    let (rule, key, replicas_at) = (case.rule(), case.key(), case.replicas_at());
    let scaled = autoscaled::total(case, picks);
    let dividend = Dividend { object: case.object, rule, replicas_at, division, key: &key, scaled };
    division::plan(&dividend, picks, recorded)
}

fn choose(
    splitter: &Splitter,
    ledger: &mut Ledger,
    case: &Case,
    wish: &Wish,
    findings: &Findings,
    standing: &[Target],
) -> Decision {
    let namespace = &case.subject.key.namespace;
    let by_default = *wish == Wish::default_choice();
    let beside = by_default.then(|| ledger.default_of(case.subject.cluster(), namespace)).flatten();
    let own = case.key();
    // Whoever decides nothing decides it for the whole namespace.
    let key = if by_default { namespace } else { &own };
    let under = case.record.as_ref().and_then(|record| record.metadata.annotations.get(WISH));
    let standing = Standing { targets: standing, under: under.map(String::as_str) };
    let decision = weighed(splitter, ledger, case, wish.spec.division, findings, |work, candidates| {
        let work = Work { key, beside: beside.as_deref(), ..work };
        targets::choose(wish, &work, candidates, &standing)
    });
    if by_default && let Some(pick) = decision.picks.first() {
        ledger.set_default(case.subject.cluster(), namespace, &pick.cluster);
    }
    decision
}

/// The recorded targets that stay unless something moves them. A target to which nothing was sent holds nothing: if its
/// physical cluster was removed, may not be used, is dedicated to another logical cluster or does not answer, the target is
/// not chosen again.
fn standing(splitter: &Splitter, case: &Case) -> Vec<Target> {
    let path = splitter.world.clusters().path(case.subject.cluster());
    let is_dedicated_elsewhere = |member: &Member| {
        let to = member.object.spec.dedicated_to.as_deref();
        to.is_some_and(|to| path.as_ref().is_none_or(|path| path.as_str() != to))
    };
    let is_sent =
        |target: &Target| case.copies.iter().any(|copy| copy.is_at(&target.cluster) && copy.object.is_some());
    let is_open = |target: &Target| {
        let member = case.members.iter().find(|member| member.name() == target.cluster);
        member.is_some_and(|member| {
            let is_granted = !case.refused.contains(&(member.home, member.name().to_owned()));
            member.is_ready() && is_granted && !is_dedicated_elsewhere(member)
        })
    };
    case.recorded().iter().filter(|target| is_sent(target) || is_open(target)).cloned().collect()
}

/// The recorded targets that may hold the object. Dropped from the record are those that hold nothing for certain: a removed
/// physical cluster, or one that does not stand. A target is kept while the mailbox of its physical cluster is not known, and
/// while the object still runs on a former physical cluster of the same name.
///
/// Some records stay whole. Without its record a Job that has ended would begin again elsewhere, a pod would run twice, and a
/// workload would begin with an empty volume. A Job of which some targets are left keeps the others, because the indexes of a
/// running part cannot be changed.
fn held(case: &Case, exclusive: Option<Exclusive>, standing: &[Target]) -> Vec<Target> {
    let is_on_former = |target: &Target| {
        let mut former = case.copies.iter().filter(|copy| !copy.is_meant && copy.object.is_some());
        former.any(|copy| copy.member.name() == target.cluster)
    };
    let is_unknown = |target: &Target| {
        let mut members = case.members.iter();
        members.any(|member| member.name() == target.cluster && member.mailbox().is_none())
    };
    let is_held = |target: &&Target| standing.contains(target) || is_on_former(target) || is_unknown(target);
    let held: Vec<Target> = case.recorded().iter().filter(is_held).cloned().collect();
    match exclusive {
        Some(Exclusive::EndedJob | Exclusive::BarePod | Exclusive::Volume) => case.recorded().to_vec(),
        Some(Exclusive::RunningJob) if !held.is_empty() => case.recorded().to_vec(),
        _ => held,
    }
}

/// The recorded targets whose physical clusters exist.
fn existing(case: &Case) -> Vec<Target> {
    let exists = |target: &&Target| case.members.iter().any(|member| member.name() == target.cluster);
    case.recorded().iter().filter(exists).cloned().collect()
}

/// What is to be placed, and all physical clusters with what is known about them, for whoever decides.
fn weighed(
    splitter: &Splitter,
    ledger: &Ledger,
    case: &Case,
    division: Division,
    findings: &Findings,
    decides: impl FnOnce(Work, &[Candidate]) -> Decision,
) -> Decision {
    let path = splitter.world.clusters().path(case.subject.cluster());
    let path = path.map(|path| path.to_string()).unwrap_or_default();
    let kind = &case.followed.kind;
    let kinds = [GroupKind { group: kind.group.clone(), kind: kind.name.clone() }];
    let work = Work {
        key: &case.key(),
        logical_cluster: &path,
        kinds: &kinds,
        violations: &pod_security::violations(case.object),
        each: case.each(),
        replicas: case.replicas(case.rule()),
        extent: case.extent(division),
        beside: None,
    };
    let candidates: Vec<Candidate> = case
        .members
        .iter()
        .map(|member| Candidate {
            estimate: findings.fits(member.name()),
            waiting: findings.waiting(member.name()),
            circular: splitter.world.circle(member),
            ..candidate(ledger, case, member)
        })
        .collect();
    decides(work, &candidates)
}

fn candidate<'a>(ledger: &Ledger, case: &Case, member: &'a Member) -> Candidate<'a> {
    let name = (member.home, member.name().to_owned());
    Candidate {
        usable: !case.refused.contains(&name),
        taken: ledger.taken_from(case.subject, &name),
        namespace: mailbox_objects::namespace_there(
            member,
            case.subject.cluster(),
            &case.subject.key.namespace,
        ),
        apart_from: apart_from(ledger, case, member.name()),
        ..Candidate::new(&member.object)
    }
}

/// A claim whose data is not on a cluster. It is where it was sent or, until it is sent, where somebody else is to run who
/// mounts it.
fn apart_from(ledger: &Ledger, case: &Case, cluster: &str) -> Option<Claim> {
    case.claims.iter().find_map(|(name, there)| {
        let promised = || ledger.mounted(case.subject, name);
        let places = if there.is_empty() { promised() } else { there.clone() };
        let at = places.first().filter(|_| !places.contains(cluster))?;
        Some(Claim { name: name.clone(), at: at.clone() })
    })
}

/// What stays where it is because it cannot run in two places and cannot be stopped in one, and why.
fn rooted(exclusive: Exclusive, recorded: &[Target], picks: &[Pick]) -> Option<String> {
    let leaves = recorded
        .iter()
        .find(|target| {
            mailbox_objects::is_staying(target) && !picks.iter().any(|pick| pick.cluster == target.cluster)
        })
        .filter(|_| !picks.is_empty())?;
    let why = match exclusive {
        Exclusive::Recreate | Exclusive::Ordinals => return None,
        Exclusive::BarePod => "a pod cannot be moved; delete it and create it again",
        Exclusive::RunningJob => "it is running, and would begin again elsewhere",
        Exclusive::EndedJob => "it has ended, and would begin again elsewhere",
        Exclusive::Volume => "it has a volume that can be mounted in one place only, and its data is there",
    };
    Some(format!("it stays on {}: {why}", leaves.cluster))
}

/// Where it is, as if that were wanted.
fn as_recorded(recorded: &[Target]) -> Vec<Pick> {
    let staying = recorded.iter().filter(|target| mailbox_objects::is_staying(target));
    let pick = |target: &Target| {
        let weight = target.share.and_then(|share| u64::try_from(share).ok()).unwrap_or_default().max(1);
        Pick { weight, held: None, ..targets::kept(target) }
    };
    staying.map(pick).collect()
}

/// How it is at each target, as seen after the record was made.
pub(crate) fn readiness(case: &Case) -> BTreeMap<String, Readiness> {
    let one = |(target, copy): (&Target, &Copy)| {
        let readiness = match (&copy.object, copy.is_applied() && copy.member.is_ready()) {
            (None, _) => Readiness::Unready { why: "not sent yet".to_owned() },
            (Some(_), false) => Readiness::Unknown,
            (Some(object), true) => {
                let report = case.report(target, copy);
                let number = case.wanted_of(copy);
                let share = target.share.and_then(|share| u32::try_from(share).ok());
                match status::health::of(&report, object) {
                    _ if case.rule() == Rule::Replicas && share.is_some() && number < share => {
                        Readiness::Unready {
                            why: format!("{} of {} asked for", number.unwrap_or(0), share.unwrap_or(0)),
                        }
                    }
                    (api::fleet::Health::Available, _) => Readiness::Ready,
                    (_, why) => Readiness::Unready { why },
                }
            }
        };
        (target.cluster.clone(), readiness)
    };
    mailbox_objects::at(&case.copies, case.recorded()).into_iter().map(one).collect()
}

fn moving_for(case: &Case) -> u64 {
    let since = case.record.as_ref().and_then(|record| record.metadata.annotations.get(MOVING_SINCE));
    let since = since.and_then(|text| text.parse::<Timestamp>().ok());
    since.map_or(0, |since| {
        u64::try_from(Timestamp::now().duration_since(since).as_secs()).unwrap_or_default()
    })
}

/// What the whole namespace is moved by is finished when all of it is ready: a ConfigMap must not leave before what mounts it.
fn with_its_namespace(
    splitter: &Splitter,
    case: &Case,
    level: Option<Level>,
    recorded: &[Target],
    next: Next,
) -> Next {
    if next.step != Step::Finish || level == Some(Level::Object) {
        return next;
    }
    let arriving: Vec<&str> = recorded
        .iter()
        .filter(|target| target.role == Role::Arriving)
        .map(|target| target.cluster.as_str())
        .collect();
    let book = lock(&splitter.book);
    let mut others = book.within(case.subject.cluster(), &case.subject.key.namespace);
    let late = others.find_map(|(other, entry)| {
        let at = arriving.iter().find(|cluster| other != case.subject && entry.is_awaited_at(cluster))?;
        Some(format!("{at}: {} {} is not ready there", entry.kind, other.key.name))
    });
    match late {
        Some(late) => Next { targets: recorded.to_vec(), step: Step::Wait { on: vec![late] } },
        None => next,
    }
}

/// Nothing leaves for places that have no room for all of it.
fn with_room_for_all(recorded: &[Target], plan: &Plan, next: Next) -> Next {
    let leaves = recorded.iter().find(|target| target.role == Role::Leaving);
    match leaves.filter(|_| next.step == Step::Finish && plan.pending > 0) {
        Some(_) => Next { targets: recorded.to_vec(), step: Step::Wait { on: vec![without_place(plan)] } },
        None => next,
    }
}

/// What is written down beside a decision.
struct Notes<'a> {
    wish: Option<&'a Wish>,
    step: &'a Step,
    is_placed: bool,
    findings: &'a Findings,
}

/// The record as it is from now on; written if it is another.
async fn recorded(
    splitter: &Splitter,
    case: &Case<'_>,
    spec: DistributionSpec,
    notes: &Notes<'_>,
) -> Result<Distribution, CallError> {
    let Notes { wish, step, is_placed, findings } = notes;
    let before = case.record.as_ref();
    let is_moving = spec.targets.iter().any(|target| target.role != Role::Steady);
    let since = before.and_then(|before| before.metadata.annotations.get(MOVING_SINCE));
    let since = match (is_moving, step) {
        (false, _) => None,
        (true, Step::Mark) => Some(Timestamp::now().to_string()),
        (true, _) => since.cloned().or_else(|| Some(Timestamp::now().to_string())),
    };
    // What could not be followed is not what it was decided under: it is tried again.
    let under = match wish.filter(|_| *is_placed) {
        Some(wish) => Some(wish.fingerprint()),
        None => before.and_then(|before| before.metadata.annotations.get(WISH)).cloned(),
    };
    let annotations = [(WISH, under), (MOVING_SINCE, since), (ESTIMATES, findings.text())];
    let now = record::written(case.followed, case.object, before, spec, &annotations);
    let without_mark = |record: &Distribution| {
        let mut annotations = record.metadata.annotations.clone();
        annotations.remove(api::names::LOGICAL_CLUSTER);
        (record.spec.clone(), annotations, record.metadata.rest.get("ownerReferences").cloned())
    };
    match before {
        Some(before) if without_mark(before) == without_mark(&now) => Ok(before.clone()),
        _ => record::commit(splitter, case.subject, &now).await,
    }
}
