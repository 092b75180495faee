//! Writes the aggregated status of an object, and the results per target into its record.

use api::fleet::{Condition, DistributionStatus, Role, StatusRule, Target};
use api::meta::is_being_deleted;
use api::meta::time;
use controller::remote::{CallError, Patch, Place};
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::division::autoscaled;
use crate::execute::dependencies::TargetsByCluster;
use crate::execute::events;
use crate::execute::propagate::Problems;
use crate::execute::record;
use crate::placement::context::PlacementContext;
use crate::placement::decide::PlacementDecision;
use crate::placement::explain::sentence;
use crate::placement::migration::{DEADLINE_S, MigrationStep};
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};
use crate::status::completed;
use crate::status::status_rule::CompiledStatusRule;
use crate::status::{self, Report, Summary, UserObject, health};
use crate::transform::classes;

/// Aggregates the reports of the targets of a workload.
pub(crate) async fn aggregate_status(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    decided: &PlacementDecision,
    problems: &Problems,
) -> Result<(), CallError> {
    let now = time::now();
    let targets = mailbox_objects::at_targets(&context.copies, &decided.record.spec.targets);
    let reports: Vec<Report> =
        indexed(targets.iter().map(|(target, copy)| context.report(target, copy)).collect(), decided);
    let unsent = problems.first().map(|(cluster, problem)| format!("{cluster}: {problem}"));
    let missing = missing_classes(&targets);
    let whole = UserObject {
        object: context.object,
        desired: match context.is_autoscaled() {
            true => Some(reports.iter().filter_map(|report| report.share).sum()),
            false => decided.plan.total,
        },
        is_duplicated: decided.rule.has_replicas()
            && decided.plan.total.is_none()
            && !context.is_autoscaled(),
        pending: decided.plan.pending,
        unplaced: decided.unplaced.as_deref().or(decided.short.as_deref()),
        unsent: unsent.as_deref(),
        missing: missing.as_deref(),
        now: &now,
    };
    let rule = rule(splitter, context.watched, context.subject);
    // A completed Job keeps its status, also when targets that reported it are gone.
    let is_heard = targets.iter().filter(|(_, copy)| copy.object.is_some()).count();
    let is_over = completed::is_completed(context.object) && is_heard < decided.record.spec.targets.len();
    let summary = match &rule {
        _ if is_over => Summary::default(),
        // A rule with errors changes nothing: the status stays as it is. With one target, its exact status is copied
        // without the rule.
        Some(Err(errors)) if reports.len() > 1 => Summary { errors: errors.clone(), ..Summary::default() },
        Some(Ok(rule)) => status::aggregate(&whole, &reports, Some(rule)),
        Some(Err(_)) | None => status::aggregate(&whole, &reports, None),
    };
    write(splitter, context.watched, context.subject, context.object, &summary.status).await?;
    scale(splitter, context, &targets).await?;
    let status = status(context, decided, &reports, &targets, &summary, problems, &now);
    events::record_problems(splitter, context, decided.record.status.as_ref(), &status).await?;
    record::report(splitter, context.subject, &decided.record, &status).await
}

/// The classes that copies name and their physical clusters lack, as a message.
fn missing_classes(targets: &[(&Target, &MailboxObject)]) -> Option<String> {
    let told =
        targets.iter().filter(|(target, _)| mailbox_objects::is_staying(target)).filter_map(|(_, copy)| {
            let missing = classes::missing(copy.object.as_ref()?, &copy.member.object);
            (!missing.is_empty()).then(|| classes::told(&missing, copy.name()))
        });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Sets where the indexes of every target's part of a Job start.
fn indexed<'a>(mut reports: Vec<Report<'a>>, decided: &PlacementDecision) -> Vec<Report<'a>> {
    let mut start = 0;
    for (cluster, share) in &decided.plan.shares {
        if let Some(report) = reports.iter_mut().find(|report| report.cluster == cluster) {
            report.index_start = start;
        }
        start += share;
    }
    reports
}

/// The StatusRule for a custom kind, if there is one.
fn rule(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
) -> Option<Result<CompiledStatusRule, Vec<api::fleet::PolicyError>>> {
    if watched.class != KindClass::Custom {
        return None;
    }
    let rules: Vec<StatusRule> =
        splitter.caches.list_own(&splitter.caches.config.status_rules, subject.cluster());
    let is_for = |rule: &&StatusRule| {
        rule.spec.target.group == watched.kind.group && rule.spec.target.kind == watched.kind.name
    };
    rules.iter().find(is_for).map(|rule| CompiledStatusRule::read(&rule.spec))
}

/// Writes a status if it changed.
async fn write(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    status: &Value,
) -> Result<(), CallError> {
    let leaves = is_being_deleted(object);
    if status.is_null() || !watched.has_status || object.get("status") == Some(status) || leaves {
        return Ok(());
    }
    let place = Place::new(&watched.kind, &subject.key.namespace, &subject.key.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": object["metadata"]["uid"] },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let written = splitter.caches.server.within(subject.cluster()).patch(place, Patch::Json, &change).await?;
    splitter.expectations.expect_write(subject, &watched.view, subject.cluster(), &written);
    Ok(())
}

/// Writes the replicas that the autoscalers on the targets have set to `spec.replicas` of the user's object, as an
/// autoscaler in the logical cluster would. A client that compares desired with current replicas would otherwise wait
/// for ever.
async fn scale(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    targets: &[(&Target, &MailboxObject)],
) -> Result<(), CallError> {
    let Some(made) = autoscaled::made(context, targets) else { return Ok(()) };
    let PlacementContext { watched, subject, .. } = context;
    let place = Place::new(&watched.kind, &subject.key.namespace, &subject.key.name).part("scale");
    let change =
        json!({ "metadata": { "uid": context.object["metadata"]["uid"] }, "spec": { "replicas": made } });
    let written =
        splitter.caches.server.within(subject.cluster()).patch(place, Patch::Merge, &change).await?;
    splitter.expectations.expect_write(subject, &watched.view, subject.cluster(), &written);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn status(
    context: &PlacementContext,
    decided: &PlacementDecision,
    reports: &[Report],
    targets: &[(&Target, &MailboxObject)],
    summary: &Summary,
    problems: &Problems,
    now: &str,
) -> DistributionStatus {
    let before = decided.record.status.clone().unwrap_or_default();
    let rows: Vec<(Role, api::fleet::TargetReport)> = reports
        .iter()
        .zip(targets)
        .map(|(report, (target, copy))| {
            (target.role, health::target(report, context.object, copy.is_applied()))
        })
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
        MigrationStep::Waiting { on } => {
            conditions.push(condition(("Moving", "True", "Waiting", on.join("; "))))
        }
        MigrationStep::Overdue { on } => conditions.push(condition((
            "Moving",
            "True",
            "Overdue",
            format!("not ready after {DEADLINE_S} s, so the old targets are kept too: {}", on.join("; ")),
        ))),
        MigrationStep::Started => conditions.push(condition((
            "Moving",
            "True",
            "Started",
            "the move to new targets started".to_owned(),
        ))),
        MigrationStep::Settled | MigrationStep::Finished => {}
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
    if let Some(error) = summary.errors.first() {
        let said = ("StatusAggregated", "False", "InvalidExpression", crate::status::policies::told(error));
        conditions.push(condition(said));
    }
    DistributionStatus {
        observed_generation: Some(context.generation()),
        conditions,
        counts: Some(health::counts(&rows)),
        verdicts: decided.decision.verdicts.clone(),
        targets: rows.into_iter().map(|(_, row)| row).collect(),
        differences: summary.differences.clone(),
    }
}

/// Aggregates the status of a dependency.
pub(crate) async fn aggregate_dependency(
    splitter: &Splitter,
    watched: &WatchedKind,
    subject: &ObjectRef,
    object: &Value,
    copies: &[MailboxObject],
    places: &TargetsByCluster,
) -> Result<(), CallError> {
    if !watched.has_status {
        return Ok(());
    }
    let now = time::now();
    let there =
        |copy: &&MailboxObject| copy.is_nearest && copy.object.is_some() && places.contains_key(copy.name());
    let reports: Vec<Report> =
        copies.iter().filter(there).map(|copy| copy.report(&places[copy.name()])).collect();
    let whole = UserObject {
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
        status::aggregate(&whole, &reports, None).status
    };
    write(splitter, watched, subject, object, &status).await
}
