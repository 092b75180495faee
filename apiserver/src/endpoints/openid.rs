//! The OpenID documents with which other systems verify the service account tokens of a logical cluster.

use api::cluster::Id;
use http::{Method, Response, StatusCode};
use openapi::meta::status::Status;

use crate::authn::service_accounts::Accounts;
use crate::http::body::Body;
use crate::response::render;

/// `GET /.well-known/openid-configuration`.
pub(crate) fn configuration(accounts: &Accounts, cluster: Id) -> Response<Body> {
    render::value(StatusCode::OK, &accounts.configuration(cluster))
}

/// `/openid/v1/jwks`: the public keys. POST and DELETE first create or remove keys.
pub(crate) async fn keys(
    accounts: &Accounts,
    cluster: Id,
    method: &Method,
) -> Result<Response<Body>, Status> {
    let body = accounts.published(cluster, method).await?.to_string();
    Ok(render::typed(StatusCode::OK, "application/jwk-set+json", body))
}
