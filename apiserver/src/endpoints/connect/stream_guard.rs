//! Ends a stream when its client is no longer authorized.
//!
//! Bytes on an upgraded connection are not parsed, so they cannot be authorized one by one. Instead the connection is
//! revalidated like a watch: against the policies, the token and the logical cluster that it was opened with.

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

/// A future, shared by all tasks of a stream, that is ready when the stream has to end.
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
    /// Creates a guard. While it exists, the stream counts as a watch against the limits of its logical cluster.
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

    /// Reports whether the stream has to end. If not, wakes the caller when it does.
    fn is_cut(&mut self, context: &mut Context<'_>) -> bool {
        self.is_cut = self.is_cut || Pin::new(&mut self.lost).poll(context).is_ready();
        self.is_cut
    }
}

/// A connection that the client asks to upgrade.
#[derive(Debug)]
pub struct Upgrade {
    upgrade: OnUpgrade,
    guard: StreamGuard,
}

impl Upgrade {
    pub(super) fn new(upgrade: OnUpgrade, guard: StreamGuard) -> Upgrade {
        Upgrade { upgrade, guard }
    }

    /// Returns the upgraded connection, after the client has received the 101 response.
    pub async fn open(self) -> io::Result<Connection> {
        let upgraded = self.upgrade.await.map_err(io::Error::other)?;
        Ok(Connection { stream: TokioIo::new(upgraded), guard: self.guard })
    }
}

/// An upgraded connection. Reads and writes fail once the client is no longer authorized.
#[derive(Debug)]
pub struct Connection {
    stream: TokioIo<Upgraded>,
    guard: StreamGuard,
}

impl Connection {
    /// Returns when the client is no longer authorized. A task that copies bytes must wait for this too: while the
    /// other side takes no bytes, it does not read here and would not notice.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard.lost.clone()
    }

    /// Returns the stream unless it is cut. One task reads and writes, so the waker of the last poll serves both.
    fn authorized_io(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut TokioIo<Upgraded>>> {
        match self.guard.is_cut(context) {
            true => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client is no longer authorized"))
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
        self.authorized_io(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.authorized_io(context)?.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.authorized_io(context)?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A body that breaks off when the client is no longer authorized. It has no Content-Length and is sent chunked.
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
