//! Ends a stream when its client is no longer authorized.
//!
//! Bytes on an upgraded connection are not parsed here, so they cannot be refused one by one. The
//! connection itself is revalidated, as a watch is: by the policies, the token and the logical cluster it was opened with.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use controller::tasks::Stop;
use futures::FutureExt;
use futures::future::Shared;
use http_body::{Body as HttpBody, Frame};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use openapi::meta::status::Status;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::authn::credential::Authenticators;
use crate::authz::revalidation::Revalidation;
use crate::http::body::{Body, Broken};
use crate::registry::call::Call;

/// Ready once the stream has to end, for all who wait for it.
pub(super) struct StreamGuard {
    lost: Shared<Pin<Box<dyn Future<Output = ()> + Send>>>,
    is_cut: bool,
}

impl fmt::Debug for StreamGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamGuard").field("is_cut", &self.is_cut).finish_non_exhaustive()
    }
}

impl StreamGuard {
    /// It counts as a watch does, for as long as it is kept.
    pub(super) async fn new(
        call: &Call,
        authenticators: &Authenticators,
        mut stop: Stop,
    ) -> Result<StreamGuard, Status> {
        let mut revalidation = Revalidation::endless(&call.authorization, authenticators).await?;
        let watching = call.authorization.watching().await?;
        let lost = async move {
            let _watching = watching;
            tokio::select! {
                () = revalidation.lost() => {}
                () = stop.requested() => {}
            }
        };
        let lost: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(lost);
        Ok(StreamGuard { lost: lost.shared(), is_cut: false })
    }

    /// Whether it is over. If not, the caller is woken when it is.
    fn is_cut(&mut self, context: &mut Context<'_>) -> bool {
        self.is_cut = self.is_cut || Pin::new(&mut self.lost).poll(context).is_ready();
        self.is_cut
    }
}

/// A connection the client wants to talk otherwise on.
#[derive(Debug)]
pub struct Upgrade {
    on: OnUpgrade,
    guard: StreamGuard,
}

impl Upgrade {
    pub(super) fn new(on: OnUpgrade, guard: StreamGuard) -> Upgrade {
        Upgrade { on, guard }
    }

    /// The connection, once the client was told that it is changed over.
    pub async fn open(self) -> io::Result<Connection> {
        let upgraded = self.on.await.map_err(io::Error::other)?;
        Ok(Connection { stream: TokioIo::new(upgraded), guard: self.guard })
    }
}

/// Bytes from and to a client. It breaks when the client may no longer have it.
#[derive(Debug)]
pub struct Connection {
    stream: TokioIo<Upgraded>,
    guard: StreamGuard,
}

impl Connection {
    /// Returns when the client may no longer have it. The copier of bytes waits for this too: while the other side takes
    /// none, no read here would notice.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.lost.clone()
    }

    /// Reading and writing are done by one task, so whichever was polled last wakes both.
    fn held(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut TokioIo<Upgraded>>> {
        match self.guard.is_cut(context) {
            true => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "its client is no longer authorized"))
            }
            false => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.held(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held(context)?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.held(context)?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// An answer that breaks off when the client may no longer have it. Its length is not announced: it is sent as it comes.
#[derive(Debug)]
pub(super) struct GuardedBody {
    body: Body,
    guard: StreamGuard,
}

impl GuardedBody {
    pub(super) fn new(body: Body, guard: StreamGuard) -> GuardedBody {
        GuardedBody { body, guard }
    }
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.guard.is_cut(context) {
            true => Poll::Ready(Some(Err(Broken))),
            false => Pin::new(&mut self.body).poll_frame(context),
        }
    }
}
