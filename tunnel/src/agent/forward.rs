//! Forwards requests that arrive through the tunnel to the physical cluster.

use std::fmt::Display;
use std::future::pending;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;

use super::SplicedSender;
use crate::protocol::{METHOD, is_path_allowed, is_request_header_forwarded, is_response_header_forwarded};
use crate::{copy_headers, splice};

/// Maximum size of a request body. Holon accepts no larger one either.
const BODY_BYTES_MAX: usize = 3 << 20;

/// The body of a response, streamed.
pub(super) type ForwardedBody = UnsyncBoxBody<Bytes, kube::Error>;

/// Forwards requests to the physical cluster.
pub(super) struct Forwarder {
    downstream: Client,
    spliced: SplicedSender,
}

/// The code and the message of the Status in the response.
type ForwardError = (StatusCode, String);

fn failed(code: StatusCode, error: impl Display) -> ForwardError {
    (code, error.to_string())
}

impl Forwarder {
    pub(super) fn new(downstream: Client, spliced: SplicedSender) -> Forwarder {
        Forwarder { downstream, spliced }
    }

    pub(super) async fn forward(&self, request: Request<Incoming>) -> Response<ForwardedBody> {
        let path = request.uri().path();
        if !is_path_allowed(path) {
            let message = format!("path {path} is not allowed through the tunnel");
            return status_response(StatusCode::FORBIDDEN, &message);
        }
        // `/api/v1/namespaces/shop/pods/web/exec`
        let subresource = path.split('/').nth(7).unwrap_or_default().to_owned();
        let forwarded = match request.extensions().get::<Protocol>().cloned() {
            Some(protocol) => self.upgrade(request, &subresource, &protocol).await,
            None => self.send(request, &subresource).await,
        };
        forwarded.unwrap_or_else(|(code, message)| status_response(code, &message))
    }

    async fn send(
        &self,
        request: Request<Incoming>,
        subresource: &str,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| failed(StatusCode::PAYLOAD_TOO_LARGE, error))?.to_bytes();
        let request = downstream_request(&head, head.method.clone(), subresource, body)?;
        let response = self.downstream.send(request).await;
        let response = response.map_err(|error| failed(StatusCode::BAD_GATEWAY, error))?;
        Ok(response_head(&response, subresource).map(|()| response.into_body().boxed_unsync()))
    }

    /// Forwards a request that upgrades its connection, and joins the two upgraded connections.
    async fn upgrade(
        &self,
        mut request: Request<Incoming>,
        subresource: &str,
        protocol: &Protocol,
    ) -> Result<Response<ForwardedBody>, ForwardError> {
        let upstream = hyper::upgrade::on(&mut request);
        let (head, _) = request.into_parts();
        let method = head.headers.get(METHOD).and_then(|method| Method::from_bytes(method.as_bytes()).ok());
        let mut request =
            downstream_request(&head, method.unwrap_or(Method::GET), subresource, Bytes::new())?;
        let protocol = HeaderValue::from_bytes(protocol.as_ref());
        let protocol = protocol.map_err(|error| failed(StatusCode::BAD_REQUEST, error))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, protocol);
        let response = self.downstream.send(request).await;
        let mut response = response.map_err(|error| failed(StatusCode::BAD_GATEWAY, error))?;
        match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                self.splice(upstream, hyper::upgrade::on(&mut response));
                // HTTP/2 accepts an extended CONNECT with 200.
                let mut accepted = response_head(&response, subresource).map(|()| empty_body());
                *accepted.status_mut() = StatusCode::OK;
                Ok(accepted)
            }
            status if status.is_success() => {
                Err(failed(StatusCode::BAD_GATEWAY, "the physical cluster did not upgrade the connection"))
            }
            _ => Ok(response_head(&response, subresource).map(|()| response.into_body().boxed_unsync())),
        }
    }

    /// Copies bytes between two upgraded connections, on the task of the tunnel.
    fn splice(&self, upstream: OnUpgrade, downstream: OnUpgrade) {
        let stream = async move {
            let (Ok(upstream), Ok(downstream)) = tokio::join!(upstream, downstream) else { return };
            splice(TokioIo::new(upstream), TokioIo::new(downstream), (pending(), pending())).await;
        };
        // This fails only if the tunnel has closed meanwhile, and the stream with it.
        let _ = self.spliced.send(Box::pin(stream));
    }
}

/// Returns the request for the physical cluster.
fn downstream_request(
    head: &http::request::Parts,
    method: Method,
    subresource: &str,
    body: Bytes,
) -> Result<Request<kube::client::Body>, ForwardError> {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::builder().method(method).uri(target).body(kube::client::Body::from(body));
    let mut request = request.map_err(|error| failed(StatusCode::BAD_REQUEST, error))?;
    copy_headers(&head.headers, request.headers_mut(), |name| is_request_header_forwarded(subresource, name));
    Ok(request)
}

/// Returns the head of the response for Holon.
fn response_head<B>(response: &Response<B>, subresource: &str) -> Response<()> {
    let mut forwarded = Response::new(());
    *forwarded.status_mut() = response.status();
    let headers = forwarded.headers_mut();
    copy_headers(response.headers(), headers, |name| is_response_header_forwarded(subresource, name));
    forwarded
}

fn empty_body() -> ForwardedBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Returns a response with a Status, in the form of an API server.
fn status_response(code: StatusCode, message: &str) -> Response<ForwardedBody> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code.as_u16(),
        "message": message,
    });
    let body = Full::from(status.to_string()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
