//! Reconciles one object: placed, projected, or neither.

use std::time::Duration;

use api::names::LOGICAL_CLUSTER;
use controller::queue::Outcome;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::events::record_event;
use super::{down, project};
use crate::mirror::AnyObject;
use crate::state::context::{ObjectId, ObjectPair, SyncerContext};
use crate::state::errors::{Retry, SyncError};

/// How often an object is reconciled if no event announces that the cause of its error was removed.
const RECONCILE_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn reconcile(context: &SyncerContext, id: ObjectId) -> Outcome {
    // Of the highest level, so that it names the object of a warning whatever is logged.
    let span = tracing::error_span!(
        "reconcile",
        kind = %id.kind.plural,
        object = %id.key,
        mailbox = context.settings.mailbox,
        logical_cluster = Empty,
        revision = Empty,
    );
    reconcile_object(context, id).instrument(span).await
}

/// Records the logical cluster and the revision of the mailbox object in the span of the reconcile.
fn record_mailbox_object(span: &Span, pair: &ObjectPair) {
    let Some(object) = &pair.mailbox else { return };
    if let Some(logical_cluster) = AnyObject(object).annotation(LOGICAL_CLUSTER) {
        span.record("logical_cluster", logical_cluster);
    }
    if let Some(revision) = object["metadata"]["resourceVersion"].as_str() {
        span.record("revision", revision);
    }
}

async fn reconcile_object(context: &SyncerContext, id: ObjectId) -> Outcome {
    let Some(pair) = context.pair(&id) else { return Outcome::Done };
    record_mailbox_object(&Span::current(), &pair);
    if context.is_orphan(&id) {
        down::reconcile_orphan(context, &id, &pair).await;
    }
    let reconciled = if pair.is_placed(&context.settings.mailbox) {
        down::reconcile(context, &id, pair).await
    } else if id.kind.is_projected() {
        project::reconcile(context, &id, pair).await
    } else {
        context.forget(&id);
        Ok(Outcome::Done)
    };
    match reconciled {
        Ok(outcome) => {
            if context.errors.clear(&id) {
                context.report_due.notify_one();
            }
            outcome
        }
        Err(SyncError { retry: Retry::Conflict, .. }) => Outcome::Failed,
        Err(error) => {
            report_error(context, &id, &error).await;
            match error.retry {
                Retry::Backoff | Retry::Conflict => Outcome::Failed,
                Retry::OnEvent => Outcome::Done,
                Retry::Periodically => Outcome::RequeueAfter(RECONCILE_EVERY),
            }
        }
    }
}

/// Reports an error: in the status of the physical cluster, and once as an Event.
async fn report_error(context: &SyncerContext, id: &ObjectId, error: &SyncError) {
    let is_new = context.errors.set(id, error);
    if is_new {
        context.report_due.notify_one();
    }
    tracing::debug!(?error, "the object is not in sync");
    if !is_new || !error.is_about_object() || !context.lease.leads() {
        return;
    }
    if let Some(object) = context.pair(id).and_then(|pair| pair.mailbox) {
        record_event(context, &object, error).await;
    }
}
