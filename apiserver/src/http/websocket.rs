//! WebSocket, for answers that are a series of messages: watches.
//!
//! ```text
//!   GET …?watch=1, Upgrade: websocket ─► verb: 101 and a body, each piece a message ─► hyper lets go of the connection
//!                                             the same task: piece ─► frame ─► flushed ─► the next piece … close
//! ```
//!
//! The task of the connection goes on with the session, so a session ends with all that ends a connection: eviction, the
//! client's certificate, shutdown. A piece is asked for when the one before has gone out, and nothing is read from the
//! client meanwhile; so there is one frame in memory, whatever the client does or does not do. What it sends is ignored,
//! as kube-apiserver ignores it, up to a size and a rate.

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

/// Mixed with the client's key to show that it was understood (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message a client may send. It has nothing to say but pings, which are at most 125 bytes.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const READ_BUFFER_BYTES: usize = 1 << 10;
/// Messages a client may send within a time. Clients ping twice a minute.
const MESSAGES_MAX: u32 = 100;
const MESSAGES_WITHIN: Duration = Duration::from_secs(10);
/// How long a client may take to read that it is over, and then to hang up.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// The kind of messages a body is sent as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Framing {
    Text,
    Binary,
}

/// A connection that changes over when its answer has gone out. Such an answer carries it.
#[derive(Clone, Debug)]
pub(super) struct Accepted {
    on: OnUpgrade,
    framing: Framing,
}

/// The answer that changes over, if the client asks for that as it should. Each piece of the body becomes a message.
pub(crate) fn accept(
    on: OnUpgrade,
    headers: &HeaderMap,
    framing: Framing,
    body: Body,
) -> Result<Response<Body>, Status> {
    let mut answer = handshake(headers)?.map(|()| body);
    answer.extensions_mut().insert(Accepted { on, framing });
    Ok(answer)
}

/// The same rules as kube-apiserver's, and one more about pages.
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
        return Err(forbidden("a WebSocket needs an Origin header with an address"));
    }
    check_page(headers)?;
    let protocol = text(SEC_WEBSOCKET_PROTOCOL);
    // There is none to choose for a watch: the only one that is offered is accepted.
    if protocol.contains(',') {
        return Err(Status::bad_request("Sec-WebSocket-Protocol must name one protocol, or none"));
    }
    let digest =
        ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{MAGIC}").as_bytes());
    let accepted = HeaderValue::from_str(&STANDARD.encode(digest)).expect("base64 is text");
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let told = answer.headers_mut();
    told.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    told.insert(UPGRADE, HeaderValue::from_static("websocket"));
    told.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    if let Ok(protocol) = HeaderValue::from_str(protocol.trim())
        && !protocol.is_empty()
    {
        told.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

/// Refuses connections that a page of another site opens. A browser presents its user's client certificate for any page, and
/// lets the page read what the server sends. Pages on this machine belong to programs that forward requests, such as
/// `kubectl proxy`. No page can make a browser send a bearer token.
pub(crate) fn check_page(headers: &HeaderMap) -> Result<(), Status> {
    let Some(origin) = headers.get(ORIGIN).filter(|_| bearer(headers).is_none()) else {
        return Ok(());
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let origin = parse_origin(origin);
    let page = origin.as_ref().and_then(Uri::authority);
    let is_known = page.is_some_and(|page| is_local(page) || host.is_some_and(|host| is_same(page, &host)));
    match is_known {
        true => Ok(()),
        false => Err(forbidden(
            "the page at the Origin header is not one of this server; send a token instead of a certificate",
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

/// What goes on on a connection after HTTP.
#[derive(Debug)]
pub(super) struct Session {
    accepted: Accepted,
    body: Body,
    answering: Answering,
}

/// Where the answer that changes a connection over leaves what comes after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequel(Arc<Mutex<Option<Session>>>);

impl Sequel {
    /// Keeps the body of an answer that changes over, which HTTP does not send.
    pub(super) fn keep(&self, mut answer: Response<Body>, answering: Answering) -> Response<Answered> {
        let Some(accepted) = answer.extensions_mut().remove::<Accepted>() else {
            return answer.map(|body| Answered::new(body, Some(answering)));
        };
        let (head, body) = answer.into_parts();
        let session = Session { accepted, body, answering };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        Response::from_parts(head, Answered::new(whole(Empty::new()), None))
    }

    /// Goes on until the body or the client ends, once HTTP has let go of the connection.
    pub(super) async fn run(self) -> io::Result<()> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Session { accepted, body, answering }) = session else { return Ok(()) };
        let upgraded = accepted.on.await.map_err(io::Error::other)?;
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
        // Every message is written when it comes.
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let ended = send_all(&mut socket, framing, &mut body).await;
    // A watch that is over counts no longer, however long the client takes to hang up.
    drop(body);
    match ended {
        Ended::Gone => {}
        // The reply to a close is queued already.
        Ended::ByClient => drop(timeout(CLOSE_LIMIT, socket.flush()).await),
        Ended::ByUs(code) => {
            let frame = CloseFrame { code, reason: Utf8Bytes::from_static("") };
            // One that does not read this either is hung up on.
            drop(timeout(CLOSE_LIMIT, socket.close(Some(frame))).await);
        }
    }
    hang_up(socket.get_mut()).await
}

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// The connection is broken.
    Gone,
    /// The client has said so.
    ByClient,
    /// For this reason.
    ByUs(CloseCode),
}

async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    framing: Framing,
    body: &mut Body,
) -> Ended {
    let mut heard = Heard::default();
    loop {
        tokio::select! {
            // A client that floods the server with messages must not delay events, its own or those of others on the thread.
            piece = body.frame() => match piece.map(|piece| piece.map(|piece| piece.into_data())) {
                Some(Ok(Ok(data))) => if socket.send(message(framing, data)).await.is_err() { return Ended::Gone },
                // Trailers, which no watch has.
                Some(Ok(Err(_))) => {}
                Some(Err(_)) => return Ended::ByUs(CloseCode::Error),
                None => return Ended::ByUs(CloseCode::Normal),
            },
            message = socket.next() => match message {
                Some(Ok(Message::Close(_))) => return Ended::ByClient,
                Some(Ok(_)) if heard.is_too_much() => return Ended::ByUs(CloseCode::Policy),
                // The answer to a ping is queued, and has gone out before anything else is read.
                Some(Ok(_)) => if socket.flush().await.is_err() { return Ended::Gone },
                Some(Err(error)) => return refused(&error),
                None => return Ended::Gone,
            },
        }
    }
}

fn message(framing: Framing, data: Bytes) -> Message {
    let opcode = match framing {
        Framing::Text => Data::Text,
        Framing::Binary => Data::Binary,
    };
    // A text is made here out of JSON, and not looked at once more for whether it is one.
    Message::Frame(Frame::message(data, OpCode::Data(opcode), true))
}

/// The close code for a message that cannot be parsed.
fn refused(error: &Error) -> Ended {
    match error {
        Error::Capacity(_) => Ended::ByUs(CloseCode::Size),
        Error::Protocol(_) => Ended::ByUs(CloseCode::Protocol),
        Error::Utf8(_) => Ended::ByUs(CloseCode::Invalid),
        _ => Ended::Gone,
    }
}

/// How many messages have come lately.
#[derive(Debug)]
struct Heard {
    since: Instant,
    count: u32,
}

impl Default for Heard {
    fn default() -> Heard {
        Heard { since: Instant::now(), count: 0 }
    }
}

impl Heard {
    /// Counts one.
    fn is_too_much(&mut self) -> bool {
        if self.since.elapsed() > MESSAGES_WITHIN {
            *self = Heard::default();
        }
        self.count += 1;
        self.count > MESSAGES_MAX
    }
}

/// Ends a connection so that the client reads what was sent last: a connection that is closed with unread bytes is reset, and takes along what is on its way.
async fn hang_up<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> io::Result<()> {
    let left = async {
        stream.shutdown().await?;
        let mut unread = [0; READ_BUFFER_BYTES];
        while stream.read(&mut unread).await? > 0 {}
        Ok(())
    };
    timeout(CLOSE_LIMIT, left).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use http_body_util::StreamBody;
    use tokio::io::DuplexStream;

    use super::*;

    type Client = WebSocketStream<DuplexStream>;

    /// A session on one end of a pipe, a client on the other.
    async fn session(body: Body, pipe_bytes: usize) -> (Client, impl Future<Output = io::Result<()>>) {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        (client, converse(server, Framing::Text, body))
    }

    fn pieces(texts: &'static [&'static str]) -> Body {
        let pieces = texts.iter().map(|text| Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes()))));
        StreamBody::new(stream::iter(pieces)).boxed_unsync()
    }

    fn endless() -> Body {
        StreamBody::new(stream::pending()).boxed_unsync()
    }

    /// What the client hears until it is over, and how it ends.
    async fn heard(client: &mut Client) -> (Vec<Message>, Option<CloseCode>) {
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
            let told = answer.as_ref().map_err(|status| status.code).map(|answer| {
                assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
                assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                answer.headers().get("sec-websocket-protocol").map_or("", |name| name.to_str().unwrap())
            });
            assert_eq!(told, expected, "{headers:?}");
        };
        check(&format!("{PLAIN}\n{KEY}"), Ok(""));
        check(&format!("{PLAIN}\n{KEY}\nSec-WebSocket-Protocol: one"), Ok("one"));
        check(&format!("{PLAIN}\n{KEY}\nSec-WebSocket-Protocol: one, two"), Err(400));
        check(PLAIN, Err(400));
        check(&format!("{KEY}\n{}", PLAIN.replace("13", "8")), Err(400));
        let from = |origin: &str| format!("{KEY}\nSec-WebSocket-Version: 13\nHost: holon:6443\n{origin}");
        check(&from("User-Agent: one"), Err(403));
        check(&from("Origin: null"), Err(403));
        // A page of another site, in a browser that has a client certificate.
        check(&from("Origin: https://evil.example"), Err(403));
        check(&from("Origin: https://holon"), Err(403));
        check(&from("Origin: https://localhost.evil.example"), Err(403));
        check(&from("Origin: http://localhost:8001"), Ok(""));
        check(&from("Origin: http://127.0.0.1:8001"), Ok(""));
        check(&from("Origin: http://[::1]:8001"), Ok(""));
        check(&from("Origin: https://evil.example\nAuthorization: Bearer x"), Ok(""));
        // A page can make a browser send a user name and a password, which authenticate no one here.
        check(&from("Origin: https://evil.example\nAuthorization: Basic eDp5"), Err(403));
        check(&from("Origin: https://HOLON:6443/"), Ok(""));
        let behind_443 = from("Origin: https://holon:443").replace("holon:6443", "holon");
        check(&behind_443, Ok(""));
    }

    #[tokio::test]
    async fn each_piece_is_a_message_and_the_end_is_a_close() {
        let (mut client, session) = session(pieces(&["one", "two"]), 1024).await;
        let ((messages, code), ended) = tokio::join!(heard(&mut client), session);
        assert_eq!(messages, ["one", "two"].map(|text| Message::Text(text.into())));
        assert_eq!((code, ended.is_ok()), (Some(CloseCode::Normal), true));
    }

    #[tokio::test]
    async fn pings_are_answered_and_what_clients_say_is_ignored() {
        let (mut client, session) = session(endless(), 1024).await;
        let talk = async {
            client.send(Message::Text("ignored".into())).await.unwrap();
            client.send(Message::Ping("are you there".into())).await.unwrap();
            assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("are you there".into()));
            client.close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })).await.unwrap();
            heard(&mut client).await
        };
        let ((messages, code), ended) = tokio::join!(talk, session);
        assert_eq!((messages, code, ended.is_ok()), (vec![], Some(CloseCode::Normal), true));
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_too_much_is_refused() {
        let check = async |message: Message, count: usize, expected: CloseCode| {
            let (mut client, session) = session(endless(), 1 << 20).await;
            let flood = async {
                for _ in 0..count {
                    // Fails once the server has hung up.
                    let _ = client.send(message.clone()).await;
                }
                heard(&mut client).await
            };
            let ((_, code), _) = tokio::join!(flood, session);
            assert_eq!(code, Some(expected), "{count} messages");
        };
        check(Message::Binary(vec![0; MESSAGE_BYTES_MAX + 1].into()), 1, CloseCode::Size).await;
        check(Message::Ping("x".into()), 1000, CloseCode::Policy).await;
        check(Message::Text("x".into()), 1000, CloseCode::Policy).await;
        // In pieces it is as long.
        let part = Frame::message(vec![0; 3000], OpCode::Data(Data::Binary), false);
        let rest = Frame::message(vec![0; 3000], OpCode::Data(Data::Continue), false);
        let (mut client, session) = session(endless(), 1 << 20).await;
        let parts = async {
            client.send(Message::Frame(part)).await.unwrap();
            client.send(Message::Frame(rest)).await.unwrap();
            heard(&mut client).await
        };
        assert_eq!(tokio::join!(parts, session).0.1, Some(CloseCode::Size));
        // A client has to mask what it sends; this one takes itself for a server.
        let (client, server) = tokio::io::duplex(1024);
        let mut client = WebSocketStream::from_raw_socket(client, Role::Server, None).await;
        let talk = async {
            client.send(Message::Text("unmasked".into())).await.unwrap();
            let mut raw = Vec::new();
            client.get_mut().read_to_end(&mut raw).await.unwrap();
            raw
        };
        let (raw, _) = tokio::join!(talk, converse(server, Framing::Text, endless()));
        assert_eq!(raw, [0x88, 2, 3, 0xea], "a close with code 1002");
    }

    /// A client that does not read costs one message, and one that pings without reading one pong.
    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_is_waited_for() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let pieces = stream::repeat_with(|| {
            TAKEN.fetch_add(1, Ordering::Relaxed);
            Ok(http_body::Frame::data(Bytes::from_static(&[b'x'; 1000])))
        });
        let (mut client, session) = session(StreamBody::new(pieces).boxed_unsync(), 512).await;
        let minute = Duration::from_secs(60);
        let stalled = async {
            // Fills the pipe, which the client does not read.
            let pings = async { while client.send(Message::Ping("x".into())).await.is_ok() {} };
            assert!(timeout(minute, pings).await.is_err());
            TAKEN.load(Ordering::Relaxed)
        };
        tokio::select! {
            _ = session => panic!("the session is over"),
            taken = stalled => assert!(taken <= 1, "{taken} messages were taken"),
        }
    }
}
