//! Writes planned mailbox objects.
//!
//! Every write names the version of the mailbox object it replaces, so a write from stale state is refused. A mailbox
//! that refuses an object does not keep the others from being written.

mod write;

use controller::remote::CallError;

use crate::context::Splitter;
use crate::placement::context::PlacementContext;
use crate::plan::{MailboxPlan, MailboxWrite};
pub(crate) use write::{delete, execute_write, update_namespace_labels};

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

/// Executes a plan.
pub(crate) async fn propagate(
    splitter: &Splitter,
    context: &PlacementContext<'_>,
    plan: MailboxPlan<'_>,
) -> Result<Propagation, CallError> {
    let (watched, subject) = (context.watched, context.subject);
    let mut propagation = Propagation { problems: plan.problems, ..Propagation::default() };
    for (mailbox_object, write) in &plan.writes {
        if matches!(write, MailboxWrite::Create(_)) && splitter.is_namespace_terminating(mailbox_object) {
            propagation.unfinished = true;
            continue;
        }
        match execute_write(splitter, watched, subject, mailbox_object, write).await {
            Err(error) if is_refused(&error) => {
                propagation.unfinished = true;
                propagation.problems.push((mailbox_object.name().to_owned(), error.to_string()));
            }
            wrote => propagation.wrote |= wrote?,
        }
    }
    for mailbox_object in plan.deletions {
        propagation.wrote |=
            delete(splitter, watched, subject, mailbox_object, "the cluster is no longer a target").await?;
    }
    Ok(propagation)
}
