//! The transport of clients in the same process: without a socket, and with the same link, faults and counts.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;

use crate::cluster::faults::Link;
use crate::cluster::frontend::Frontend;
use crate::identity::identity;

/// Calls the frontend. It is absent while the stand-in is killed, and a new one after a restart.
#[derive(Clone, Debug)]
pub(crate) struct LocalTransport {
    pub(crate) frontend: watch::Receiver<Option<Arc<Frontend>>>,
    pub(crate) link: watch::Receiver<Link>,
}

pub(crate) type ResponseBody = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

impl LocalTransport {
    async fn call(mut self, request: Request<kube::client::Body>) -> io::Result<Response<ResponseBody>> {
        self.wait_for_link().await?;
        let frontend = self.frontend.borrow_and_update().clone().ok_or(io::ErrorKind::ConnectionRefused)?;
        let mut restarts = self.frontend.clone();
        let response = tokio::select! {
            response = frontend.respond(identity(), request) => response,
            _ = restarts.changed() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        self.wait_for_link().await?;
        let (head, body) = response.into_parts();
        let link = self.link;
        // The body ends when the stand-in is killed, and stalls or breaks as the link does.
        let frames =
            stream::try_unfold((body, link, restarts), |(mut body, mut link, mut restarts)| async move {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    _ = restarts.changed() => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
                    _ = link.wait_for(|link| *link == Link::Cut) => {
                        return Err(io::Error::from(io::ErrorKind::ConnectionReset));
                    }
                };
                wait_for_link(&mut link).await?;
                Ok(match frame {
                    Some(Ok(frame)) => Some((frame, (body, link, restarts))),
                    None => None,
                    Some(Err(broken)) => return Err(io::Error::other(broken)),
                })
            });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    async fn wait_for_link(&mut self) -> io::Result<()> {
        wait_for_link(&mut self.link).await
    }
}

/// Waits while the link is silent; fails if it is cut.
async fn wait_for_link(link: &mut watch::Receiver<Link>) -> io::Result<()> {
    let state = link.wait_for(|link| *link != Link::Silent).await.map(|link| *link);
    match state {
        Ok(Link::Cut) | Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) => Ok(()),
    }
}

impl tower::Service<Request<kube::client::Body>> for LocalTransport {
    type Response = Response<ResponseBody>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Response<ResponseBody>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().call(request))
    }
}
