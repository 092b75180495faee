//! A session of `kubectl port-forward`: every port answers HTTP requests, and echoes all other bytes.
//!
//! For each connection the client opens two streams: one for data, one for errors.

use std::collections::HashMap;
use std::io;

use apiserver::http::body::Body;
use http::{HeaderMap, Response};
use openapi::meta::status::Status;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::spdy::{self, Spdy, SpdyFrame};
use crate::objects::fields::{list, name, namespace, number};

const PROTOCOL: &str = "portforward.k8s.io";

/// Returns the response that switches protocols, if the client requests SPDY. kubectl tries WebSocket first, and SPDY
/// after that is rejected.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    match spdy::is_requested(headers) {
        true => Ok(spdy::switching_protocols(PROTOCOL)),
        false => Err(Status::bad_request("Upgrade request required")),
    }
}

/// The container ports of a pod.
pub(super) struct PortForwardSession {
    pod: String,
    namespace: String,
    container_ports: Vec<String>,
}

/// The error stream and the port of a data stream.
struct ForwardedPort {
    error_stream: u32,
    port: String,
}

impl PortForwardSession {
    pub(super) fn new(pod: &Value) -> PortForwardSession {
        let containers = list(pod, "/spec/containers").iter();
        let ports = containers.flat_map(|container| list(container, "/ports"));
        let container_ports =
            ports.filter_map(|port| number(port, "/containerPort")).map(|port| port.to_string());
        PortForwardSession {
            pod: name(pod).to_owned(),
            namespace: namespace(pod).to_owned(),
            container_ports: container_ports.collect(),
        }
    }

    /// Serves all ports until the client disconnects.
    pub(super) async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let mut spdy = Spdy::new(stream);
        // Error streams by request id, and forwarded ports by data stream.
        let (mut error_streams, mut ports) = (HashMap::new(), HashMap::new());
        while let Some(frame) = spdy.next().await? {
            match frame {
                SpdyFrame::Opened { stream, headers } => {
                    let header = |key: &str| {
                        let mut found = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
                        found.next().map(|(_, value)| value.clone()).unwrap_or_default()
                    };
                    let (request, port) = (header("requestID"), header("port"));
                    if header("streamType") == "error" {
                        error_streams.insert(request, stream);
                    } else if let Some(error_stream) = error_streams.remove(&request) {
                        self.connect(&mut spdy, stream, error_stream, &port).await?;
                        ports.insert(stream, ForwardedPort { error_stream, port });
                    }
                }
                SpdyFrame::Data { stream, bytes, is_last } => {
                    let Some(forwarded) = ports.get(&stream) else { continue };
                    let (response, ends) = self.respond(&forwarded.port, bytes);
                    let is_last = is_last || ends;
                    spdy.send(stream, &response, is_last).await?;
                    if is_last {
                        spdy.send(forwarded.error_stream, b"", true).await?;
                        ports.remove(&stream);
                    }
                }
                SpdyFrame::Reset { stream } => drop(ports.remove(&stream)),
            }
        }
        Ok(())
    }

    /// Reports an error if the pod has no such port.
    async fn connect(
        &self,
        spdy: &mut Spdy<impl AsyncRead + AsyncWrite + Unpin>,
        stream: u32,
        error_stream: u32,
        port: &str,
    ) -> io::Result<()> {
        if self.container_ports.iter().any(|container_port| container_port == port) {
            return Ok(());
        }
        let message = format!(
            "error forwarding port {port} to pod {}, namespace {}: connect: connection refused",
            self.pod, self.namespace
        );
        spdy.send(error_stream, message.as_bytes(), true).await?;
        spdy.send(stream, b"", true).await
    }

    /// Returns the response to some bytes, and whether it ends the connection.
    fn respond(&self, port: &str, bytes: Vec<u8>) -> (Vec<u8>, bool) {
        let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        let Some(request) = line.strip_suffix(" HTTP/1.1").or_else(|| line.strip_suffix(" HTTP/1.0")) else {
            return (bytes, false);
        };
        let body = format!("{request} at port {port} of {}\n", self.pod);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        ((head + &body).into_bytes(), true)
    }
}
