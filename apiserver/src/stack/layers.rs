//! The layers around the endpoints, one concern each. [`Stack::respond`](super::Stack::respond) puts them in order.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::ALLOW;
use http::{HeaderValue, Method, Response, StatusCode};
use openapi::catalog::resource_info::ResourceInfo;
use openapi::meta::status::Status;
use tower::{Service, ServiceExt, service_fn};
use tracing::Instrument;

use super::Stack;
use super::context::{
    AUDIT_ID, ApiRequest, AuthenticatedRequest, LimitedRequest, RequestContext, RequestFacts,
};
use super::dispatch;
use crate::audit::AuditEvent;
use crate::authn::identity::Identity;
use crate::endpoints::create;
use crate::http::body::Body;
use crate::http::incoming::Incoming;
use crate::http::{deadline, request_log};
use crate::registry::warnings;
use crate::request::info::RequestInfo;
use crate::request::negotiation;
use crate::request::negotiation::Encoding;
use crate::response::encoding::ResponseEncoding;
use crate::response::render;

/// A service that answers every request, if only with an error.
pub(super) trait Answering<R>:
    Service<R, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

impl<R, S> Answering<R> for S where
    S: Service<R, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static
{
}

/// A service that answers or refuses a request.
pub(super) trait Refusing<R>:
    Service<R, Response = Response<Body>, Error = Status, Future: Send> + Clone + Send + 'static
{
}

impl<R, S> Refusing<R> for S where
    S: Service<R, Response = Response<Body>, Error = Status, Future: Send> + Clone + Send + 'static
{
}

async fn answer<R: Send>(inner: impl Answering<R>, request: R) -> Response<Body> {
    let Ok(response) = inner.oneshot(request).await;
    response
}

/// The code of a request whose client left before its response.
const CLIENT_LEFT: u16 = 499;

/// Reports the end of a request: with the status of its response, or with 499 if its client left before.
///
/// A client may leave at any time, and the server then drops the request where it is. Without a line in the audit log,
/// a client could hide a write that the store already has.
struct RequestEnd<F: FnMut(StatusCode)> {
    report: F,
    code: StatusCode,
}

impl<F: FnMut(StatusCode)> RequestEnd<F> {
    fn new(report: F) -> RequestEnd<F> {
        RequestEnd { report, code: StatusCode::from_u16(CLIENT_LEFT).expect("three digits") }
    }
}

impl<F: FnMut(StatusCode)> Drop for RequestEnd<F> {
    fn drop(&mut self) {
        let is_bug = std::thread::panicking();
        (self.report)(if is_bug { StatusCode::INTERNAL_SERVER_ERROR } else { self.code });
    }
}

/// Puts the id of the request on its response, logs one line, and names the request in all lines that are logged
/// meanwhile.
pub(super) fn log<B: Incoming + Send + 'static>(
    inner: impl Answering<ApiRequest<B>>,
) -> impl Answering<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (inner, context) = (inner.clone(), request.context.clone());
        async move {
            // Of the highest level, so that it names the request of a warning whatever is logged.
            let span = tracing::error_span!(
                "request",
                id = context.id.to_str().unwrap_or_default(),
                method = request_log::short(context.info.method.as_str()),
                path = request_log::short(&context.info.path),
            );
            let mut end = RequestEnd::new(|code| {
                let sender = context.facts().sender.clone();
                let user = sender.as_deref().map_or("", Identity::name);
                request_log::log(&context.id, &context.info, user, code, context.elapsed());
            });
            let mut response = answer(inner, request).instrument(span).await;
            end.code = response.status();
            response.headers_mut().insert(AUDIT_ID, context.id.clone());
            Ok(response)
        }
    })
}

/// Writes the audit log.
pub(super) fn audit<B: Incoming + Send + 'static>(
    stack: Arc<Stack>,
    inner: impl Answering<ApiRequest<B>>,
) -> impl Answering<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (stack, inner, context) = (stack.clone(), inner.clone(), request.context.clone());
        async move {
            let mut end = RequestEnd::new(|code| stack.note(&context, code));
            let response = answer(inner, request).await;
            end.code = response.status();
            Ok(response)
        }
    })
}

/// Counts requests and open watches.
pub(super) fn metrics<B: Incoming + Send + 'static>(
    stack: Arc<Stack>,
    inner: impl Answering<ApiRequest<B>>,
) -> impl Answering<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (stack, inner, context) = (stack.clone(), inner.clone(), request.context.clone());
        async move {
            let mut response = answer(inner, request).await;
            stack.metrics.count(stack.kinds.common(), &context.info, context.elapsed(), &mut response);
            Ok(response)
        }
    })
}

/// Indents and compresses responses, and removes the body of a response to HEAD.
pub(super) fn response_encoding<B: Incoming + Send + 'static>(
    inner: impl Answering<ApiRequest<B>>,
) -> impl Answering<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (inner, context) = (inner.clone(), request.context.clone());
        async move {
            let encoding = ResponseEncoding::of(&context.info, &request.headers);
            let mut response = encoding.apply(answer(inner, request).await).await;
            if context.info.method == Method::HEAD {
                render::behead(&mut response);
            }
            Ok(response)
        }
    })
}

/// Turns errors into responses, and adds the warnings about deprecated resources.
pub(super) fn errors<B: Incoming + Send + 'static>(
    inner: impl Refusing<ApiRequest<B>>,
) -> impl Answering<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (inner, context) = (inner.clone(), request.context.clone());
        async move {
            let encoding = negotiation::encoding(&request.headers);
            let answered = inner.oneshot(request).await;
            let resource = context.facts().resource.clone();
            let resource = resource.as_deref();
            let response =
                answered.unwrap_or_else(|status| refused(&context.info, resource, &status, encoding));
            Ok(deprecated(&context.info, resource, response))
        }
    })
}

/// Authenticates a request: by certificate, by the token file, or as a service account.
pub(super) fn authentication<B: Incoming + Send + 'static>(
    stack: Arc<Stack>,
    inner: impl Refusing<AuthenticatedRequest<B>>,
) -> impl Refusing<ApiRequest<B>> {
    service_fn(move |request: ApiRequest<B>| {
        let (stack, inner) = (stack.clone(), inner.clone());
        async move {
            let ApiRequest { context, peer, headers, connection, body } = request;
            let identity = Arc::new(stack.identify(peer, &headers).await?);
            context.facts().sender = Some(identity.clone());
            let tenant = stack.tenant(&identity).await;
            if let (Identity::User(_), Some(connection)) = (&*identity, connection) {
                connection.authenticated(&tenant);
            }
            inner.oneshot(AuthenticatedRequest { context, identity, tenant, headers, body }).await
        }
    })
}

/// Gives a request one of the slots of its tenant.
pub(super) fn limits<B: Incoming + Send + 'static>(
    stack: Arc<Stack>,
    inner: impl Refusing<LimitedRequest<B>>,
) -> impl Refusing<AuthenticatedRequest<B>> {
    service_fn(move |request: AuthenticatedRequest<B>| {
        let (stack, inner) = (stack.clone(), inner.clone());
        async move {
            let AuthenticatedRequest { context, identity, tenant, headers, body } = request;
            let slot = stack.limits.enter(&tenant, &identity, &context.info)?;
            inner.oneshot(LimitedRequest { context, identity, slot, headers, body }).await
        }
    })
}

/// Ends a request at its deadline.
pub(super) fn deadline<B: Incoming + Send + 'static>(
    inner: impl Refusing<LimitedRequest<B>>,
) -> impl Refusing<LimitedRequest<B>> {
    service_fn(move |request: LimitedRequest<B>| {
        let (inner, context) = (inner.clone(), request.context.clone());
        async move { deadline::within(&context.info, inner.oneshot(request)).await }
    })
}

/// Asks a client without credential to authenticate, whether the object exists or not.
pub(super) fn challenge<B: Incoming + Send + 'static>(
    inner: impl Refusing<LimitedRequest<B>>,
) -> impl Refusing<LimitedRequest<B>> {
    service_fn(move |request: LimitedRequest<B>| {
        let (inner, identity) = (inner.clone(), request.identity.clone());
        async move {
            match inner.oneshot(request).await {
                Err(status) if *identity == Identity::Anonymous && [403, 404].contains(&status.code) => {
                    Err(Status::unauthorized())
                }
                answered => answered,
            }
        }
    })
}

/// Returns the response for an error. For a wrong method it lists the allowed ones.
fn refused(
    info: &RequestInfo,
    resource: Option<&ResourceInfo>,
    status: &Status,
    encoding: Encoding,
) -> Response<Body> {
    let mut response = render::status(status, encoding);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_str(&dispatch::methods(info, resource).join(", "));
        response.headers_mut().insert(ALLOW, allowed.expect("methods are made of letters"));
    }
    response
}

/// Adds the warning for deprecated resources.
fn deprecated(
    info: &RequestInfo,
    resource: Option<&ResourceInfo>,
    response: Response<Body>,
) -> Response<Body> {
    let unauthenticated = [StatusCode::UNAUTHORIZED, StatusCode::METHOD_NOT_ALLOWED];
    let defined = resource.and_then(|resource| resource.custom.as_ref()?.warning.as_deref());
    match info.resource().and_then(warnings::deprecated).or(defined) {
        Some(text) if !unauthenticated.contains(&response.status()) => {
            create::warned(response, &[text.to_owned()])
        }
        _ => response,
    }
}

impl Stack {
    /// Writes the end of a request into the audit log. A client may leave, or the deadline be exceeded, just when its
    /// write has a result.
    pub(super) fn note(&self, context: &RequestContext, code: StatusCode) {
        let mut facts = context.facts();
        let is_early = code == CLIENT_LEFT || code == StatusCode::GATEWAY_TIMEOUT;
        if code != CLIENT_LEFT || facts.result.is_none() {
            self.write_audit_line(context, &facts, code);
        }
        match facts.result {
            Some(result) if is_early && code != result => self.write_audit_line(context, &facts, result),
            _ => facts.lacks_result = is_early,
        }
    }

    /// Remembers the result of a write, and writes it into the audit log if the line of the request lacks it.
    pub(super) fn note_result(&self, context: &RequestContext, code: StatusCode) {
        let mut facts = context.facts();
        facts.result = Some(code);
        if facts.lacks_result {
            self.write_audit_line(context, &facts, code);
        }
    }

    fn write_audit_line(&self, context: &RequestContext, facts: &RequestFacts, code: StatusCode) {
        let Some(audit) = &self.audit else { return };
        audit.note(&AuditEvent {
            id: context.id.to_str().unwrap_or_default(),
            info: &context.info,
            sender: facts.sender.as_deref().unwrap_or(&Identity::Anonymous),
            acting: facts.acting.as_ref(),
            cluster: facts.cluster.as_ref().map(|(id, path)| (*id, path.as_deref())),
            is_refused: facts.is_refused,
            is_authorized: facts.is_authorized,
            code,
            took: context.elapsed(),
        });
    }
}
