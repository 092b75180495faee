//! One thing that is asked through the tunnel.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use api::tunnel::{METHOD, is_answered, is_asked, may_ask};
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderMap, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::task::JoinSet;

/// Of what is sent along with a request. The server takes no more either.
const BODY_BYTES_MAX: usize = 3 << 20;

/// What an answer is made of, as it comes.
pub(super) type Pieces = UnsyncBoxBody<Bytes, kube::Error>;

/// Asks the physical cluster what it is told to.
pub(super) struct Errands {
    below: Client,
    /// Connections that were changed over.
    open: Mutex<JoinSet<()>>,
}

impl Errands {
    pub(super) fn new(below: Client) -> Errands {
        Errands { below, open: Mutex::default() }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Pieces> {
        let path = request.uri().path();
        if !may_ask(path) {
            return failure(StatusCode::FORBIDDEN, "the tunnel does not lead there");
        }
        // `/api/v1/namespaces/shop/pods/web/exec`
        let part = path.split('/').nth(7).unwrap_or_default().to_owned();
        let answered = match request.extensions().get::<Protocol>().cloned() {
            Some(protocol) => self.change_over(request, &part, &protocol).await,
            None => self.ask(request, &part).await,
        };
        answered.unwrap_or_else(|(code, why)| failure(code, &why))
    }

    async fn ask(&self, request: Request<Incoming>, part: &str) -> Result<Response<Pieces>, Failed> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| failed(StatusCode::PAYLOAD_TOO_LARGE, error))?.to_bytes();
        let asked = asked(&head, head.method.clone(), part, body)?;
        let answer = self.below.send(asked).await.map_err(|error| failed(StatusCode::BAD_GATEWAY, error))?;
        Ok(answered(&answer, part).map(|()| answer.into_body().boxed_unsync()))
    }

    /// The same for a connection that is to be changed over: here, and there.
    async fn change_over(
        &self,
        mut request: Request<Incoming>,
        part: &str,
        protocol: &Protocol,
    ) -> Result<Response<Pieces>, Failed> {
        let above = hyper::upgrade::on(&mut request);
        let (head, _) = request.into_parts();
        let method = head.headers.get(METHOD).and_then(|method| Method::from_bytes(method.as_bytes()).ok());
        let mut asked = asked(&head, method.unwrap_or(Method::GET), part, Bytes::new())?;
        let protocol = HeaderValue::from_bytes(protocol.as_ref());
        let protocol = protocol.map_err(|error| failed(StatusCode::BAD_REQUEST, error))?;
        asked.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        asked.headers_mut().insert(UPGRADE, protocol);
        let mut answer =
            self.below.send(asked).await.map_err(|error| failed(StatusCode::BAD_GATEWAY, error))?;
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                self.splice(above, hyper::upgrade::on(&mut answer));
                // This is how HTTP/2 says it.
                let mut changed = answered(&answer, part).map(|()| nothing());
                *changed.status_mut() = StatusCode::OK;
                Ok(changed)
            }
            status if status.is_success() => {
                Err(failed(StatusCode::BAD_GATEWAY, "the connection was not changed over"))
            }
            _ => Ok(answered(&answer, part).map(|()| answer.into_body().boxed_unsync())),
        }
    }

    /// Leads bytes both ways for as long as either side likes.
    fn splice(&self, above: OnUpgrade, below: OnUpgrade) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that have ended are not kept.
        while open.try_join_next().is_some() {}
        open.spawn(async move {
            let (Ok(above), Ok(below)) = tokio::join!(above, below) else { return };
            // Either side may break off; the other then sees the end.
            let _ = copy_bidirectional(&mut TokioIo::new(above), &mut TokioIo::new(below)).await;
        });
    }
}

/// What the other end is told, and why.
type Failed = (StatusCode, String);

fn failed(code: StatusCode, why: impl Display) -> Failed {
    (code, why.to_string())
}

/// The request as the physical cluster gets it.
fn asked(
    head: &http::request::Parts,
    method: Method,
    part: &str,
    body: Bytes,
) -> Result<Request<kube::client::Body>, Failed> {
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::builder().method(method).uri(target).body(kube::client::Body::from(body));
    let mut request = request.map_err(|error| failed(StatusCode::BAD_REQUEST, error))?;
    copy(&head.headers, request.headers_mut(), |name| is_asked(part, name));
    Ok(request)
}

/// The head of an answer as it goes back.
fn answered<B>(answer: &Response<B>, part: &str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = answer.status();
    copy(answer.headers(), response.headers_mut(), |name| is_answered(part, name));
    response
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, passes: impl Fn(&str) -> bool) {
    for (name, value) in from.iter().filter(|(name, _)| passes(name.as_str())) {
        to.append(name, value.clone());
    }
}

fn nothing() -> Pieces {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A Status, as the physical cluster would have said it.
fn failure(code: StatusCode, why: &str) -> Response<Pieces> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code.as_u16(),
        "message": why,
    });
    let body = Full::from(status.to_string()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
