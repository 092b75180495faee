//! A client in the same process: no socket, and the same link, faults and counts as over one.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::watch;

use crate::door::Door;
use crate::faults::Link;
use crate::hands::identity;

/// The door as clients call it. What it leads to may be gone for a while, and then be another.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) door: watch::Receiver<Option<Arc<Door>>>,
    pub(crate) link: watch::Receiver<Link>,
}

pub(crate) type Carried = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

impl Caller {
    async fn call(mut self, request: Request<kube::client::Body>) -> io::Result<Response<Carried>> {
        self.passes().await?;
        let door = self.door.borrow_and_update().clone().ok_or(io::ErrorKind::ConnectionRefused)?;
        let mut gone = self.door.clone();
        let answer = tokio::select! {
            answer = door.answer(identity(), request) => answer,
            _ = gone.changed() => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        self.passes().await?;
        let (head, body) = answer.into_parts();
        let link = self.link;
        // It ends when the stand-in is killed, and stalls or breaks as the link does.
        let frames = stream::try_unfold((body, link, gone), |(mut body, mut link, mut gone)| async move {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                _ = gone.changed() => return Err(io::Error::from(io::ErrorKind::ConnectionReset)),
                _ = link.wait_for(|link| *link == Link::Cut) => {
                    return Err(io::Error::from(io::ErrorKind::ConnectionReset));
                }
            };
            passes(&mut link).await?;
            Ok(match frame {
                Some(Ok(frame)) => Some((frame, (body, link, gone))),
                None => None,
                Some(Err(broken)) => return Err(io::Error::other(broken)),
            })
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    async fn passes(&mut self) -> io::Result<()> {
        passes(&mut self.link).await
    }
}

/// Waits while the link is silent; fails if it is cut.
async fn passes(link: &mut watch::Receiver<Link>) -> io::Result<()> {
    let state = link.wait_for(|link| *link != Link::Silent).await.map(|link| *link);
    match state {
        Ok(Link::Cut) | Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
        Ok(_) => Ok(()),
    }
}

impl tower::Service<Request<kube::client::Body>> for Caller {
    type Response = Response<Carried>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Response<Carried>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.clone().call(request))
    }
}
