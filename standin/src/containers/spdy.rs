//! SPDY/3.1, as far as `kubectl port-forward`, `exec` and `attach` speak it: streams that are opened, written to and ended, on one connection.
//!
//! ```text
//!   control: 1 | version 15 bits | type 16 | flags 8 | length 24 | …      data: 0 | stream 31 | flags 8 | length 24 | bytes
//! ```
//!
//! Headers are compressed with zlib, all of a connection as one text, beginning with words that both sides know. There is
//! no flow control on such connections.

use std::io;

use apiserver::http::body::{Body, whole};
use bytes::{Buf, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const NAME: &str = "SPDY/3.1";
/// The header in which a client says what it speaks on the streams, and is told what is spoken.
pub(super) const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

const VERSION: u16 = 3;
const OPENED: u16 = 1;
const REPLY: u16 = 2;
const RESET: u16 = 3;
const PING: u16 = 6;
/// The one flag that matters: nothing more comes on this stream.
const LAST: u8 = 1;
const HEAD_BYTES: usize = 8;
/// The longest frame taken. kubectl sends 32 KiB at a time.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// The longest headers taken, when they are read. Those of a port are four.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// What the protocol says headers begin with before anybody has said anything: these with their lengths …
const KNOWN: [&str; 64] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
];
/// … and then this.
const KNOWN_TEXT: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized",
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable",
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,",
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

fn known() -> Vec<u8> {
    let word = |word: &&str| [&(word.len() as u32).to_be_bytes()[..], word.as_bytes()].concat();
    let words = KNOWN.iter().chain(&["origin"]).flat_map(word);
    words.chain(KNOWN_TEXT.bytes()).collect()
}

/// Whether a client asks to change over to SPDY.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(NAME.as_bytes()))
}

/// The answer that changes over.
pub(super) fn switch(protocol: &'static str) -> Response<Body> {
    let mut answer = Response::new(whole(Empty::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(NAME));
    headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    answer
}

/// What the client does.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Opened { stream: u32, headers: Vec<(String, String)> },
    Data { stream: u32, bytes: Vec<u8>, is_last: bool },
    Reset { stream: u32 },
}

/// One end of a connection. Reading and writing take turns.
pub(super) struct Spdy<S> {
    stream: S,
    /// What has come of the next frame.
    unread: BytesMut,
    /// Answers the client waits for, which go out before anything else is written or read.
    owed: BytesMut,
    inflate: Option<Decompress>,
    deflate: Compress,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Spdy<S> {
    pub(super) fn new(stream: S) -> Spdy<S> {
        let deflate = Compress::new(Compression::fast(), true);
        Spdy { stream, unread: BytesMut::new(), owed: BytesMut::new(), inflate: None, deflate }
    }

    /// What the client does next; none once it has left. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<Heard>> {
        loop {
            self.settle().await?;
            let Some((head, bytes)) = self.frame()? else {
                match self.stream.read_buf(&mut self.unread).await? {
                    0 if self.unread.is_empty() => return Ok(None),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                }
            };
            let first = number(&head[..4]);
            if first >> 31 == 0 {
                let is_last = head[4] & LAST != 0;
                return Ok(Some(Heard::Data { stream: first, bytes: bytes.to_vec(), is_last }));
            }
            let stream = number(bytes.get(..4).unwrap_or_default()) & 0x7fff_ffff;
            match u16::from_be_bytes([head[2], head[3]]) {
                OPENED => {
                    let headers = self.read_headers(bytes.get(10..).unwrap_or_default())?;
                    self.reply(stream)?;
                    return Ok(Some(Heard::Opened { stream, headers }));
                }
                RESET => return Ok(Some(Heard::Reset { stream })),
                PING => self.control(PING, &bytes),
                // Settings, and that the client is about to go.
                _ => {}
            }
        }
    }

    /// Head and content of the next frame, if it has come.
    fn frame(&mut self) -> io::Result<Option<([u8; HEAD_BYTES], BytesMut)>> {
        let Some(head) = self.unread.first_chunk::<HEAD_BYTES>().copied() else { return Ok(None) };
        let length = number(&[0, head[5], head[6], head[7]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(wrong("a frame is too long"));
        }
        if self.unread.len() < HEAD_BYTES + length {
            self.unread.reserve(HEAD_BYTES + length - self.unread.len());
            return Ok(None);
        }
        self.unread.advance(HEAD_BYTES);
        Ok(Some((head, self.unread.split_to(length))))
    }

    /// Writes what is owed. Cancel-safe.
    pub(super) async fn settle(&mut self) -> io::Result<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        self.stream.write_all_buf(&mut self.owed).await?;
        self.stream.flush().await
    }

    /// Hangs up.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    pub(super) async fn send(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        self.settle().await?;
        let length = (bytes.len() as u32).to_be_bytes();
        let flags = if is_last { LAST } else { 0 };
        let head = [&stream.to_be_bytes()[..], &[flags], &length[1..]].concat();
        self.stream.write_all(&[&head, bytes].concat()).await?;
        self.stream.flush().await
    }

    /// Takes a stream that the client has opened, without a word about it.
    fn reply(&mut self, stream: u32) -> io::Result<()> {
        let mut none = Vec::with_capacity(64);
        self.deflate
            .compress_vec(&0u32.to_be_bytes(), &mut none, FlushCompress::Sync)
            .map_err(|error| wrong(&error.to_string()))?;
        self.control(REPLY, &[&stream.to_be_bytes()[..], &none].concat());
        Ok(())
    }

    fn control(&mut self, kind: u16, payload: &[u8]) {
        let [version, kind] = [0x8000 | VERSION, kind].map(u16::to_be_bytes);
        let length = (payload.len() as u32).to_be_bytes();
        self.owed.extend_from_slice(&[&version[..], &kind, &length, payload].concat());
    }

    fn read_headers(&mut self, mut packed: &[u8]) -> io::Result<Vec<(String, String)>> {
        let mut text = Vec::with_capacity(HEADER_BYTES_MAX);
        let inflate = match &mut self.inflate {
            Some(inflate) => inflate,
            none => {
                // Two bytes say how it is packed, and four which words are known: only these are.
                packed = packed.get(6..).ok_or_else(|| wrong("there are no headers"))?;
                none.insert(begin()?)
            }
        };
        inflate
            .decompress_vec(packed, &mut text, FlushDecompress::Sync)
            .map_err(|error| wrong(&error.to_string()))?;
        parse(&text).ok_or_else(|| wrong("headers cannot be read"))
    }
}

/// An inflater that has seen what is known. The library has no word for that, so it is told as a piece that is not packed.
fn begin() -> io::Result<Decompress> {
    let (known, mut inflate) = (known(), Decompress::new(false));
    let length = (known.len() as u16).to_le_bytes();
    let piece = [&[0], &length[..], &length.map(|byte| !byte), &known].concat();
    let mut seen = Vec::with_capacity(known.len() + 1);
    inflate
        .decompress_vec(&piece, &mut seen, FlushDecompress::Sync)
        .map_err(|error| wrong(&error.to_string()))?;
    Ok(inflate)
}

/// How many, and then name and value of each with their lengths.
fn parse(mut text: &[u8]) -> Option<Vec<(String, String)>> {
    fn word<'t>(text: &mut &'t [u8]) -> Option<&'t [u8]> {
        let (length, rest) = text.split_at_checked(4)?;
        let (word, rest) = rest.split_at_checked(number(length) as usize)?;
        *text = rest;
        Some(word)
    }
    let (count, rest) = text.split_at_checked(4)?;
    text = rest;
    let text_of = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    (0..number(count)).map(|_| Some((text_of(word(&mut text)?), text_of(word(&mut text)?)))).collect()
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number by which the protocol knows its words.
    #[test]
    fn what_is_known_is_known_to_the_letter() {
        let (mut low, mut high) = (1u32, 0u32);
        for byte in known() {
            low = (low + u32::from(byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!(high << 16 | low, 0xe3c6_a7c2);
    }

    #[test]
    fn headers_that_break_off_are_none() {
        let whole = [&[0, 0, 0, 1, 0, 0, 0, 4][..], b"port", &[0, 0, 0, 2], b"80"].concat();
        assert_eq!(parse(&whole), Some(vec![("port".to_owned(), "80".to_owned())]));
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        assert_eq!(parse(&[0xff; 8]), None);
    }
}
