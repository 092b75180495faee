//! How much of an answer waits for a client that speaks HTTP/1.1.
//!
//! hyper takes as much of a body as the largest head of a request is long before it looks whether the client reads any of
//! it, some 400 KB. So a body is asked to wait until its last piece has gone out. In HTTP/2 there is a setting for
//! that.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

/// Of one connection, which has one answer at a time.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Bytes of the body that hyper has and TLS has not. Heads and the framing of chunks are not counted when they are
    /// taken and are when they are written, so this can be a little less than there are.
    waiting: AtomicUsize,
    body: AtomicWaker,
}

impl Backlog {
    /// Bytes of a body were taken.
    pub(super) fn took(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes were written.
    pub(super) fn wrote(&self, bytes: usize) {
        let left = |waiting: usize| Some(waiting.saturating_sub(bytes));
        let _ = self.waiting.fetch_update(Ordering::Release, Ordering::Relaxed, left);
        self.body.wake();
    }

    /// Whether the body may go on.
    pub(super) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        let is_ready = || self.waiting.load(Ordering::Acquire) == 0;
        if is_ready() {
            return Poll::Ready(());
        }
        self.body.register(context.waker());
        // Something may have been written in between.
        if is_ready() { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_body_waits_until_what_was_taken_of_it_has_gone_out() {
        let (backlog, context) = (Backlog::default(), Context::from_waker(Waker::noop()));
        assert!(backlog.poll_ready(&context).is_ready());
        backlog.took(100);
        backlog.wrote(99);
        assert!(backlog.poll_ready(&context).is_pending());
        backlog.wrote(1);
        assert!(backlog.poll_ready(&context).is_ready());
        // With the head more is written than was taken of the body.
        backlog.wrote(200);
        backlog.took(1);
        assert!(backlog.poll_ready(&context).is_pending());
    }
}
