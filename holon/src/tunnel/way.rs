//! A way to a physical cluster: whichever side opened it, it is asked in the same words.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::tunnel::STREAMS_MAX;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::Client;
use openapi::meta::status::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::line::Line;

/// What fails later than this did not fail because a connection was just closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// What an answer is made of, as it comes.
pub(super) type Answer = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub(super) struct Way {
    end: End,
    room: Arc<Semaphore>,
    gone: watch::Receiver<()>,
}

enum End {
    Push(Client),
    Pull(Line),
}

/// Whoever keeps a way open. When it is dropped, what is on the way ends.
pub(super) struct Gone(#[allow(dead_code, reason = "that it is dropped says everything")] watch::Sender<()>);

/// A place on a way, free again when this is dropped.
pub(super) struct Room {
    _place: OwnedSemaphorePermit,
    gone: watch::Receiver<()>,
}

impl Room {
    /// Returns when the way is gone. Cancel-safe.
    pub(super) async fn gone(&mut self) {
        gone(&mut self.gone).await;
    }
}

async fn gone(way: &mut watch::Receiver<()>) {
    // Nothing is ever said; it fails when whoever kept the way has dropped it.
    while way.changed().await.is_ok() {}
}

impl Way {
    pub(super) fn push(below: Client) -> (Way, Gone) {
        Way::new(End::Push(below))
    }

    pub(super) fn pull(line: Line) -> (Way, Gone) {
        Way::new(End::Pull(line))
    }

    fn new(end: End) -> (Way, Gone) {
        let (sender, gone) = watch::channel(());
        (Way { end, room: Arc::new(Semaphore::new(STREAMS_MAX as usize)), gone }, Gone(sender))
    }

    /// Returns when nobody keeps it any more.
    pub(super) async fn gone(&self) {
        gone(&mut self.gone.clone()).await;
    }

    /// Takes a place, if there is one.
    pub(super) fn enter(&self) -> Result<Room, Status> {
        let place = self.room.clone().try_acquire_owned().map_err(|_| {
            Status::too_many_requests("too many streams to this physical cluster, please try again later", 1)
        })?;
        Ok(Room { _place: place, gone: self.gone.clone() })
    }

    /// Asks. If what is to be spoken next is said and agreed to, the answer says `101` and has the connection.
    pub(super) async fn ask(
        &self,
        request: Request<Bytes>,
        protocol: Option<&HeaderValue>,
    ) -> Result<Response<Answer>, Status> {
        match &self.end {
            End::Push(below) => {
                let again = protocol.is_none().then(|| request.clone()).filter(|it| it.method().is_safe());
                let mut request = request.map(kube::client::Body::from);
                if let Some(protocol) = protocol {
                    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                    request.headers_mut().insert(UPGRADE, protocol.clone());
                }
                let begun = Instant::now();
                let answer = match (below.send(request).await, again) {
                    // The other side may close a connection that was kept just as it is used. Who only reads asks again.
                    (Err(_), Some(again)) if begun.elapsed() < CLOSED_WITHIN => {
                        below.send(again.map(kube::client::Body::from)).await
                    }
                    (answer, _) => answer,
                };
                let answer = answer.map_err(|error| Status::unavailable(error.to_string()))?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            }
            End::Pull(line) => {
                let answer = line.ask(request, protocol).await;
                answer.map_err(|error| Status::unavailable(error.to_string()))
            }
        }
    }
}
