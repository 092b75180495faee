//! Writes that continue after their client has disconnected.
//!
//! A write of which the store has taken a part is finished: otherwise quotas would not count it, nothing would check it
//! against a namespace that is deleted at the same time, and its IP addresses would be released. A write of which the
//! store has nothing yet ends with its client. Controllers rely on that: one that has lost its lease must not write
//! later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Response, StatusCode};
use openapi::meta::status::Status;
use storage::{
    At, Boxed, Change, CommitError, Entry, Event, Expect, Key, Listing, Page, Range, ReadError, Revision,
    Store, Watch,
};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::Stack;
use super::context::RequestContext;
use crate::http::body::Body;
use crate::http::deadline;

/// How long a write may take whose client does not wait for it any more. The store is expected to answer long before.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);

/// The store of one write.
#[derive(Debug)]
pub(super) struct WriteStore {
    inner: Arc<dyn Store>,
    /// Exists while the client waits.
    client: Weak<()>,
    /// A part of the write is in the store, or may be.
    has_begun: AtomicBool,
}

impl Store for WriteStore {
    fn get<'a>(&'a self, key: &'a Key) -> Boxed<'a, Result<At<Option<Entry>>, ReadError>> {
        self.inner.get(key)
    }

    fn list(&self, range: Range, page: Page) -> Boxed<'_, Result<At<Listing>, ReadError>> {
        self.inner.list(range, page)
    }

    fn commit(&self, key: Key, expect: Expect, change: Change) -> Boxed<'_, Result<Event, CommitError>> {
        Box::pin(async move {
            if self.client.strong_count() == 0 && !self.has_begun.load(Ordering::Relaxed) {
                return Err(CommitError::Unavailable { reason: "the client has disconnected".to_owned() });
            }
            let committed = self.inner.commit(key, expect, change).await;
            if matches!(committed, Ok(_) | Err(CommitError::Unknown { .. })) {
                self.has_begun.store(true, Ordering::Relaxed);
            }
            committed
        })
    }

    fn watch(&self, range: Range, after: Revision) -> Boxed<'_, Result<Watch, ReadError>> {
        self.inner.watch(range, after)
    }

    fn compact(&self, through: Revision) -> Boxed<'_, Result<(), ReadError>> {
        self.inner.compact(through)
    }
}

impl Stack {
    /// Runs a write in a task of its own, and waits for it as long as the client does. If the client has disconnected,
    /// the audit log gets the result in another line.
    pub(super) async fn detach<F>(
        self: &Arc<Self>,
        context: &Arc<RequestContext>,
        write: impl FnOnce(WriteStore) -> F,
    ) -> Result<Response<Body>, Status>
    where
        F: Future<Output = Result<Response<Body>, Status>> + Send + 'static,
    {
        let client = Arc::new(());
        let write = write(WriteStore {
            inner: self.store.clone(),
            client: Arc::downgrade(&client),
            has_begun: AtomicBool::new(false),
        });
        let (sender, receiver) = oneshot::channel();
        let (stack, context) = (self.clone(), context.clone());
        let task = async move {
            let result = tokio::time::timeout(WRITE_TIMEOUT, write).await;
            let result = result.unwrap_or_else(|_| Err(deadline::exceeded()));
            let code =
                result.as_ref().map_or_else(|status| status.code, |response| response.status().as_u16());
            stack.note_result(
                &context,
                StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            );
            // The client may have disconnected.
            drop(sender.send(result));
        };
        self.writes.spawn(task.in_current_span());
        let result = receiver.await;
        drop(client);
        result.unwrap_or_else(|_| Err(Status::internal("the write ended unexpectedly")))
    }
}
