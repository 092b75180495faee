//! What answers behind a port of a container that does not exist: something that says what it was asked.

use apiserver::endpoints::connect::{Port, Wish};
use apiserver::http::body::{Body, whole};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use openapi::meta::status::Status;
use serde_json::Value;

use super::{is_running, plain};
use crate::object::{list, name, number, text};

pub(super) fn answer(wish: &Wish) -> Result<Response<Body>, Status> {
    let pod = &wish.object;
    let Some((container, port)) = listening(pod, &wish.port).filter(|(one, _)| is_running(pod, one)) else {
        let address = format!("{}:{}", text(pod, "/status/podIP"), wish.port.port);
        let why = format!("error trying to reach service: dial tcp {address}: connect: connection refused");
        return Err(Status::unavailable(&why));
    };
    let path = if wish.rest.is_empty() { "/" } else { &wish.rest };
    let query: String =
        wish.query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    let mark = if query.is_empty() { "" } else { "?" };
    let said =
        format!("{} {path}{mark}{query} at port {port} of {} in {container}\n", wish.method, name(pod));
    let bytes = [Bytes::from(said), wish.body.clone()].concat();
    Ok(plain(whole(Full::from(bytes))))
}

/// The container that has a port, and its number. Without a name the first port there is.
fn listening(pod: &Value, wanted: &Port) -> Option<(String, i64)> {
    let containers = list(pod, "/spec/containers").iter();
    let mut ports = containers.flat_map(|container| {
        let name = text(container, "/name");
        list(container, "/ports")
            .iter()
            .filter_map(move |port| Some((name, text(port, "/name"), number(port, "/containerPort")?)))
    });
    let is_it = |port: &(&str, &str, i64)| {
        wanted.port.is_empty() || port.1 == wanted.port || port.2.to_string() == wanted.port
    };
    ports.find(is_it).map(|(container, _, number)| (container.to_owned(), number))
}
