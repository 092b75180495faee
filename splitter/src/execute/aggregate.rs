//! Writes the aggregated status of an object, and the results per target into its record.

use api::fleet::{Condition, DistributionStatus, Role, StatusRule, Target};
use api::meta::is_being_deleted;
use api::meta::time;
use controller::remote::{CallError, ObjectPath, Patch};
use serde_json::{Value, json};

use crate::context::Splitter;
use crate::execute::dependencies::TargetsByCluster;
use crate::execute::events;
use crate::execute::propagate::Problems;
use crate::execute::record;
use crate::placement::autoscaled;
use crate::placement::context::PlacementContext;
use crate::placement::decide::PlacementDecision;
use crate::placement::explain::sentence;
use crate::placement::migration::{DEADLINE_S, MigrationStep};
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::snapshot::{KindClass, ObjectRef, WatchedKind};
use crate::status::completed;
use crate::status::status_rule::CompiledStatusRule;
use crate::status::{self, AggregatedStatus, Report, UserObject, health};
use crate::transform::classes;

/// Aggregates the reports of the targets of a workload.
pub(crate) async fn aggregate_status(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    decided: &PlacementDecision,
    problems: &Problems,
) -> Result<(), CallError> {
    let now = time::now();
    let targets = mailbox_objects::at_targets(&context.mailbox_objects, &decided.record.spec.targets);
    let reports: Vec<Report> = indexed(
        targets.iter().map(|(target, mailbox_object)| context.report(target, mailbox_object)).collect(),
        decided,
    );
    let unsent = problems.first().map(|(cluster, problem)| format!("{cluster}: {problem}"));
    let missing = missing_classes(&targets);
    let user_object = UserObject {
        object: context.object,
        desired: match context.is_autoscaled() {
            true => Some(reports.iter().filter_map(|report| report.share).sum()),
            false => decided.plan.total,
        },
        is_duplicated: decided.rule.has_replicas()
            && decided.plan.total.is_none()
            && !context.is_autoscaled(),
        pending: decided.plan.pending,
        unplaced: decided.unplaced.as_deref().or(decided.pending_reason.as_deref()),
        unsent: unsent.as_deref(),
        missing: missing.as_deref(),
        now: &now,
    };
    let rule = rule(splitter, context.watched, context.subject);
    // A completed Job keeps its status, also when targets that reported it are gone.
    let reporting = targets.iter().filter(|(_, mailbox_object)| mailbox_object.object.is_some()).count();
    let is_over = completed::is_completed(context.object) && reporting < decided.record.spec.targets.len();
    let summary = match &rule {
        _ if is_over => AggregatedStatus::default(),
        // A rule with errors leaves the status unchanged. With one target, its exact status is copied without the
        // rule.
        Some(Err(errors)) if reports.len() > 1 => {
            AggregatedStatus { errors: errors.clone(), ..AggregatedStatus::default() }
        }
        Some(Ok(rule)) => status::aggregate(&user_object, &reports, Some(rule)),
        Some(Err(_)) | None => status::aggregate(&user_object, &reports, None),
    };
    write(splitter, context.watched, context.subject, context.object, &summary.status).await?;
    scale(splitter, context, &targets).await?;
    let status = status(context, decided, &reports, &targets, &summary, problems, &now);
    events::record_problems(splitter, context, &decided.record, &status).await?;
    record::report(splitter, context.subject, &decided.record, &status).await
}

/// The message about classes that mailbox objects name and their physical clusters lack.
fn missing_classes(targets: &[(&Target, &MailboxObject)]) -> Option<String> {
    let messages = targets.iter().filter(|(target, _)| mailbox_objects::is_staying(target)).filter_map(
        |(_, mailbox_object)| {
            let missing = classes::missing(mailbox_object.object.as_ref()?, &mailbox_object.member.object);
            (!missing.is_empty()).then(|| classes::missing_message(&missing, mailbox_object.name()))
        },
    );
    let messages: Vec<String> = messages.collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

/// Sets the first index of every target of a Job.
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
    let place = ObjectPath::new(&watched.kind, &subject.key.namespace, &subject.key.name).part("status");
    let change = json!([
        { "op": "test", "path": "/metadata/uid", "value": object["metadata"]["uid"] },
        { "op": "add", "path": "/status", "value": status },
    ]);
    let written = splitter.caches.server.within(subject.cluster()).patch(place, Patch::Json, &change).await?;
    splitter.own_writes.add(subject, &written);
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
    let Some(total) = autoscaled::downstream_total(context, targets) else { return Ok(()) };
    let PlacementContext { watched, subject, .. } = context;
    let place = ObjectPath::new(&watched.kind, &subject.key.namespace, &subject.key.name).part("scale");
    let change =
        json!({ "metadata": { "uid": context.object["metadata"]["uid"] }, "spec": { "replicas": total } });
    let written =
        splitter.caches.server.within(subject.cluster()).patch(place, Patch::Merge, &change).await?;
    splitter.own_writes.add(*subject, &written);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn status(
    context: &PlacementContext,
    decided: &PlacementDecision,
    reports: &[Report],
    targets: &[(&Target, &MailboxObject)],
    summary: &AggregatedStatus,
    problems: &Problems,
    now: &str,
) -> DistributionStatus {
    let before = decided.record.status.clone().unwrap_or_default();
    let rows: Vec<(Role, api::fleet::TargetReport)> = reports
        .iter()
        .zip(targets)
        .map(|(report, (target, mailbox_object))| {
            (target.role, health::target(report, context.object, mailbox_object.is_applied()))
        })
        .collect();
    let condition = |fields: (&str, &str, &str, String)| {
        Condition::since(&before.conditions, (fields.0, fields.1, fields.2, &fields.3), now)
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
    if let Some(pending_reason) = &decided.pending_reason {
        conditions.push(condition(("Complete", "False", "Pending", pending_reason.clone())));
    }
    if let Some((cluster, problem)) = problems.first() {
        conditions.push(condition(("Sent", "False", "CannotSend", format!("{cluster}: {problem}"))));
    }
    if let Some(missing) = missing_classes(targets) {
        conditions.push(condition((status::CLASSES_FOUND, "False", "ClassNotFound", missing)));
    }
    if let Some(error) = summary.errors.first() {
        let fields = (
            "StatusAggregated",
            "False",
            "InvalidExpression",
            crate::status::policy_errors::error_message(error),
        );
        conditions.push(condition(fields));
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
    mailbox_objects: &[MailboxObject],
    places: &TargetsByCluster,
) -> Result<(), CallError> {
    if !watched.has_status {
        return Ok(());
    }
    let now = time::now();
    let is_target = |mailbox_object: &&MailboxObject| {
        mailbox_object.is_nearest
            && mailbox_object.object.is_some()
            && places.contains_key(mailbox_object.name())
    };
    let reports: Vec<Report> = mailbox_objects
        .iter()
        .filter(is_target)
        .map(|mailbox_object| mailbox_object.report(&places[mailbox_object.name()]))
        .collect();
    let user_object = UserObject {
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
        status::aggregate(&user_object, &reports, None).status
    };
    write(splitter, watched, subject, object, &status).await
}
