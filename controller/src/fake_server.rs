//! A server whose responses a test scripts.

use std::convert::Infallible;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;

use crate::remote::Remote;

/// Returns a client of a fake server. `answer` gets method, path with query, and body, and returns a code and a body.
pub(crate) fn remote(
    answer: impl Fn(&str, &str, &[u8]) -> (u16, String) + Clone + Send + Sync + 'static,
) -> Remote {
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let path = head.uri.path_and_query().map_or("", |path| path.as_str());
            let (code, body) = answer(head.method.as_str(), path, &body);
            Ok::<_, Infallible>(
                Response::builder().status(code).body(Body::from(body.into_bytes())).expect("an answer"),
            )
        }
    });
    Remote::new(Client::new(service, "default"))
}
