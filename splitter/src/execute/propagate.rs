//! From a record to mailboxes: the copies it says there are to be, and no others.
//!
//! ```text
//!   record ─► orders: which numbers and templates may change now ─► lower ─► written where it differs
//!                                                                └─► deleted where the record has no target
//! ```
//!
//! Every write says which version of the copy it replaces, so one that was decided on something old is refused.

mod permission;
mod target_writes;
mod write;

use api::fleet::{Distribution, Target};
use api::meta::pointer;
use api::names::{API_HOME, SCALED_BELOW, STANDS_FOR, TEMPLATE, TRUE};
use controller::remote::CallError;
use serde_json::{Value, json};

use crate::controller::Splitter;
use crate::execute::api_access;
use crate::placement::context::Case;
use crate::placement::decide::{Decided, readiness};
use crate::placement::migration::Readiness;
use crate::snapshot::mailbox_objects::{self, Copy};
use crate::transform::{self, Lowered};
use target_writes::Order;
pub(crate) use write::{Sent, delete, label, put};

/// What could not be done, by cluster.
pub(crate) type Problems = Vec<(String, String)>;

/// Whether anything was written, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    pub(crate) wrote: bool,
    /// A mailbox refused something, or cannot take it yet. That is no reason to leave the others as they are, but one to try
    /// again.
    pub(crate) unfinished: bool,
    pub(crate) problems: Problems,
}

/// Whether something was refused for what it is: not because of its time or place.
pub(crate) fn is_refused(error: &CallError) -> bool {
    matches!(error.code(), 400 | 413 | 422)
}

/// Makes the mailboxes as the record says, as far as that may be done now.
pub(crate) async fn spread(
    splitter: &Splitter,
    case: &Case<'_>,
    decided: &Decided,
) -> Result<Spread, CallError> {
    let mut done = Spread::default();
    let targets = &decided.record.spec.targets;
    for (target, copy) in mailbox_objects::at(&case.copies, targets) {
        let order = target_writes::of(case, decided, target, copy);
        match desired(case, decided, target, copy, order) {
            Ok(Some(_)) if copy.object.is_none() && splitter.is_emptied(copy) => done.unfinished = true,
            Ok(Some(wanted)) => match put(splitter, case.followed, case.subject, copy, wanted).await {
                Err(error) if is_refused(&error) => {
                    done.unfinished = true;
                    done.problems.push((target.cluster.clone(), error.to_string()));
                }
                sent => match sent? {
                    Sent::Unchanged => {}
                    Sent::Written => done.wrote = true,
                    Sent::Denied(why) => {
                        done.problems.push((target.cluster.clone(), why.told(&target.cluster)))
                    }
                },
            },
            Ok(None) => {}
            Err(problem) => done.problems.push((target.cluster.clone(), problem)),
        }
    }
    let readiness = readiness(case);
    // A physical cluster of the same name came nearer: what runs on the one that was meant before stays until it is ready.
    let is_awaited = |copy: &Copy| {
        let is_target = targets.iter().any(|target| target.cluster == copy.name());
        is_target && readiness.get(copy.name()) != Some(&Readiness::Ready)
    };
    let leftover = case
        .copies
        .iter()
        .filter(|copy| copy.object.is_some() && !is_target(&decided.record, copy))
        .filter(|copy| copy.is_meant || !is_awaited(copy));
    for copy in leftover {
        done.wrote |= delete(splitter, case.followed, case.subject, copy).await?;
    }
    Ok(done)
}

fn is_target(record: &Distribution, copy: &Copy) -> bool {
    record.spec.targets.iter().any(|target| copy.is_at(&target.cluster))
}

/// The copy as it should be now; none if it stays as it is.
fn desired(
    case: &Case,
    decided: &Decided,
    target: &Target,
    copy: &Copy,
    order: Order,
) -> Result<Option<Value>, String> {
    let (part, keeps_template) = match order {
        Order::Rest => return Ok(None),
        Order::Only(part) => {
            let Some(mut present) = copy.object.clone() else { return Ok(None) };
            part.apply(&mut present);
            // Nobody below has a say in that any more.
            if let Some(annotations) = present["metadata"]["annotations"].as_object_mut() {
                annotations.remove(SCALED_BELOW);
            }
            return Ok(Some(write::comparable(present)));
        }
        Order::Send { part, keeps_template } => (part, keeps_template),
    };
    let planned = decided.plan.part(&target.cluster).cloned().unwrap_or_default();
    let home = api_access::at(case.home.as_ref(), case.object, copy);
    let cluster = case.subject.cluster().to_string();
    let way = case.way(&cluster, copy, home.as_deref());
    let lowered = transform::lower(case.object, Some(&planned), &way).map_err(|error| error.to_string())?;
    let mut wanted = match lowered {
        Lowered::Sent(wanted) => wanted,
        Lowered::Stays(why) => return Err(why.to_owned()),
    };
    let mut template = match &copy.object {
        Some(_) => case.template_for(copy).map(str::to_owned),
        None => transform::template_there(case.object, &way).map_err(|error| error.to_string())?,
    };
    if keeps_template && let Some(present) = &copy.object {
        // The template it is to have is written as it always is: what a server filled in would make it another, and write it
        // for nothing.
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
    if let Some(home) = &home {
        wanted["metadata"]["annotations"][API_HOME] = json!(home).to_string().into();
    }
    wanted["metadata"]["annotations"][STANDS_FOR] = case.generation().to_string().into();
    let scaled = target_writes::scaled(case, decided, target, copy);
    if case.is_autoscaled() && scaled.is_none_or(|ask| ask.left_alone) {
        wanted["metadata"]["annotations"][SCALED_BELOW] = TRUE.into();
    }
    if let Some(template) = template {
        wanted["metadata"]["annotations"][TEMPLATE] = template.into();
    }
    Ok(Some(wanted))
}
