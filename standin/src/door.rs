//! Where requests from outside come in: counted, delayed or spoiled as asked, and then answered by the server.

use std::sync::Arc;

use apiserver::authn::identity::Identity;
use apiserver::http::body::{Body, whole};
use apiserver::http::server::Handler;
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::counts::Counter;
use crate::faults::{Faults, Trouble};

#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) stack: Arc<Stack>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) counter: Arc<Counter>,
}

impl Door {
    pub(crate) async fn answer<B>(&self, identity: Identity, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        self.counter.count(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        let (delay, trouble) = self.faults.next();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match trouble {
            None => self.stack.respond(identity, request).await,
            Some(Trouble::LostAnswer) => {
                drop(self.stack.respond(identity, request).await);
                failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            Some(Trouble::Internal) => failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Some(Trouble::Unavailable) => failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Some(Trouble::Garbage) => {
                let nonsense = Full::new(Bytes::from_static(b"<html>it works!</html>"));
                Response::new(whole(nonsense))
            }
            Some(Trouble::TooManyRequests) => {
                let mut answer = failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests");
                answer.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
                answer
            }
        }
    }
}

impl Handler for Door {
    async fn handle(
        self: Arc<Self>,
        identity: Identity,
        request: Request<hyper::body::Incoming>,
    ) -> Response<Body> {
        self.answer(identity, request).await
    }
}

/// A Status as a server in trouble gives it.
fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": "the stand-in was asked to fail", "code": code.as_u16(),
    });
    let body: Full<Bytes> = Full::new(status.to_string().into());
    let mut answer = Response::new(whole(body));
    *answer.status_mut() = code;
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}
