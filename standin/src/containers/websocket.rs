//! WebSocket as Kubernetes uses it for `exec` and `attach`: the first byte of each binary message names its channel.
//!
//! ```text
//!   0 stdin   1 stdout   2 stderr   3 the exit status, as a Status   4 size of the terminal   255 a channel is closed (v5)
//! ```

use std::io;

use apiserver::http::body::{Body, whole};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Empty;
use openapi::meta::status::Status;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

/// The supported subprotocols, in order of preference.
const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// The server proves the handshake with a digest of the client's key and this constant (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message accepted. kubectl sends 32 KiB at a time.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A channel from the container to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Channel {
    Stdout = 1,
    Stderr = 2,
    /// The exit status.
    Status = 3,
}

/// A message from the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ClientMessage {
    Stdin(Bytes),
    StdinClosed,
}

/// Returns the response that switches protocols, if the client offers a supported one.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text("sec-websocket-key");
    if !text("upgrade").eq_ignore_ascii_case("websocket") || key.is_empty() {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let offered = headers.get_all("sec-websocket-protocol").iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|text| text.split(',')).map(str::trim).collect();
    let Some(protocol) = PROTOCOLS.iter().find(|known| offered.contains(known)) else {
        return Err(Status::bad_request(format!("none of the protocols {offered:?} is supported")));
    };
    let digest =
        ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    let accepted = HeaderValue::from_str(&STANDARD.encode(digest)).expect("base64 is text");
    let mut response = Response::new(whole(Empty::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-accept", accepted);
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    Ok(response)
}

/// The server's end of a session.
#[derive(Debug)]
pub(super) struct WebSocket<S>(WebSocketStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    pub(super) async fn new(stream: S) -> WebSocket<S> {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        WebSocket(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await)
    }

    /// Returns the next message, or `None` after the client has disconnected. Answers pings. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<ClientMessage>> {
        while let Some(message) = self.0.next().await {
            match message.map_err(io_error)? {
                Message::Close(_) => return Ok(None),
                Message::Binary(bytes) => {
                    if let Some(message) = decode(&bytes) {
                        return Ok(Some(message));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    pub(super) async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        let message = Message::Binary([&[channel as u8], bytes].concat().into());
        self.0.send(message).await.map_err(io_error)
    }

    /// Sends a close frame, and closes the connection.
    pub(super) async fn close(mut self) -> io::Result<()> {
        let normal = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
        self.0.close(Some(normal)).await.map_err(io_error)?;
        self.0.get_mut().shutdown().await
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

/// Returns the message, or `None` for a resize of the terminal, which simulated containers do not use.
fn decode(message: &Bytes) -> Option<ClientMessage> {
    match message.split_first()? {
        (0, _) => Some(ClientMessage::Stdin(message.slice(1..))),
        (255, [0]) => Some(ClientMessage::StdinClosed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn the_preferred_protocol_that_the_client_offers_is_chosen() {
        let check = |protocols: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            // The example of RFC 6455.
            headers.insert("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
            headers.insert("sec-websocket-protocol", HeaderValue::from_str(protocols).unwrap());
            let response = accept(&headers);
            let chosen = response
                .as_ref()
                .ok()
                .map(|response| response.headers()["sec-websocket-protocol"].to_str().unwrap());
            assert_eq!(chosen, expected, "{protocols}");
            if let Ok(response) = &response {
                assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            }
        };
        check("v4.channel.k8s.io, v5.channel.k8s.io", Some("v5.channel.k8s.io"));
        check("v4.channel.k8s.io", Some("v4.channel.k8s.io"));
        check("channel.k8s.io", None);
        assert!(accept(&HeaderMap::new()).is_err());
    }

    #[tokio::test]
    async fn messages_in_several_frames_are_joined_and_pings_are_answered() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let mut socket = WebSocket::new(server).await;
        // "\0hello" in two masked frames, with a ping between.
        let masked = |head: u8, bytes: &[u8]| {
            let mask = [1, 2, 3, 4];
            let mut frame = vec![head, 0x80 | bytes.len() as u8, 1, 2, 3, 4];
            frame.extend(bytes.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
            frame
        };
        for frame in
            [masked(0x02, b"\0hel"), masked(0x89, b"?"), masked(0x80, b"lo"), masked(0x82, &[255, 0])]
        {
            client.write_all(&frame).await.unwrap();
        }
        assert_eq!(socket.next().await.unwrap(), Some(ClientMessage::Stdin(Bytes::from_static(b"hello"))));
        assert_eq!(socket.next().await.unwrap(), Some(ClientMessage::StdinClosed));
        let mut pong = [0; 3];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, &[0x8a, 1, b'?']);
        socket.send(Channel::Stdout, &[b'x'; 300]).await.unwrap();
        let mut head = [0; 5];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(head, [0x82, 126, 1, 45, 1]);
    }
}
