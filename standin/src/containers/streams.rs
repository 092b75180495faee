//! A session over SPDY, as kubectl before 1.31 and most Go programs ask for it: a stream each for what goes in, what comes
//! out, what goes wrong, and how it ended.
//!
//! ```text
//!   client opens  error, stdin?, stdout?, stderr?, resize?     each says in `streamType` which it is
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

use super::socket::{Channel, Said};
use super::spdy::{self, Heard, Spdy};

/// Says how a command ended as a Status, as WebSocket does. Older ones say less.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// How long a client may take to open its streams, and to hang up when all of them have ended; as a kubelet waits.
const WITHIN: Duration = Duration::from_secs(30);
/// What may come on stdin before all streams are open: a few frames of 32 KiB.
const EARLY_BYTES_MAX: usize = 1 << 20;

/// The answer that changes over, if the client speaks what we speak.
pub(super) fn accept(headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let offered = headers.get_all(spdy::STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|text| text.split(',')).map(str::trim).collect();
    match offered.contains(&PROTOCOL) {
        true => Ok(spdy::switch(PROTOCOL)),
        false => Err(Status::bad_request(format!("none of the protocols {offered:?} is spoken here"))),
    }
}

/// Which streams a client opens, by what it asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
}

/// One end of a session.
pub(super) struct Streams<S> {
    spdy: Spdy<S>,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    error: Option<u32>,
    /// What was said and not yet taken.
    said: VecDeque<Said>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Streams<S> {
    /// Waits until the client has opened its streams.
    pub(super) async fn open(stream: S, wanted: Wanted) -> io::Result<Streams<S>> {
        let spdy = Spdy::new(stream);
        let mut streams =
            Streams { spdy, stdin: None, stdout: None, stderr: None, error: None, said: VecDeque::new() };
        let opening = async {
            let mut early_bytes = 0;
            while !streams.are_open(wanted) {
                match streams.spdy.next().await? {
                    Some(Heard::Opened { stream, headers }) => streams.name(stream, &headers),
                    Some(Heard::Data { stream, bytes, is_last }) => {
                        early_bytes += bytes.len();
                        if early_bytes > EARLY_BYTES_MAX {
                            return Err(io::Error::new(
                                io::ErrorKind::InvalidData,
                                "too much before the streams are open",
                            ));
                        }
                        streams.hear(stream, bytes, is_last);
                    }
                    Some(Heard::Reset { .. }) => {}
                    None => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            // The client waits to hear that the last was taken, too.
            streams.spdy.settle().await
        };
        tokio::time::timeout(WITHIN, opening).await??;
        Ok(streams)
    }

    fn are_open(&self, wanted: Wanted) -> bool {
        let is_open = |stream: Option<u32>, is_wanted: bool| stream.is_some() || !is_wanted;
        is_open(self.error, true)
            && is_open(self.stdin, wanted.stdin)
            && is_open(self.stdout, wanted.stdout)
            && is_open(self.stderr, wanted.stderr)
    }

    fn name(&mut self, stream: u32, headers: &[(String, String)]) {
        let kind = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("streamType"));
        match kind.map(|(_, kind)| kind.as_str()) {
            Some("stdin") => self.stdin = Some(stream),
            Some("stdout") => self.stdout = Some(stream),
            Some("stderr") => self.stderr = Some(stream),
            Some("error") => self.error = Some(stream),
            // The size of the terminal is nothing anybody here looks at.
            _ => {}
        }
    }

    fn hear(&mut self, stream: u32, bytes: Vec<u8>, is_last: bool) {
        if self.stdin != Some(stream) {
            return;
        }
        if !bytes.is_empty() {
            self.said.push_back(Said::Stdin(Bytes::from(bytes)));
        }
        if is_last {
            self.said.push_back(Said::StdinEnds);
        }
    }

    /// What the client says next; none once it has left. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<Said>> {
        loop {
            if let Some(said) = self.said.pop_front() {
                return Ok(Some(said));
            }
            match self.spdy.next().await? {
                Some(Heard::Data { stream, bytes, is_last }) => self.hear(stream, bytes, is_last),
                Some(Heard::Reset { stream }) => self.hear(stream, Vec::new(), true),
                Some(Heard::Opened { .. }) => {}
                None => return Ok(None),
            }
        }
    }

    /// On the stream the client opened for it. What it did not ask for it is not sent.
    pub(super) async fn send(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<()> {
        let stream = match channel {
            Channel::Stdout => self.stdout,
            Channel::Stderr => self.stderr,
            Channel::End => self.error,
        };
        match stream {
            Some(stream) => self.spdy.send(stream, bytes, false).await,
            None => Ok(()),
        }
    }

    /// Ends all streams, and waits for the client to hang up: it reads until they end, and takes the end of the connection
    /// for an accident.
    pub(super) async fn close(mut self) -> io::Result<()> {
        for stream in [self.stdout, self.stderr, self.error].into_iter().flatten() {
            self.spdy.send(stream, b"", true).await?;
        }
        let left = async { while let Ok(Some(_)) = self.spdy.next().await {} };
        // One that stays is hung up on.
        let _ = tokio::time::timeout(WITHIN, left).await;
        self.spdy.shutdown().await
    }
}
