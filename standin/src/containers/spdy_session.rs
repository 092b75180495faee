//! A session of `exec` or `attach` over SPDY, which kubectl before 1.31 and most Go programs use: one stream each for
//! stdin, stdout, stderr and the exit status (`error`).
//!
//! ```text
//!   client opens  error, stdin?, stdout?, stderr?, resize?     the header `streamType` names each
//!   then          bytes on stdin ─►     ◄─ bytes on stdout and stderr     ◄─ a Status on error, and all end
//! ```

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use apiserver::http::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Response};
use openapi::meta::status::Status;
use tokio::io::{AsyncRead, AsyncWrite};

use super::spdy::{self, Spdy, SpdyFrame};
use super::websocket::{Channel, ClientMessage};

/// The first version that sends the exit status as a Status.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// How long a client may take to open its streams, and to close the connection after they have ended; as in a kubelet.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of stdin accepted before all streams are open: a few frames of 32 KiB.
const EARLY_BYTES_MAX: usize = 1 << 20;

/// Returns the response that switches protocols, if the client offers a supported one.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let offered = headers.get_all(spdy::STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|text| text.split(',')).map(str::trim).collect();
    match offered.contains(&PROTOCOL) {
        true => Ok(spdy::switching_protocols(PROTOCOL)),
        false => Err(Status::bad_request(format!("none of the protocols {offered:?} is supported"))),
    }
}

/// The streams that a client opens, according to its query.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedStreams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

/// The server's end of a session.
pub(super) struct SpdySession<S> {
    spdy: Spdy<S>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    error: Option<u32>,
    /// Messages that were received and not yet returned by `next`.
    received: VecDeque<ClientMessage>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> SpdySession<S> {
    /// Waits until the client has opened its streams.
    pub(super) async fn open(stream: S, requested: RequestedStreams) -> io::Result<SpdySession<S>> {
        let spdy = Spdy::new(stream);
        let mut streams = SpdySession {
            spdy,
            stdin: None,
            stdout: None,
            stderr: None,
            error: None,
            received: VecDeque::new(),
        };
        let opening = async {
            let mut early_bytes = 0;
            while !streams.are_open(requested) {
                match streams.spdy.next().await? {
                    Some(SpdyFrame::Opened { stream, headers }) => streams.set_stream(stream, &headers),
                    Some(SpdyFrame::Data { stream, bytes, is_last }) => {
                        early_bytes += bytes.len();
                        if early_bytes > EARLY_BYTES_MAX {
                            return Err(io::Error::new(
                                io::ErrorKind::InvalidData,
                                "too many bytes before all streams are open",
                            ));
                        }
                        streams.receive(stream, bytes, is_last);
                    }
                    Some(SpdyFrame::Reset { .. }) => {}
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            // The client also waits for the reply to its last stream.
            streams.spdy.flush_pending().await
        };
        tokio::time::timeout(TIMEOUT, opening).await??;
        Ok(streams)
    }

    fn are_open(&self, requested: RequestedStreams) -> bool {
        let is_open = |stream: Option<u32>, is_requested: bool| stream.is_some() || !is_requested;
        is_open(self.error, true)
            && is_open(self.stdin, requested.stdin)
            && is_open(self.stdout, requested.stdout)
            && is_open(self.stderr, requested.stderr)
    }

    fn set_stream(&mut self, stream: u32, headers: &[(String, String)]) {
        let kind = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("streamType"));
        match kind.map(|(_, kind)| kind.as_str()) {
            Some("stdin") => self.stdin = Some(stream),
            Some("stdout") => self.stdout = Some(stream),
            Some("stderr") => self.stderr = Some(stream),
            Some("error") => self.error = Some(stream),
            // Simulated containers do not use the size of the terminal.
            _ => {}
        }
    }

    fn receive(&mut self, stream: u32, bytes: Vec<u8>, is_last: bool) {
        if self.stdin != Some(stream) {
            return;
        }
        if !bytes.is_empty() {
            self.received.push_back(ClientMessage::Stdin(Bytes::from(bytes)));
        }
        if is_last {
            self.received.push_back(ClientMessage::StdinClosed);
        }
    }

    /// Returns the next message, or `None` after the client has disconnected. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<ClientMessage>> {
        loop {
            if let Some(message) = self.received.pop_front() {
                return Ok(Some(message));
            }
            match self.spdy.next().await? {
                Some(SpdyFrame::Data { stream, bytes, is_last }) => self.receive(stream, bytes, is_last),
                Some(SpdyFrame::Reset { stream }) => self.receive(stream, Vec::new(), true),
                Some(SpdyFrame::Opened { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// Sends on the stream of the channel, if the client opened one.
    pub(super) async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        let stream = match channel {
            Channel::Stdout => self.stdout,
            Channel::Stderr => self.stderr,
            Channel::Status => self.error,
        };
        match stream {
            Some(stream) => self.spdy.send(stream, bytes, false).await,
            None => Ok(()),
        }
    }

    /// Ends all streams, and waits for the client to close the connection: the client reports an error if the server
    /// closes it first.
    pub(super) async fn close(mut self) -> io::Result<()> {
        for stream in [self.stdout, self.stderr, self.error].into_iter().flatten() {
            self.spdy.send(stream, b"", true).await?;
        }
        let left = async { while let Ok(Some(_)) = self.spdy.next().await {} };
        // A client that does not close the connection in time is disconnected.
        let _ = tokio::time::timeout(TIMEOUT, left).await;
        self.spdy.shutdown().await
    }
}
