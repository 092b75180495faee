//! From mailboxes to users: one status, and in the record what came of it where.

use api::fleet::{Condition, DistributionStatus, Role, StatusRule, Target};
use api::meta::is_being_deleted;
use api::meta::time;
use controller::remote::{CallError, Patch, Place};
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::division::autoscaled;
use crate::execute::dependencies::Places;
use crate::execute::events;
use crate::execute::propagate::Problems;
use crate::execute::record;
use crate::placement::context::Case;
use crate::placement::decide::Decided;
use crate::placement::explain::sentence;
use crate::placement::migration::Step;
use crate::snapshot::mailbox_objects::{self, Copy};
use crate::snapshot::{Class, Followed, Subject};
use crate::status::completed;
use crate::status::status_rule::ReadRule;
use crate::status::{self, Report, Summary, Whole, health};
use crate::transform::classes;

/// Sums up what the targets of an object report.
pub(crate) async fn gather(
    splitter: &Splitter,
    case: &Case<'_>,
    decided: &Decided,
    problems: &Problems,
) -> Result<(), CallError> {
    let now = time::now();
    let targets = mailbox_objects::at(&case.copies, &decided.record.spec.targets);
    let reports: Vec<Report> =
        indexed(targets.iter().map(|(target, copy)| case.report(target, copy)).collect(), decided);
    let unsent = problems.first().map(|(cluster, problem)| format!("{cluster}: {problem}"));
    let missing = missing_classes(&targets);
    let whole = Whole {
        object: case.object,
        desired: match case.is_autoscaled() {
            true => Some(reports.iter().filter_map(|report| report.share).sum()),
            false => decided.plan.total,
        },
        is_duplicated: decided.rule.has_replicas() && decided.plan.total.is_none() && !case.is_autoscaled(),
        pending: decided.plan.pending,
        unplaced: decided.unplaced.as_deref().or(decided.short.as_deref()),
        unsent: unsent.as_deref(),
        missing: missing.as_deref(),
        now: &now,
    };
    let rule = rule(splitter, case.followed, case.subject);
    // What has ended has said all it had to say, also when those are gone who said it.
    let is_heard = targets.iter().filter(|(_, copy)| copy.object.is_some()).count();
    let is_over = completed::is_ended(case.object) && is_heard < decided.record.spec.targets.len();
    let summary = match &rule {
        _ if is_over => Summary::default(),
        // What cannot be said is not said: the status stays as it is. What is exact needs no rule.
        Some(Err(mistakes)) if reports.len() > 1 => {
            Summary { mistakes: mistakes.clone(), ..Summary::default() }
        }
        Some(Ok(rule)) => status::summarize(&whole, &reports, Some(rule)),
        Some(Err(_)) | None => status::summarize(&whole, &reports, None),
    };
    write(splitter, case.followed, case.subject, case.object, &summary.status).await?;
    scale(splitter, case, &targets).await?;
    let status = status(case, decided, &reports, &targets, &summary, problems, &now);
    events::tell(splitter, case, decided.record.status.as_ref(), &status).await?;
    record::report(splitter, case.subject, &decided.record, &status).await
}

/// Which classes that the copies name are missing on their physical clusters, as a sentence.
fn missing_classes(targets: &[(&Target, &Copy)]) -> Option<String> {
    let told =
        targets.iter().filter(|(target, _)| mailbox_objects::is_staying(target)).filter_map(|(_, copy)| {
            let missing = classes::missing(copy.object.as_ref()?, &copy.member.object);
            (!missing.is_empty()).then(|| classes::told(&missing, copy.name()))
        });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Where the indexes of a target's part of a Job begin.
fn indexed<'a>(mut reports: Vec<Report<'a>>, decided: &Decided) -> Vec<Report<'a>> {
    let mut start = 0;
    for (cluster, share) in &decided.plan.shares {
        if let Some(report) = reports.iter_mut().find(|report| report.cluster == cluster) {
            report.index_start = start;
        }
        start += share;
    }
    reports
}

/// How several statuses of a custom kind become one, if somebody said so.
fn rule(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
) -> Option<Result<ReadRule, Vec<api::fleet::Mistake>>> {
    if followed.class != Class::Custom {
        return None;
    }
    let rules: Vec<StatusRule> = splitter.world.ours(&splitter.world.own.status_rules, subject.cluster());
    let is_for = |rule: &&StatusRule| {
        rule.spec.target.group == followed.kind.group && rule.spec.target.kind == followed.kind.name
    };
    rules.iter().find(is_for).map(|rule| ReadRule::read(&rule.spec))
}

/// Writes a status, if it is another than the object has.
async fn write(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
    status: &Value,
) -> Result<(), CallError> {
    let leaves = is_being_deleted(object);
    if status.is_null() || !followed.has_status || object.get("status") == Some(status) || leaves {
        return Ok(());
    }
    let place = Place::new(&followed.kind, &subject.key.namespace, &subject.key.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": object["metadata"]["uid"] },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let written = splitter.world.server.within(subject.cluster()).patch(place, Patch::Json, &change).await?;
    splitter.unseen.wrote(subject, &followed.view, subject.cluster(), &written);
    Ok(())
}

/// How many an autoscaler below made of it is how many there are to be, as if it had been scaled here: whoever compares what is
/// with what was wanted would otherwise wait for ever.
async fn scale(splitter: &Splitter, case: &Case<'_>, targets: &[(&Target, &Copy)]) -> Result<(), CallError> {
    let Some(made) = autoscaled::made(case, targets) else { return Ok(()) };
    let Case { followed, subject, .. } = case;
    let place = Place::new(&followed.kind, &subject.key.namespace, &subject.key.name).part("scale");
    let change =
        json!({ "metadata": { "uid": case.object["metadata"]["uid"] }, "spec": { "replicas": made } });
    let written = splitter.world.server.within(subject.cluster()).patch(place, Patch::Merge, &change).await?;
    splitter.unseen.wrote(subject, &followed.view, subject.cluster(), &written);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn status(
    case: &Case,
    decided: &Decided,
    reports: &[Report],
    targets: &[(&Target, &Copy)],
    summary: &Summary,
    problems: &Problems,
    now: &str,
) -> DistributionStatus {
    let before = decided.record.status.clone().unwrap_or_default();
    let rows: Vec<(Role, api::fleet::TargetReport)> = reports
        .iter()
        .zip(targets)
        .map(|(report, (target, copy))| (target.role, health::target(report, case.object, copy.is_applied())))
        .collect();
    let condition = |said: (&str, &str, &str, String)| {
        Condition::since(&before.conditions, (said.0, said.1, said.2, &said.3), now)
    };
    let runs = sentence(&decided.record.spec.targets);
    let placed = match (&decided.unplaced, decided.record.spec.targets.is_empty()) {
        (None, _) => ("Placed", "True", "Placed", runs),
        (Some(why), true) => ("Placed", "False", "Pending", why.clone()),
        (Some(why), false) => ("Placed", "True", "Held", format!("{runs}: {why}")),
    };
    let mut conditions = vec![condition(placed)];
    match &decided.step {
        Step::Wait { on } => conditions.push(condition(("Moving", "True", "Waiting", on.join("; ")))),
        Step::Overdue { on } => conditions.push(condition((
            "Moving",
            "True",
            "Overdue",
            format!("still not ready, so both places are kept: {}", on.join("; ")),
        ))),
        Step::Mark => conditions.push(condition(("Moving", "True", "Began", String::new()))),
        Step::Rest | Step::Finish => {}
    }
    if let Some(short) = &decided.short {
        conditions.push(condition(("Complete", "False", "Pending", short.clone())));
    }
    if let Some((cluster, problem)) = problems.first() {
        conditions.push(condition(("Sent", "False", "CannotSend", format!("{cluster}: {problem}"))));
    }
    if let Some(missing) = missing_classes(targets) {
        conditions.push(condition((status::CLASSES_FOUND, "False", "ClassNotFound", missing)));
    }
    if let Some(mistake) = summary.mistakes.first() {
        let said = ("Summarized", "False", "RuleMistaken", crate::status::policies::told(mistake));
        conditions.push(condition(said));
    }
    DistributionStatus {
        observed_generation: Some(case.generation()),
        conditions,
        counts: Some(health::counts(&rows)),
        verdicts: decided.decision.verdicts.clone(),
        targets: rows.into_iter().map(|(_, row)| row).collect(),
        disagreements: summary.disagreements.clone(),
    }
}

/// The status of something that goes along.
pub(crate) async fn follower(
    splitter: &Splitter,
    followed: &Followed,
    subject: &Subject,
    object: &Value,
    copies: &[Copy],
    places: &Places,
) -> Result<(), CallError> {
    if !followed.has_status {
        return Ok(());
    }
    let now = time::now();
    let there = |copy: &&Copy| copy.is_meant && copy.object.is_some() && places.contains_key(copy.name());
    let reports: Vec<Report> =
        copies.iter().filter(there).map(|copy| copy.report(&places[copy.name()])).collect();
    let whole = Whole {
        object,
        desired: None,
        is_duplicated: false,
        pending: 0,
        unplaced: None,
        unsent: None,
        missing: None,
        now: &now,
    };
    let status = if reports.is_empty() && object["kind"] != "PersistentVolumeClaim" {
        Value::Null
    } else {
        status::summarize(&whole, &reports, None).status
    };
    write(splitter, followed, subject, object, &status).await
}
