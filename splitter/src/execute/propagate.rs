//! Writes the mailbox objects that a record requires, and deletes all others.
//!
//! ```text
//!   record ─► target_writes: which replicas and templates may change now ─► transform ─► written if it differs
//!                                                                         └─► deleted if the cluster is no target
//! ```
//!
//! Every write names the version of the mailbox object it replaces, so a write from stale state is refused.

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

/// Writes the mailbox objects that the record requires, as far as they may change now, and deletes the others.
pub(crate) async fn propagate(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    decided: &PlacementDecision,
) -> Result<Propagation, CallError> {
    let mut propagation = Propagation::default();
    let targets = &decided.record.spec.targets;
    for (target, mailbox_object) in mailbox_objects::at_targets(&context.mailbox_objects, targets) {
        let target_write = target_writes::of(context, decided, target, mailbox_object);
        match desired_object(context, decided, target, mailbox_object, target_write) {
            Ok(Some(_))
                if mailbox_object.object.is_none() && splitter.is_namespace_terminating(mailbox_object) =>
            {
                propagation.unfinished = true
            }
            Ok(Some(desired)) => {
                match write_object(splitter, context.watched, context.subject, mailbox_object, desired).await
                {
                    Err(error) if is_refused(&error) => {
                        propagation.unfinished = true;
                        propagation.problems.push((target.cluster.clone(), error.to_string()));
                    }
                    sent => match sent? {
                        SendResult::Unchanged => {}
                        SendResult::Written => propagation.wrote = true,
                        SendResult::Denied(why) => propagation
                            .problems
                            .push((target.cluster.clone(), why.message_with_remedy(&target.cluster))),
                    },
                }
            }
            Ok(None) => {}
            Err(problem) => propagation.problems.push((target.cluster.clone(), problem)),
        }
    }
    let readiness = readiness(context);
    // A nearer physical cluster of the same name was joined: the object on the farther one is kept until the
    // new one is ready.
    let is_awaited = |mailbox_object: &MailboxObject| {
        let is_target = targets.iter().any(|target| target.cluster == mailbox_object.name());
        is_target && readiness.get(mailbox_object.name()) != Some(&Readiness::Ready)
    };
    let leftover = context
        .mailbox_objects
        .iter()
        .filter(|mailbox_object| {
            mailbox_object.object.is_some() && !is_target(&decided.record, mailbox_object)
        })
        .filter(|mailbox_object| mailbox_object.is_nearest || !is_awaited(mailbox_object));
    for mailbox_object in leftover {
        propagation.wrote |= delete(
            splitter,
            context.watched,
            context.subject,
            mailbox_object,
            "the cluster is no longer a target",
        )
        .await?;
    }
    Ok(propagation)
}

fn is_target(record: &Distribution, mailbox_object: &MailboxObject) -> bool {
    record.spec.targets.iter().any(|target| mailbox_object.is_at(&target.cluster))
}

/// The desired mailbox object. None if it is not changed now.
fn desired_object(
    context: &PlacementContext,
    decided: &PlacementDecision,
    target: &Target,
    mailbox_object: &MailboxObject,
    target_write: TargetWrite,
) -> Result<Option<Value>, String> {
    let (patch, keeps_template) = match target_write {
        TargetWrite::Skip => return Ok(None),
        TargetWrite::Fields(patch) => {
            let Some(mut present) = mailbox_object.object.clone() else { return Ok(None) };
            patch.apply(&mut present);
            // No autoscaler sets its replicas any more.
            if let Some(annotations) = present["metadata"]["annotations"].as_object_mut() {
                annotations.remove(SCALED_DOWNSTREAM);
            }
            return Ok(Some(write::comparable(present)));
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
    let scaled = target_writes::scaled(context, decided, target, mailbox_object);
    if context.is_autoscaled() && scaled.is_none_or(|request| request.by_autoscaler) {
        desired["metadata"]["annotations"][SCALED_DOWNSTREAM] = TRUE.into();
    }
    if let Some(template) = template {
        desired["metadata"]["annotations"][TEMPLATE] = template.into();
    }
    Ok(Some(desired))
}
