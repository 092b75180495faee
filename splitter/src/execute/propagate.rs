//! Writes the mailbox objects that a record asks for, and deletes all others.
//!
//! ```text
//!   record ─► target_writes: which replicas and templates may change now ─► transform ─► written if it differs
//!                                                                         └─► deleted if the cluster is no target
//! ```
//!
//! Every write names the version of the copy it replaces, so a write from stale state is refused.

mod permission;
mod target_writes;
mod write;

use api::fleet::{Distribution, Target};
use api::meta::pointer;
use api::names::{API_HOME, SCALED_DOWNSTREAM, SOURCE_GENERATION, TEMPLATE, TRUE};
use controller::remote::CallError;
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::execute::api_access;
use crate::placement::context::PlacementContext;
use crate::placement::decide::{PlacementDecision, readiness};
use crate::placement::migration::Readiness;
use crate::snapshot::mailbox_objects::{self, MailboxObject};
use crate::transform::{self, Transformed};
use target_writes::TargetWrite;
pub(crate) use write::{SendResult, delete, update_namespace_labels, write_object};

/// Why objects could not be sent, by cluster.
pub(crate) type Problems = Vec<(String, String)>;

/// The result of propagating an object.
#[derive(Debug, Default)]
pub(crate) struct Propagation {
    pub(crate) wrote: bool,
    /// A mailbox refused an object, or cannot take it yet. The other mailboxes are still written, and the object is
    /// retried.
    pub(crate) unfinished: bool,
    pub(crate) problems: Problems,
}

/// Whether the server refused the object itself, and not the time or place of the request.
pub(crate) fn is_refused(error: &CallError) -> bool {
    matches!(error.code(), 400 | 413 | 422)
}

/// Writes the mailbox objects that the record asks for, as far as they may change now, and deletes the others.
pub(crate) async fn propagate(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    decided: &PlacementDecision,
) -> Result<Propagation, CallError> {
    let mut done = Propagation::default();
    let targets = &decided.record.spec.targets;
    for (target, copy) in mailbox_objects::at_targets(&context.copies, targets) {
        let order = target_writes::of(context, decided, target, copy);
        match desired(context, decided, target, copy, order) {
            Ok(Some(_)) if copy.object.is_none() && splitter.is_namespace_terminating(copy) => {
                done.unfinished = true
            }
            Ok(Some(wanted)) => {
                match write_object(splitter, context.watched, context.subject, copy, wanted).await {
                    Err(error) if is_refused(&error) => {
                        done.unfinished = true;
                        done.problems.push((target.cluster.clone(), error.to_string()));
                    }
                    sent => match sent? {
                        SendResult::Unchanged => {}
                        SendResult::Written => done.wrote = true,
                        SendResult::Denied(why) => {
                            done.problems.push((target.cluster.clone(), why.told(&target.cluster)))
                        }
                    },
                }
            }
            Ok(None) => {}
            Err(problem) => done.problems.push((target.cluster.clone(), problem)),
        }
    }
    let readiness = readiness(context);
    // A nearer physical cluster of the same name was joined: the copy on the farther one stays until the new copy is
    // ready.
    let is_awaited = |copy: &MailboxObject| {
        let is_target = targets.iter().any(|target| target.cluster == copy.name());
        is_target && readiness.get(copy.name()) != Some(&Readiness::Ready)
    };
    let leftover = context
        .copies
        .iter()
        .filter(|copy| copy.object.is_some() && !is_target(&decided.record, copy))
        .filter(|copy| copy.is_nearest || !is_awaited(copy));
    for copy in leftover {
        done.wrote |=
            delete(splitter, context.watched, context.subject, copy, "the cluster is no longer a target")
                .await?;
    }
    Ok(done)
}

fn is_target(record: &Distribution, copy: &MailboxObject) -> bool {
    record.spec.targets.iter().any(|target| copy.is_at(&target.cluster))
}

/// The mailbox object as it should be now. None if it stays as it is.
fn desired(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    copy: &MailboxObject,
    order: TargetWrite,
) -> Result<Option<Value>, String> {
    let (part, keeps_template) = match order {
        TargetWrite::Skip => return Ok(None),
        TargetWrite::Fields(part) => {
            let Some(mut present) = copy.object.clone() else { return Ok(None) };
            part.apply(&mut present);
            // No autoscaler sets its replicas any more.
            if let Some(annotations) = present["metadata"]["annotations"].as_object_mut() {
                annotations.remove(SCALED_DOWNSTREAM);
            }
            return Ok(Some(write::comparable(present)));
        }
        TargetWrite::Full { part, keeps_template } => (part, keeps_template),
    };
    let planned = decided.plan.part(&target.cluster).cloned().unwrap_or_default();
    let api_access = api_access::at(context.api_access.as_ref(), context.object, copy);
    let cluster = context.subject.cluster().to_string();
    let destination = context.destination(&cluster, copy, api_access.as_deref());
    let transformed = transform::transform(context.object, Some(&planned), &destination)
        .map_err(|error| error.to_string())?;
    let mut wanted = match transformed {
        Transformed::Object(wanted) => wanted,
        Transformed::NotPropagated(why) => return Err(why.to_owned()),
    };
    let mut template = match &copy.object {
        Some(_) => context.template_for(copy).map(str::to_owned),
        None => {
            transform::template_hash_on(context.object, &destination).map_err(|error| error.to_string())?
        }
    };
    if keeps_template && let Some(present) = &copy.object {
        // The wanted template is written as it was transformed. With the defaults of the server it would differ, and be
        // written for nothing.
        let is_new = template.is_some() && copy.template() == template.as_deref();
        let kept: &[&str] = if is_new { &["/spec/strategy"] } else { &["/spec/template", "/spec/strategy"] };
        for field in kept {
            if let Some(value) = present.pointer(field) {
                let _ = pointer::set(&mut wanted, field, value.clone());
            }
        }
        template = copy.template().map(str::to_owned);
    }
    part.apply(&mut wanted);
    if let Some(api_access) = &api_access {
        wanted["metadata"]["annotations"][API_HOME] = json!(api_access).to_string().into();
    }
    wanted["metadata"]["annotations"][SOURCE_GENERATION] = context.generation().to_string().into();
    let scaled = target_writes::scaled(context, decided, target, copy);
    if context.is_autoscaled() && scaled.is_none_or(|ask| ask.left_alone) {
        wanted["metadata"]["annotations"][SCALED_DOWNSTREAM] = TRUE.into();
    }
    if let Some(template) = template {
        wanted["metadata"]["annotations"][TEMPLATE] = template.into();
    }
    Ok(Some(wanted))
}
