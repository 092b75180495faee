//! WebSocket responses, for watches.
//!
//! ```text
//!   GET …?watch=1, Upgrade: websocket ─► verb: 101 and a body, each chunk a message ─► hyper releases the connection
//!                                             the same task: chunk ─► frame ─► flushed ─► the next chunk … close
//! ```
//!
//! The task of the connection runs the session, so everything that ends a connection ends the session: eviction, expiry
//! of the certificate, shutdown. The next chunk is requested only when the previous one is sent, and nothing is read
//! from the client meanwhile. So one frame is in memory, whatever the client does. Messages from the client are
//! ignored, as in kube-apiserver, up to a size and a rate.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, HOST, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use openapi::meta::status::{GroupResource, Status};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame, Utf8Bytes};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::authn::identity::bearer;
use crate::http::body::{Body, whole};
use crate::http::connections::{Answered, Answering};

/// Hashed with the client's key for the handshake (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message a client may send. Clients only send pings, which have at most 125 bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const READ_BUFFER_BYTES: usize = 1 << 10;
/// The rate of messages from a client. Clients ping twice a minute.
const MESSAGES_MAX: u32 = 100;
const MESSAGES_WITHIN: Duration = Duration::from_secs(10);
/// Time for a client to read the close frame, and again to disconnect.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The type of the messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    Text,
    Binary,
}

/// An extension of the 101 response: the connection to use after it.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    upgrade: OnUpgrade,
    framing: Framing,
}

/// Returns the 101 response, if the client's handshake is valid. Each chunk of the body becomes a message.
pub(crate) fn accept(
    upgrade: OnUpgrade,
    headers: &HeaderMap,
    framing: Framing,
    body: Body,
) -> Result<Response<Body>, Status> {
    let mut answer = handshake(headers)?.map(|()| body);
    answer.extensions_mut().insert(Accepted { upgrade, framing });
    Ok(answer)
}

/// Checks the handshake with the rules of kube-apiserver, and the origin.
fn handshake(headers: &HeaderMap) -> Result<Response<()>, Status> {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let key = text(SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err(Status::bad_request("Sec-WebSocket-Key is missing"));
    }
    if text(SEC_WEBSOCKET_VERSION) != "13" {
        return Err(Status::bad_request("Sec-WebSocket-Version must be 13"));
    }
    if headers.get(ORIGIN).and_then(parse_origin).is_none() {
        return Err(forbidden("a WebSocket request needs an Origin header with a URL"));
    }
    check_page(headers)?;
    let protocol = text(SEC_WEBSOCKET_PROTOCOL);
    // Watches have no subprotocols to choose from: a single one is accepted.
    if protocol.contains(',') {
        return Err(Status::bad_request("Sec-WebSocket-Protocol must name at most one protocol"));
    }
    let digest =
        ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    let accepted = HeaderValue::from_str(&STANDARD.encode(digest)).expect("base64 is text");
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let response_headers = answer.headers_mut();
    response_headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response_headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    response_headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    if let Ok(protocol) = HeaderValue::from_str(protocol.trim())
        && !protocol.is_empty()
    {
        response_headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

/// Refuses connections from pages of other sites. A browser presents its user's client certificate for any page, and
/// lets the page read the messages of the server. Pages on this machine are allowed: they belong to programs that
/// forward requests, such as `kubectl proxy`. Requests with a bearer token are allowed, because a page cannot make a
/// browser send one.
pub(crate) fn check_page(headers: &HeaderMap) -> Result<(), Status> {
    let Some(origin) = headers.get(ORIGIN).filter(|_| bearer(headers).is_none()) else {
        return Ok(());
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let origin = parse_origin(origin);
    let page = origin.as_ref().and_then(Uri::authority);
    let is_allowed = page.is_some_and(|page| is_local(page) || host.is_some_and(|host| is_same(page, &host)));
    match is_allowed {
        true => Ok(()),
        false => Err(forbidden(
            "the Origin header names another site; authenticate with a bearer token instead of a client \
             certificate",
        )),
    }
}

fn forbidden(why: &str) -> Status {
    Status::forbidden(GroupResource::new("", ""), "", why)
}

fn parse_origin(origin: &HeaderValue) -> Option<Uri> {
    origin.to_str().ok()?.parse::<Uri>().ok().filter(|origin| origin.scheme().is_some())
}

fn is_local(page: &Authority) -> bool {
    let host = page.host().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_same(one: &Authority, other: &Authority) -> bool {
    let port = |authority: &Authority| authority.port_u16().unwrap_or(443);
    one.host().eq_ignore_ascii_case(other.host()) && port(one) == port(other)
}

/// The WebSocket session of a connection.
#[derive(Debug)]
pub(super) struct Session {
    accepted: Accepted,
    body: Body,
    answering: Answering,
}

/// The session that follows a 101 response, if the connection has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequel(Arc<Mutex<Option<Session>>>);

impl Sequel {
    /// Keeps the body of a 101 response for the session, because HTTP does not send it.
    pub(super) fn keep(&self, mut answer: Response<Body>, answering: Answering) -> Response<Answered> {
        let Some(accepted) = answer.extensions_mut().remove::<Accepted>() else {
            return answer.map(|body| Answered::new(body, Some(answering)));
        };
        let (head, body) = answer.into_parts();
        let session = Session { accepted, body, answering };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        Response::from_parts(head, Answered::new(whole(Empty::new()), None))
    }

    /// Runs the session, if there is one, once HTTP has released the connection. Returns when the body or the client
    /// ends it.
    pub(super) async fn run(self) -> io::Result<()> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Session { accepted, body, answering }) = session else { return Ok(()) };
        let upgraded = accepted.upgrade.await.map_err(io::Error::other)?;
        let ended = converse(TokioIo::new(upgraded), accepted.framing, body).await;
        drop(answering);
        ended
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    framing: Framing,
    mut body: Body,
) -> io::Result<()> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        // Every message is written at once.
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let ended = send_all(&mut socket, framing, &mut body).await;
    // The body is dropped now, so that the watch no longer counts while the client disconnects.
    drop(body);
    match ended {
        SessionEnd::Disconnected => {}
        // The reply to the client's close frame is queued already.
        SessionEnd::ByClient => drop(timeout(CLOSE_LIMIT, socket.flush()).await),
        SessionEnd::ByUs(code) => {
            let frame = CloseFrame { code, reason: Utf8Bytes::from_static("") };
            // A client that does not read this either is disconnected.
            drop(timeout(CLOSE_LIMIT, socket.close(Some(frame))).await);
        }
    }
    hang_up(socket.get_mut()).await
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionEnd {
    /// The connection broke.
    Disconnected,
    /// The client sent a close frame.
    ByClient,
    /// The server closes it with this code.
    ByUs(CloseCode),
}

async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    framing: Framing,
    body: &mut Body,
) -> SessionEnd {
    let mut rate = MessageRate::default();
    loop {
        tokio::select! {
            // `select!` is random, so a client that floods the server with messages cannot delay events.
            frame = body.frame() => match frame.map(|frame| frame.map(|frame| frame.into_data())) {
                Some(Ok(Ok(data))) => if socket.send(message(framing, data)).await.is_err() { return SessionEnd::Disconnected },
                // Trailers, which watches do not have.
                Some(Ok(Err(_))) => {}
                Some(Err(_)) => return SessionEnd::ByUs(CloseCode::Error),
                None => return SessionEnd::ByUs(CloseCode::Normal),
            },
            message = socket.next() => match message {
                Some(Ok(Message::Close(_))) => return SessionEnd::ByClient,
                Some(Ok(_)) if rate.is_exceeded() => return SessionEnd::ByUs(CloseCode::Policy),
                // The pong is queued, and sent before anything else is read.
                Some(Ok(_)) => if socket.flush().await.is_err() { return SessionEnd::Disconnected },
                Some(Err(error)) => return refused(&error),
                None => return SessionEnd::Disconnected,
            },
        }
    }
}

fn message(framing: Framing, data: Bytes) -> Message {
    let opcode = match framing {
        Framing::Text => Data::Text,
        Framing::Binary => Data::Binary,
    };
    // The text is JSON from this server, so it is not checked for UTF-8 again.
    Message::Frame(Frame::message(data, OpCode::Data(opcode), true))
}

/// Returns the close code for an invalid message.
fn refused(error: &Error) -> SessionEnd {
    match error {
        Error::Capacity(_) => SessionEnd::ByUs(CloseCode::Size),
        Error::Protocol(_) => SessionEnd::ByUs(CloseCode::Protocol),
        Error::Utf8(_) => SessionEnd::ByUs(CloseCode::Invalid),
        _ => SessionEnd::Disconnected,
    }
}

/// The number of recent messages from the client.
#[derive(Debug)]
struct MessageRate {
    since: Instant,
    count: u32,
}

impl Default for MessageRate {
    fn default() -> MessageRate {
        MessageRate { since: Instant::now(), count: 0 }
    }
}

impl MessageRate {
    /// Counts a message. Reports whether there are too many.
    fn is_exceeded(&mut self) -> bool {
        if self.since.elapsed() > MESSAGES_WITHIN {
            *self = MessageRate::default();
        }
        self.count += 1;
        self.count > MESSAGES_MAX
    }
}

/// Closes a connection so that the client can read the last bytes. Closing a connection with unread bytes would reset
/// it and lose them.
async fn hang_up<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    let drained = async {
        stream.shutdown().await?;
        let mut unread = [0; READ_BUFFER_BYTES];
        while stream.read(&mut unread).await? > 0 {}
        Ok(())
    };
    timeout(CLOSE_LIMIT, drained).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use http_body_util::StreamBody;
    use tokio::io::DuplexStream;

    use super::*;

    type Client = WebSocketStream<DuplexStream>;

    /// Returns a client, and the session at the other end of a pipe.
    async fn session(body: Body, pipe_bytes: usize) -> (Client, impl Future<Output = io::Result<()>>) {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        (client, converse(server, Framing::Text, body))
    }

    fn chunks(texts: &'static [&'static str]) -> Body {
        let chunks = texts.iter().map(|text| Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes()))));
        StreamBody::new(stream::iter(chunks)).boxed_unsync()
    }

    fn endless() -> Body {
        StreamBody::new(stream::pending()).boxed_unsync()
    }

    /// Returns the messages that the client receives, and the close code.
    async fn receive_all(client: &mut Client) -> (Vec<Message>, Option<CloseCode>) {
        let mut messages = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            match message {
                Message::Close(frame) => return (messages, frame.map(|frame| frame.code)),
                message => messages.push(message),
            }
        }
        (messages, None)
    }

    #[test]
    fn a_handshake_is_answered_as_kubernetes_does() {
        const PLAIN: &str = "Sec-WebSocket-Version: 13\nOrigin: https://holon:6443\nHost: holon:6443";
        // The example of RFC 6455.
        const KEY: &str = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
        let check = |lines: &str, expected: Result<&str, u16>| {
            let lines = lines.lines().map(|line| line.split_once(": ").unwrap());
            let headers = lines.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let headers: HeaderMap = headers.collect();
            let answer = handshake(&headers);
            let outcome = answer.as_ref().map_err(|status| status.code).map(|answer| {
                assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
                assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                answer.headers().get("sec-websocket-protocol").map_or("", |name| name.to_str().unwrap())
            });
            assert_eq!(outcome, expected, "{headers:?}");
        };
        check(&format!("{PLAIN}\n{KEY}"), Ok(""));
        check(&format!("{PLAIN}\n{KEY}\nSec-WebSocket-Protocol: one"), Ok("one"));
        check(&format!("{PLAIN}\n{KEY}\nSec-WebSocket-Protocol: one, two"), Err(400));
        check(PLAIN, Err(400));
        check(&format!("{KEY}\n{}", PLAIN.replace("13", "8")), Err(400));
        let from = |origin: &str| format!("{KEY}\nSec-WebSocket-Version: 13\nHost: holon:6443\n{origin}");
        check(&from("User-Agent: one"), Err(403));
        check(&from("Origin: null"), Err(403));
        // A page of another site, in a browser with a client certificate.
        check(&from("Origin: https://evil.example"), Err(403));
        check(&from("Origin: https://holon"), Err(403));
        check(&from("Origin: https://localhost.evil.example"), Err(403));
        check(&from("Origin: http://localhost:8001"), Ok(""));
        check(&from("Origin: http://127.0.0.1:8001"), Ok(""));
        check(&from("Origin: http://[::1]:8001"), Ok(""));
        check(&from("Origin: https://evil.example\nAuthorization: Bearer x"), Ok(""));
        // A page can make a browser send a user name and password, which this server does not accept.
        check(&from("Origin: https://evil.example\nAuthorization: Basic eDp5"), Err(403));
        check(&from("Origin: https://HOLON:6443/"), Ok(""));
        let behind_443 = from("Origin: https://holon:443").replace("holon:6443", "holon");
        check(&behind_443, Ok(""));
    }

    #[tokio::test]
    async fn each_chunk_is_a_message_and_the_end_is_a_close_frame() {
        let (mut client, session) = session(chunks(&["one", "two"]), 1024).await;
        let ((messages, code), ended) = tokio::join!(receive_all(&mut client), session);
        assert_eq!(messages, ["one", "two"].map(|text| Message::Text(text.into())));
        assert_eq!((code, ended.is_ok()), (Some(CloseCode::Normal), true));
    }

    #[tokio::test]
    async fn pings_are_answered_and_messages_of_clients_are_ignored() {
        let (mut client, session) = session(endless(), 1024).await;
        let exchange = async {
            client.send(Message::Text("ignored".into())).await.unwrap();
            client.send(Message::Ping("are you there".into())).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
            client.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await.unwrap();
            receive_all(&mut client).await
        };
        let ((messages, code), ended) = tokio::join!(exchange, session);
        assert_eq!((messages, code, ended.is_ok()), (vec![], Some(CloseCode::Normal), true));
    }

    #[tokio::test(start_paused = true)]
    async fn too_large_or_too_many_messages_close_the_connection() {
        let check = async |message: Message, count: usize, expected: CloseCode| {
            let (mut client, session) = session(endless(), 1 << 20).await;
            let flood = async {
                for _ in 0..count {
                    // Fails once the server has disconnected.
                    let _ = client.send(message.clone()).await;
                }
                receive_all(&mut client).await
            };
            let ((_, code), _) = tokio::join!(flood, session);
            assert_eq!(code, Some(expected), "{count} messages");
        };
        check(Message::Binary(vec![0; MESSAGE_BYTES_MAX + 1].into()), 1, CloseCode::Size).await;
        check(Message::Ping("x".into()), 1000, CloseCode::Policy).await;
        check(Message::Text("x".into()), 1000, CloseCode::Policy).await;
        // Fragments are added up.
        let first_frame = Frame::message(vec![0; 3000], OpCode::Data(Data::Binary), false);
        let rest = Frame::message(vec![0; 3000], OpCode::Data(Data::Continue), false);
        let (mut client, session) = session(endless(), 1 << 20).await;
        let frames = async {
            client.send(Message::Frame(first_frame)).await.unwrap();
            client.send(Message::Frame(rest)).await.unwrap();
            receive_all(&mut client).await
        };
        assert_eq!(tokio::join!(frames, session).0.1, Some(CloseCode::Size));
        // Clients must mask their messages. This one acts as a server and does not.
        let (client, server) = tokio::io::duplex(1024);
        let mut client = WebSocketStream::from_raw_socket(client, Role::Server, None).await;
        let exchange = async {
            client.send(Message::Text("unmasked".into())).await.unwrap();
            let mut raw = Vec::new();
            client.get_mut().read_to_end(&mut raw).await.unwrap();
            raw
        };
        let (raw, _) = tokio::join!(exchange, converse(server, Framing::Text, endless()));
        assert_eq!(raw, [0x88, 2, 3, 0xea], "a close with code 1002");
    }

    /// A client that does not read costs one message; one that pings without reading costs one pong.
    #[tokio::test(start_paused = true)]
    async fn at_most_one_message_is_buffered_for_a_client_that_does_not_read() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let chunks = stream::repeat_with(|| {
            TAKEN.fetch_add(1, Ordering::Relaxed);
            Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 1000])))
        });
        let (mut client, session) = session(StreamBody::new(chunks).boxed_unsync(), 512).await;
        let minute = Duration::from_secs(60);
        let stalled = async {
            // Fills the pipe, which the client does not read.
            let pings = async { while client.send(Message::Ping("x".into())).await.is_ok() {} };
            assert!(timeout(minute, pings).await.is_err());
            TAKEN.load(Ordering::Relaxed)
        };
        tokio::select! {
            _ = session => panic!("the session has ended"),
            taken = stalled => assert!(taken <= 1, "{taken} messages were taken"),
        }
    }
}
