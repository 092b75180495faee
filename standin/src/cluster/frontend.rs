//! The handler of clients' requests: counts them, injects delays and faults, and passes them on to the API server.

use std::sync::Arc;

use apiserver::authn::identity::Identity;
use apiserver::http::body::{Body, whole};
use apiserver::http::incoming::Incoming;
use apiserver::http::server::Handler;
use apiserver::stack::Stack;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

use crate::cluster::faults::{Faults, ResponseFault};
use crate::cluster::requests::RequestCounter;

#[derive(Debug)]
pub(crate) struct Frontend {
    pub(crate) stack: Arc<Stack>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) counter: Arc<RequestCounter>,
}

impl Frontend {
    pub(crate) async fn respond(
        &self,
        identity: Identity,
        request: Request<impl Incoming + Send + 'static>,
    ) -> Response<Body> {
        self.counter.add(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        let (delay, fault) = self.faults.next_request();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        match fault {
            None => self.stack.respond(identity, request).await,
            Some(ResponseFault::LostResponse) => {
                drop(self.stack.respond(identity, request).await);
                failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")
            }
            Some(ResponseFault::Internal) => failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Some(ResponseFault::Unavailable) => {
                failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
            Some(ResponseFault::Garbage) => {
                let garbage = Full::new(Bytes::from_static(b"<html>it works!</html>"));
                Response::new(whole(garbage))
            }
            Some(ResponseFault::TooManyRequests) => {
                let mut response = failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests");
                response.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
                response
            }
        }
    }
}

impl Handler for Frontend {
    async fn handle(
        self: Arc<Self>,
        identity: Identity,
        request: Request<hyper::body::Incoming>,
    ) -> Response<Body> {
        self.respond(identity, request).await
    }

    async fn finish(&self) {
        self.stack.finish().await;
    }
}

/// Returns a Status that reports a failure of the server.
fn failure(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": "the stand-in injected this failure", "code": code.as_u16(),
    });
    let body: Full<Bytes> = Full::new(status.to_string().into());
    let mut response = Response::new(whole(body));
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
