//! The pod proxy: every port of a simulated container answers with the request it received.

use apiserver::endpoints::connect::{ConnectRequest, Port};
use apiserver::http::body::{Body, whole};
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use openapi::meta::status::Status;
use serde_json::Value;

use super::{is_running, plain_text};
use crate::objects::fields::{list, name, number, text};

pub(super) fn respond(request: &ConnectRequest) -> Result<Response<Body>, Status> {
    let pod = &request.object;
    let Some((container, port)) =
        find_port(pod, &request.port).filter(|(container, _)| is_running(pod, container))
    else {
        let address = format!("{}:{}", text(pod, "/status/podIP"), request.port.port);
        let message =
            format!("error trying to reach service: dial tcp {address}: connect: connection refused");
        return Err(Status::unavailable(&message));
    };
    let path = if request.rest.is_empty() { "/" } else { &request.rest };
    let query: String =
        request.query.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    let separator = if query.is_empty() { "" } else { "?" };
    let text = format!(
        "{} {path}{separator}{query} at port {port} of {} in {container}\n",
        request.method,
        name(pod)
    );
    let bytes = [Bytes::from(text), request.body.clone()].concat();
    Ok(plain_text(whole(Full::from(bytes))))
}

/// Returns the container with a port and the port's number. Without a name or number it is the first port.
fn find_port(pod: &Value, requested: &Port) -> Option<(String, i64)> {
    let containers = list(pod, "/spec/containers").iter();
    let mut ports = containers.flat_map(|container| {
        let name = text(container, "/name");
        list(container, "/ports")
            .iter()
            .filter_map(move |port| Some((name, text(port, "/name"), number(port, "/containerPort")?)))
    });
    let is_requested = |port: &(&str, &str, i64)| {
        requested.port.is_empty() || port.1 == requested.port || port.2.to_string() == requested.port
    };
    ports.find(is_requested).map(|(container, _, number)| (container.to_owned(), number))
}
