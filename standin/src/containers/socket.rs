//! WebSocket as Kubernetes uses it for `exec`: binary messages, the first byte of each says which stream it is of.
//!
//! ```text
//!   0 stdin   1 stdout   2 stderr   3 how it ended, as a Status   4 size of the terminal   255 that a stream ends (v5)
//! ```

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Empty;
use openapi::meta::status::Status;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use apiserver::http::body::{Body, whole};

/// What we speak, the best first.
const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
/// Mixed with the client's key to show that it was understood (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message taken. kubectl sends 32 KiB at a time.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A stream of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Channel {
    Stdout = 1,
    Stderr = 2,
    End = 3,
}

/// What the client says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Stdin(Bytes),
    /// Nothing more comes on stdin.
    StdinEnds,
}

/// The answer that changes over, if the client asks for what we speak.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text("sec-websocket-key");
    if !text("upgrade").eq_ignore_ascii_case("websocket") || key.is_empty() {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let offered = headers.get_all("sec-websocket-protocol").iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|text| text.split(',')).map(str::trim).collect();
    let Some(protocol) = PROTOCOLS.iter().find(|known| offered.contains(known)) else {
        return Err(Status::bad_request(format!("none of the protocols {offered:?} is spoken here")));
    };
    let digest =
        ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    let accepted = HeaderValue::from_str(&STANDARD.encode(digest)).expect("base64 is text");
    let mut answer = Response::new(whole(Empty::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert("sec-websocket-accept", accepted);
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    Ok(answer)
}

/// One end of a session. Reading and writing take turns: a session answers what it was told.
#[derive(Debug)]
pub(super) struct Socket<S> {
    stream: S,
    /// What has come of a message that comes in several frames.
    begun: Vec<u8>,
}

impl<S> Socket<S> {
    pub(super) fn new(stream: S) -> Socket<S> {
        Socket { stream, begun: Vec::new() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// What the client says next; none once it has left.
    pub(super) async fn next(&mut self) -> io::Result<Option<Said>> {
        loop {
            let (kind, is_last, payload) = self.frame().await?;
            match kind {
                CLOSE => return Ok(None),
                PING => self.write(PONG, &payload).await?,
                PONG => {}
                _ => {
                    self.begun.extend_from_slice(&payload);
                    if is_last && let Some(said) = understood(&std::mem::take(&mut self.begun)) {
                        return Ok(Some(said));
                    }
                }
            }
        }
    }

    /// One for reading and one for writing, when neither is to wait for the other.
    pub(super) fn split(self) -> (Socket<ReadHalf<S>>, Socket<WriteHalf<S>>) {
        let (reading, writing) = tokio::io::split(self.stream);
        (Socket::new(reading), Socket::new(writing))
    }
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    pub(super) async fn pong(&mut self, ping: &[u8]) -> io::Result<()> {
        self.write(PONG, ping).await
    }

    pub(super) async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        let message: Vec<u8> = [&[channel as u8], bytes].concat();
        self.write(BINARY, &message).await
    }

    /// Says that it is over, and hangs up.
    pub(super) async fn close(mut self) -> io::Result<()> {
        const NORMAL: [u8; 2] = 1000u16.to_be_bytes();
        self.write(CLOSE, &NORMAL).await?;
        self.stream.shutdown().await
    }

    async fn write(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut frame = vec![0x80 | kind];
        match payload.len() {
            length @ 0..126 => frame.push(length as u8),
            length @ 126..65536 => {
                frame.push(126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(payload);
        self.stream.write_all(&frame).await?;
        self.stream.flush().await
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    /// What the client pings us with next; none once it has left. What else it says is passed over.
    pub(super) async fn ping(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.frame().await? {
                (CLOSE, ..) => return Ok(None),
                (PING, _, payload) => return Ok(Some(payload)),
                _ => {}
            }
        }
    }

    /// The next frame: what it is, whether a message ends with it, and what it carries.
    async fn frame(&mut self) -> io::Result<(u8, bool, Vec<u8>)> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).await?;
        let length = match head[1] & 0x7f {
            126 => u64::from(self.stream.read_u16().await?),
            127 => self.stream.read_u64().await?,
            short => u64::from(short),
        };
        if length > MESSAGE_BYTES_MAX - self.begun.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let mut mask = [0; 4];
        if head[1] & 0x80 != 0 {
            self.stream.read_exact(&mut mask).await?;
        }
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        Ok((head[0] & 0x0f, head[0] & 0x80 != 0, payload))
    }
}

/// What a message says. The size of the terminal is nothing anybody here looks at.
fn understood(message: &[u8]) -> Option<Said> {
    match message.split_first()? {
        (0, stdin) => Some(Said::Stdin(Bytes::copy_from_slice(stdin))),
        (255, [0]) => Some(Said::StdinEnds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_answered_in_what_it_speaks() {
        let check = |protocols: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            // The example of RFC 6455.
            headers.insert("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
            headers.insert("sec-websocket-protocol", HeaderValue::from_str(protocols).unwrap());
            let answer = accept(&headers);
            let chosen = answer
                .as_ref()
                .ok()
                .map(|answer| answer.headers()["sec-websocket-protocol"].to_str().unwrap());
            assert_eq!(chosen, expected, "{protocols}");
            if let Ok(answer) = &answer {
                assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
            }
        };
        check("v4.channel.k8s.io, v5.channel.k8s.io", Some("v5.channel.k8s.io"));
        check("v4.channel.k8s.io", Some("v4.channel.k8s.io"));
        check("channel.k8s.io", None);
        assert!(accept(&HeaderMap::new()).is_err());
    }

    #[tokio::test]
    async fn messages_are_unmasked_and_put_together() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let mut socket = Socket::new(server);
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
        assert_eq!(socket.next().await.unwrap(), Some(Said::Stdin(Bytes::from_static(b"hello"))));
        assert_eq!(socket.next().await.unwrap(), Some(Said::StdinEnds));
        let mut pong = [0; 3];
        client.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, &[0x8a, 1, b'?']);
        socket.send(Channel::Stdout, &[b'x'; 300]).await.unwrap();
        let mut head = [0; 5];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(head, [0x82, 126, 1, 45, 1]);
    }
}
