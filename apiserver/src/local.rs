//! A client for the server in the same process.
//!
//! ```text
//!   kube::Client ─► logical cluster and identity ─► Stack::respond
//! ```
//!
//! A component in the server's process uses the API as from another machine, through a [`kube::Client`]. Only the
//! socket and TLS are left out, and with them the client certificate; the caller passes the identity instead.
//! Authorization, limits, deadlines, the audit log and everything else are the same as for every request.
//!
//! Cloning a client is cheap. Creating one starts a small task, which ends with the last clone. So a controller of many
//! logical clusters creates one client for [`Cluster::Bare`] and writes the logical cluster into its paths.

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

/// The namespace of objects that name none.
const NAMESPACE: &str = "default";

/// Creates a client of `stack` that sends requests as `identity` to one logical cluster, or, for lists and watches, to
/// all. With [`Cluster::Bare`] paths are used as they are: `/clusters/root:a/api/v1/…` leads to any logical cluster.
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
