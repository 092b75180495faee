//! A client of a server in the same process.
//!
//! ```text
//!   kube::Client ─► which logical cluster, and who asks ─► Stack::respond
//! ```
//!
//! What runs beside the server talks to it as it would from another machine, through a [`kube::Client`]. Only the socket
//! and TLS are left out, and with them the certificate that would say who asks: that is said here, in Rust. Roles, limits,
//! deadlines, the audit log and everything else are those of every request.
//!
//! A client is cheap to clone. Each that is made, as opposed to cloned, has a small task of its own, which ends with the
//! last clone; so a controller of many logical clusters makes one for [`Cluster::Bare`] and writes the logical cluster
//! into its paths, instead of making one for each.

use std::sync::Arc;

use http::header::USER_AGENT;
use http::uri::{InvalidUri, PathAndQuery};
use http::{HeaderValue, Request, Uri};
use kube::Client;
use kube::client::Body;
use tower::service_fn;

use crate::authn::identity::Identity;
use crate::request::path::Cluster;
use crate::stack::Stack;

/// Where objects are that say nothing about it.
const NAMESPACE: &str = "default";

/// A client of `stack` that asks as `identity`, and of one logical cluster or, to list and to watch, of all of them. With
/// [`Cluster::Bare`] paths are taken as they are: `/clusters/root:a/api/v1/…` leads to any.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn client(stack: Arc<Stack>, identity: Identity, cluster: &Cluster) -> Client {
    let prefix = match cluster {
        Cluster::Bare => String::new(),
        Cluster::Path(_) | Cluster::Id(_) | Cluster::All => format!("/clusters/{cluster}"),
    };
    // The field manager of requests that name none.
    let agent = HeaderValue::from_str(identity.name()).ok();
    let service = service_fn(move |mut request: Request<Body>| {
        if let Some(agent) = &agent {
            request.headers_mut().entry(USER_AGENT).or_insert_with(|| agent.clone());
        }
        let addressed = address(&prefix, request.uri()).map(|uri| *request.uri_mut() = uri);
        let (stack, identity) = (stack.clone(), identity.clone());
        async move {
            addressed?;
            Ok::<_, InvalidUri>(stack.respond(identity, request).await)
        }
    });
    Client::new(service, NAMESPACE)
}

fn address(prefix: &str, uri: &Uri) -> Result<Uri, InvalidUri> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    format!("{prefix}{path}").parse()
}
