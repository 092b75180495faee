//! The mailbox objects of a workload.

use api::fleet::{Distribution, Target};
use api::meta::pointer;
use api::names::{API_HOME, SCALED_DOWNSTREAM, SOURCE_GENERATION, TEMPLATE, TRUE};
use serde_json::{Value, json};

use super::mailbox_write::{MailboxWrite, comparable, plan_mailbox_write};
use super::target_writes::{TargetPlanner, TargetWrite};
use crate::placement::api_access;
use crate::placement::context::PlacementContext;
use crate::placement::decide::PlacementDecision;
use crate::placement::migration::Readiness;
use crate::snapshot::mailbox_objects::MailboxObject;
use crate::transform::{self, Transformed};

/// The writes to all mailboxes.
#[derive(Debug, Default)]
pub(crate) struct MailboxPlan<'a> {
    /// In the order of the record.
    pub(crate) writes: Vec<(&'a MailboxObject, MailboxWrite)>,
    /// Objects on physical clusters that are no targets any more.
    pub(crate) deletions: Vec<&'a MailboxObject>,
    /// Why objects cannot be sent, by cluster.
    pub(crate) problems: Vec<(String, String)>,
}

/// Plans the mailbox objects that a decision requires, as far as they may change now, and the deletion of the others.
pub(crate) fn plan_mailboxes<'a>(
    context: &'a PlacementContext<'_>,
    decided: &PlacementDecision,
) -> MailboxPlan<'a> {
    let mut plan = MailboxPlan::default();
    let targets = &decided.record.spec.targets;
    let planner = TargetPlanner::new(context, decided);
    for target in targets {
        let Some(mailbox_object) = context.mailbox_objects.iter().find(|one| one.is_at(&target.cluster))
        else {
            continue;
        };
        match desired_object(&planner, context, decided, target, mailbox_object) {
            Ok(None) => {}
            Ok(Some(desired)) => {
                let write =
                    plan_mailbox_write(&context.watched.kind, mailbox_object, desired, &context.permissions);
                if let MailboxWrite::Denied(why) = &write {
                    plan.problems.push((target.cluster.clone(), why.message_with_remedy(&target.cluster)));
                }
                plan.writes.push((mailbox_object, write));
            }
            Err(problem) => plan.problems.push((target.cluster.clone(), problem)),
        }
    }
    // A nearer physical cluster of the same name was joined: the object on the farther one is kept until the
    // new one is ready.
    let is_awaited = |mailbox_object: &MailboxObject| {
        let is_target = targets.iter().any(|target| target.cluster == mailbox_object.name());
        is_target && context.readiness.get(mailbox_object.name()) != Some(&Readiness::Ready)
    };
    let leftover = context
        .mailbox_objects
        .iter()
        .filter(|mailbox_object| {
            mailbox_object.object.is_some() && !is_target(&decided.record, mailbox_object)
        })
        .filter(|mailbox_object| mailbox_object.is_nearest || !is_awaited(mailbox_object));
    plan.deletions.extend(leftover);
    plan
}

fn is_target(record: &Distribution, mailbox_object: &MailboxObject) -> bool {
    record.spec.targets.iter().any(|target| mailbox_object.is_at(&target.cluster))
}

/// The desired mailbox object. None if it is not changed now.
fn desired_object(
    planner: &TargetPlanner,
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    mailbox_object: &MailboxObject,
) -> Result<Option<Value>, String> {
    let (patch, keeps_template) = match planner.of(target, mailbox_object) {
        TargetWrite::Skip => return Ok(None),
        TargetWrite::Fields(patch) => {
            let Some(mut present) = mailbox_object.object.clone() else { return Ok(None) };
            patch.apply(&mut present);
            // No autoscaler sets its replicas any more.
            if let Some(annotations) = present["metadata"]["annotations"].as_object_mut() {
                annotations.remove(SCALED_DOWNSTREAM);
            }
            return Ok(Some(comparable(present)));
        }
        TargetWrite::Full { patch, keeps_template } => (patch, keeps_template),
    };
    let planned = decided.plan.patch(&target.cluster).cloned().unwrap_or_default();
    let api_access = api_access::at(context.api_access.as_ref(), context.object, mailbox_object);
    let cluster = context.subject.cluster().to_string();
    let destination = context.destination(&cluster, mailbox_object, api_access.as_deref());
    let transformed = transform::transform(context.object, Some(&planned), &destination)
        .map_err(|error| error.to_string())?;
    let mut desired = match transformed {
        Transformed::Object(desired) => desired,
        Transformed::NotPropagated(why) => return Err(why.to_owned()),
    };
    let mut template = match &mailbox_object.object {
        Some(_) => context.template_for(mailbox_object).map(str::to_owned),
        None => {
            transform::template_hash_on(context.object, &destination).map_err(|error| error.to_string())?
        }
    };
    if keeps_template && let Some(present) = &mailbox_object.object {
        // The desired template is written as it was transformed. With the defaults of the server it would differ, and
        // cause a needless write.
        let is_new = template.is_some() && mailbox_object.template() == template.as_deref();
        let kept: &[&str] = if is_new { &["/spec/strategy"] } else { &["/spec/template", "/spec/strategy"] };
        for field in kept {
            if let Some(value) = present.pointer(field) {
                let _ = pointer::set(&mut desired, field, value.clone());
            }
        }
        template = mailbox_object.template().map(str::to_owned);
    }
    patch.apply(&mut desired);
    if let Some(api_access) = &api_access {
        desired["metadata"]["annotations"][API_HOME] = json!(api_access).to_string().into();
    }
    desired["metadata"]["annotations"][SOURCE_GENERATION] = context.generation().to_string().into();
    let scaled = planner.scaled(target, mailbox_object);
    if context.is_autoscaled() && scaled.is_none_or(|request| request.by_autoscaler) {
        desired["metadata"]["annotations"][SCALED_DOWNSTREAM] = TRUE.into();
    }
    if let Some(template) = template {
        desired["metadata"]["annotations"][TEMPLATE] = template.into();
    }
    Ok(Some(desired))
}
