//! Ports of containers that do not exist, forwarded: whoever speaks HTTP is answered, everybody else hears what they said.
//!
//! For each connection the client opens two streams: one for bytes, one for what went wrong.

use std::collections::HashMap;
use std::io;

use apiserver::http::body::Body;
use http::{HeaderMap, Response};
use openapi::meta::status::Status;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::spdy::{self, Heard, Spdy};
use crate::object::{list, name, namespace, number};

const PROTOCOL: &str = "portforward.k8s.io";

/// The answer that changes over, if the client asks for what we speak. kubectl asks for another way first, and for this one
/// when that is refused.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    match spdy::is_wanted(headers) {
        true => Ok(spdy::switch(PROTOCOL)),
        false => Err(Status::bad_request("Upgrade request required")),
    }
}

/// The ports of a pod.
pub(super) struct Ports {
    pod: String,
    namespace: String,
    open: Vec<String>,
}

/// A stream of bytes, and the one beside it.
struct Pair {
    errors: u32,
    port: String,
}

impl Ports {
    pub(super) fn of(pod: &Value) -> Ports {
        let containers = list(pod, "/spec/containers").iter();
        let ports = containers.flat_map(|container| list(container, "/ports"));
        let open = ports.filter_map(|port| number(port, "/containerPort")).map(|port| port.to_string());
        Ports { pod: name(pod).to_owned(), namespace: namespace(pod).to_owned(), open: open.collect() }
    }

    /// Answers on all ports until the client has left.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut spdy = Spdy::new(stream);
        // By request, the streams for what goes wrong; by stream, what goes where.
        let (mut errors, mut pairs) = (HashMap::new(), HashMap::new());
        while let Some(heard) = spdy.next().await? {
            match heard {
                Heard::Opened { stream, headers } => {
                    let header = |wanted: &str| {
                        let mut found = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
                        found.next().map(|(_, value)| value.clone()).unwrap_or_default()
                    };
                    let (request, port) = (header("requestID"), header("port"));
                    if header("streamType") == "error" {
                        errors.insert(request, stream);
                    } else if let Some(errors) = errors.remove(&request) {
                        self.connect(&mut spdy, stream, errors, &port).await?;
                        pairs.insert(stream, Pair { errors, port });
                    }
                }
                Heard::Data { stream, bytes, is_last } => {
                    let Some(pair) = pairs.get(&stream) else { continue };
                    let (said, ends) = self.answer(&pair.port, bytes);
                    let is_last = is_last || ends;
                    spdy.send(stream, &said, is_last).await?;
                    if is_last {
                        spdy.send(pair.errors, b"", true).await?;
                        pairs.remove(&stream);
                    }
                }
                Heard::Reset { stream } => drop(pairs.remove(&stream)),
            }
        }
        Ok(())
    }

    /// Says so if nobody listens there.
    async fn connect(
        &self,
        spdy: &mut Spdy<impl AsyncRead + AsyncWrite + Unpin>,
        stream: u32,
        errors: u32,
        port: &str,
    ) -> io::Result<()> {
        if self.open.iter().any(|open| open == port) {
            return Ok(());
        }
        let why = format!(
            "error forwarding port {port} to pod {}, namespace {}: connect: connection refused",
            self.pod, self.namespace
        );
        spdy.send(errors, why.as_bytes(), true).await?;
        spdy.send(stream, b"", true).await
    }

    /// What comes back, and whether that is all.
    fn answer(&self, port: &str, bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let Some(asked) = line.strip_suffix(" HTTP/1.1").or_else(|| line.strip_suffix(" HTTP/1.0")) else {
            return (bytes, false);
        };
        let body = format!("{asked} at port {port} of {}\n", self.pod);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        ((head + &body).into_bytes(), true)
    }
}
