//! Endpoints: one file per verb, and one for each path that is not a plain verb on an object.

mod apply;
pub mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod discovery;
mod eviction;
pub(crate) mod get;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod metrics;
pub(crate) mod openid;
pub(crate) mod patch;
pub(crate) mod pod_actions;
pub(crate) mod reviews;
mod scale;
pub(crate) mod token_request;
pub(crate) mod update;
pub(crate) mod version;
pub(crate) mod watch;

use bytes::Bytes;
use http::Response;
use openapi::catalog::resource_info::Verb;
use openapi::meta::status::Status;
use storage::Store;

use crate::http::body::Body;
use crate::registry::call::Call;
use crate::response::render::Style;

/// Number of attempts if other clients change the object meanwhile. A client that sends no resource version expects no
/// conflicts.
const ATTEMPTS: usize = 5;

/// Answers requests that are not about a stored object or its fields: scale, binding, eviction. None for all others.
pub(crate) async fn apart(
    store: &dyn Store,
    verb: Verb,
    call: &Call,
    style: &Style,
    bytes: &Bytes,
) -> Option<Result<Response<Body>, Status>> {
    // The group matters: a tenant may define `bindings` or `pods` in another group.
    Some(match (call.subresource.as_deref(), &*call.resource.group, &*call.resource.plural) {
        (Some("scale"), _, _) => scale::scale(store, verb, call, style, bytes).await,
        (Some("binding"), "", "pods") | (None, "", "bindings") => {
            pod_actions::bind(store, call, style, bytes).await
        }
        (Some("eviction"), "", "pods") => pod_actions::evict(store, call, style, bytes).await,
        _ => return None,
    })
}
