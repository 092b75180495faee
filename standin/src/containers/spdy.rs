//! SPDY/3.1 as `kubectl port-forward`, `exec` and `attach` use it: several streams on one connection.
//!
//! ```text
//!   control: 1 | version 15 bits | type 16 | flags 8 | length 24 | …      data: 0 | stream 31 | flags 8 | length 24 | bytes
//! ```
//!
//! All headers of a connection are one zlib stream with a preset dictionary. Kubernetes uses no flow control.

use std::io;

use apiserver::http::body::{Body, whole};
use bytes::{Buf, BytesMut};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Empty;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const NAME: &str = "SPDY/3.1";
/// The header that negotiates the subprotocol.
pub(super) const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
/// The flag FIN: the sender closes its side of the stream.
const FIN: u8 = 1;
const HEADER_BYTES: usize = 8;
/// The longest frame accepted. kubectl sends 32 KiB at a time.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// The longest headers accepted, uncompressed. A forwarded port has four.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// The preset dictionary of the protocol begins with these words and their lengths …
const DICTIONARY_WORDS: [&str; 64] = [
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
/// … and ends with this text.
const DICTIONARY_TEXT: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized",
    "403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable",
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,",
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

fn dictionary() -> Vec<u8> {
    let word = |word: &&str| [&(word.len() as u32).to_be_bytes()[..], word.as_bytes()].concat();
    let words = DICTIONARY_WORDS.iter().chain(&["origin"]).flat_map(word);
    words.chain(DICTIONARY_TEXT.bytes()).collect()
}

/// Returns whether a client requests a switch to SPDY.
pub(super) fn is_requested(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|requested| requested.as_bytes().eq_ignore_ascii_case(NAME.as_bytes()))
}

/// Returns the response that switches protocols.
pub(super) fn switching_protocols(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(whole(Empty::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(NAME));
    headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
    response
}

/// A frame from the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SpdyFrame {
    Opened { stream: u32, headers: Vec<(String, String)> },
    Data { stream: u32, bytes: Vec<u8>, is_last: bool },
    Reset { stream: u32 },
}

/// The server's end of a connection.
pub(super) struct Spdy<S> {
    stream: S,
    /// Received bytes of the next frame.
    unread: BytesMut,
    /// Replies that are written before the next read or write.
    pending: BytesMut,
    inflate: Option<Decompress>,
    deflate: Compress,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Spdy<S> {
    pub(super) fn new(stream: S) -> Spdy<S> {
        let deflate = Compress::new(Compression::fast(), true);
        Spdy { stream, unread: BytesMut::new(), pending: BytesMut::new(), inflate: None, deflate }
    }

    /// Returns the next frame, or `None` after the client has disconnected. Cancel-safe.
    pub(super) async fn next(&mut self) -> io::Result<Option<SpdyFrame>> {
        loop {
            self.flush_pending().await?;
            let Some((head, bytes)) = self.frame()? else {
                match self.stream.read_buf(&mut self.unread).await? {
                    0 if self.unread.is_empty() => return Ok(None),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => continue,
                }
            };
            let first = number(&head[..4]);
            if first >> 31 == 0 {
                let is_last = head[4] & FIN != 0;
                return Ok(Some(SpdyFrame::Data { stream: first, bytes: bytes.to_vec(), is_last }));
            }
            let stream = number(bytes.get(..4).unwrap_or_default()) & 0x7fff_ffff;
            match u16::from_be_bytes([head[2], head[3]]) {
                SYN_STREAM => {
                    let headers = self.read_headers(bytes.get(10..).unwrap_or_default())?;
                    self.reply(stream)?;
                    return Ok(Some(SpdyFrame::Opened { stream, headers }));
                }
                RST_STREAM => return Ok(Some(SpdyFrame::Reset { stream })),
                PING => self.control(PING, &bytes),
                // SETTINGS and GOAWAY.
                _ => {}
            }
        }
    }

    /// Returns header and payload of the next frame, if it has been received.
    fn frame(&mut self) -> io::Result<Option<([u8; HEADER_BYTES], BytesMut)>> {
        let Some(head) = self.unread.first_chunk::<HEADER_BYTES>().copied() else { return Ok(None) };
        let length = number(&[0, head[5], head[6], head[7]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(invalid("the frame is too long"));
        }
        if self.unread.len() < HEADER_BYTES + length {
            self.unread.reserve(HEADER_BYTES + length - self.unread.len());
            return Ok(None);
        }
        self.unread.advance(HEADER_BYTES);
        Ok(Some((head, self.unread.split_to(length))))
    }

    /// Writes pending replies. Cancel-safe.
    pub(super) async fn flush_pending(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.stream.write_all_buf(&mut self.pending).await?;
        self.stream.flush().await
    }

    /// Closes the connection.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    pub(super) async fn send(&mut self, stream: u32, bytes: &[u8], is_last: bool) -> io::Result<()> {
        self.flush_pending().await?;
        let length = (bytes.len() as u32).to_be_bytes();
        let flags = if is_last { FIN } else { 0 };
        let head = [&stream.to_be_bytes()[..], &[flags], &length[1..]].concat();
        self.stream.write_all(&[&head, bytes].concat()).await?;
        self.stream.flush().await
    }

    /// Accepts a stream that the client has opened, with empty headers.
    fn reply(&mut self, stream: u32) -> io::Result<()> {
        let mut empty_headers = Vec::with_capacity(64);
        self.deflate
            .compress_vec(&0u32.to_be_bytes(), &mut empty_headers, FlushCompress::Sync)
            .map_err(|error| invalid(&error.to_string()))?;
        self.control(SYN_REPLY, &[&stream.to_be_bytes()[..], &empty_headers].concat());
        Ok(())
    }

    fn control(&mut self, kind: u16, payload: &[u8]) {
        let [version, kind] = [0x8000 | VERSION, kind].map(u16::to_be_bytes);
        let length = (payload.len() as u32).to_be_bytes();
        self.pending.extend_from_slice(&[&version[..], &kind, &length, payload].concat());
    }

    fn read_headers(&mut self, mut compressed: &[u8]) -> io::Result<Vec<(String, String)>> {
        let mut text = Vec::with_capacity(HEADER_BYTES_MAX);
        let inflate = match &mut self.inflate {
            Some(inflate) => inflate,
            none => {
                // The zlib header is two bytes, and the id of the dictionary four. There is only one dictionary.
                compressed = compressed.get(6..).ok_or_else(|| invalid("the headers are missing"))?;
                none.insert(inflate_with_dictionary()?)
            }
        };
        inflate
            .decompress_vec(compressed, &mut text, FlushDecompress::Sync)
            .map_err(|error| invalid(&error.to_string()))?;
        parse_headers(&text).ok_or_else(|| invalid("the headers are malformed"))
    }
}

/// Returns an inflater with the preset dictionary. flate2 cannot set one, so the dictionary is passed in as a stored
/// block.
fn inflate_with_dictionary() -> io::Result<Decompress> {
    let (dictionary, mut inflate) = (dictionary(), Decompress::new(false));
    let length = (dictionary.len() as u16).to_le_bytes();
    let block = [&[0], &length[..], &length.map(|byte| !byte), &dictionary].concat();
    let mut seen = Vec::with_capacity(dictionary.len() + 1);
    inflate
        .decompress_vec(&block, &mut seen, FlushDecompress::Sync)
        .map_err(|error| invalid(&error.to_string()))?;
    Ok(inflate)
}

/// Parses headers: their number, and then name and value of each with their lengths.
fn parse_headers(mut text: &[u8]) -> Option<Vec<(String, String)>> {
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

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The protocol identifies its dictionary by its Adler-32 checksum.
    #[test]
    fn the_dictionary_has_the_checksum_of_the_protocol() {
        let (mut low, mut high) = (1u32, 0u32);
        for byte in dictionary() {
            low = (low + u32::from(byte)) % 65521;
            high = (high + low) % 65521;
        }
        assert_eq!(high << 16 | low, 0xe3c6_a7c2);
    }

    #[test]
    fn truncated_headers_are_refused() {
        let complete = [&[0, 0, 0, 1, 0, 0, 0, 4][..], b"port", &[0, 0, 0, 2], b"80"].concat();
        assert_eq!(parse_headers(&complete), Some(vec![("port".to_owned(), "80".to_owned())]));
        for length in 0..complete.len() {
            assert_eq!(parse_headers(&complete[..length]), None, "{length}");
        }
        assert_eq!(parse_headers(&[0xff; 8]), None);
    }
}
