//! Bounds the part of a response that waits for its client.
//!
//! hyper buffers as much of a body as the largest request head is long before it checks whether the client reads any of
//! it; in HTTP/2 it buffers up to three chunks. So a body waits until its last chunk has gone to TLS, because then
//! hyper has read all of it. Each response waits for itself: in HTTP/2 other responses on the same connection may
//! proceed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use futures::task::AtomicWaker;

/// The backlog of one response.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    is_waiting: AtomicBool,
    body: AtomicWaker,
}

impl Backlog {
    /// Waits until the body may produce the next chunk.
    pub(super) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = || !self.is_waiting.load(Ordering::Acquire);
        if is_ready() {
            return Poll::Ready(());
        }
        self.body.register(context.waker());
        // The chunk may have been sent in between.
        if is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Wraps a chunk of the body. The next chunk waits until this one is sent.
    pub(super) fn chunk(self: &Arc<Self>, bytes: Bytes) -> TrackedChunk {
        let backlog = (!bytes.is_empty()).then(|| self.clone());
        self.is_waiting.store(backlog.is_some(), Ordering::Relaxed);
        TrackedChunk { bytes, backlog }
    }

    fn went_out(&self) {
        self.is_waiting.store(false, Ordering::Release);
        self.body.wake();
    }
}

/// A chunk that releases its bytes once they are read: HTTP/2 keeps what it has written until it writes more.
#[derive(Debug)]
pub(super) struct TrackedChunk {
    bytes: Bytes,
    backlog: Option<Arc<Backlog>>,
}

impl TrackedChunk {
    fn end(&mut self) {
        self.bytes = Bytes::new();
        if let Some(backlog) = self.backlog.take() {
            backlog.went_out();
        }
    }
}

impl Buf for TrackedChunk {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if self.bytes.is_empty() {
            self.end();
        }
    }
}

impl Drop for TrackedChunk {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_body_waits_until_its_last_chunk_is_sent() {
        let (backlog, context) = (Arc::new(Backlog::default()), Context::from_waker(Waker::noop()));
        let is_ready = || backlog.poll_ready(&context).is_ready();
        assert!(is_ready());
        let bytes = Bytes::from(vec![0; 100]);
        let mut chunk = backlog.chunk(bytes.clone());
        chunk.advance(99);
        assert!(!is_ready() && !bytes.is_unique());
        chunk.advance(1);
        assert!(is_ready() && bytes.is_unique());
        // Dropping a chunk that was sent does not release the next one.
        let next = backlog.chunk(bytes);
        drop(chunk);
        assert!(!is_ready());
        // A dropped chunk is not sent, and the body does not wait for it.
        drop(next);
        assert!(is_ready());
        let _nothing = backlog.chunk(Bytes::new());
        assert!(is_ready());
    }
}
