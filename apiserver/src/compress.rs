//! Bodies that are worth it go over the wire compressed.

use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use futures::stream;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::server::{Body, Broken};

/// Smaller bodies cost more time than they save. As for Kubernetes.
pub(crate) const WORTH_BYTES: u64 = 128 << 10;
pub(crate) const GZIP: &str = "gzip";
/// Why an encoder that writes to memory cannot fail.
const MEMORY: &str = "writing to memory does not fail";

/// How hard to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// For what is sent once: most of the gain for little of the time.
    Once,
    /// For what is kept and sent often.
    Often,
}

/// Whether a client takes gzip.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let said = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    said.flat_map(|text| text.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(GZIP));
        let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        named && !parts.any(refused)
    })
}

pub(crate) fn gzip(bytes: &[u8], effort: Effort) -> Bytes {
    let level = match effort {
        Effort::Once => Compression::fast(),
        Effort::Often => Compression::default(),
    };
    let mut encoder = GzEncoder::new(BytesMut::with_capacity(bytes.len() / 8).writer(), level);
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.expect(MEMORY).into_inner().freeze()
}

/// What was compressed here, as it was before.
pub(crate) fn gunzip(packed: &[u8]) -> Bytes {
    let mut decoder = GzDecoder::new(BytesMut::with_capacity(packed.len() * 8).writer());
    let written = decoder.write_all(packed).and_then(|()| decoder.finish());
    written.expect(MEMORY).into_inner().freeze()
}

/// A body that comes in pieces, compressed as they come: none of it waits for the rest.
pub(crate) fn gzip_pieces(body: Body) -> Body {
    let begun = (body, GzEncoder::new(Vec::new(), Compression::fast()));
    let frames = stream::unfold(Some(begun), async |state| {
        let (mut body, mut encoder) = state?;
        while let Some(frame) = body.frame().await {
            let piece = match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => piece,
                Ok(Err(_)) => continue,
                Err(broken) => return Some((Err(broken), None)),
            };
            encoder.write_all(&piece).expect(MEMORY);
            let made = std::mem::take(encoder.get_mut());
            if !made.is_empty() {
                return Some((data(made), Some((body, encoder))));
            }
        }
        Some((data(encoder.finish().expect(MEMORY)), None))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn data(bytes: Vec<u8>) -> Result<Frame<Bytes>, Broken> {
    Ok(Frame::data(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::io::Read;

    #[test]
    fn gzip_is_for_those_who_take_it() {
        let check = |sent: &str, expected: bool| {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, sent.parse().unwrap())]);
            assert_eq!(is_accepted(&headers), expected, "{sent}");
        };
        check("gzip", true);
        check("deflate, GZIP;q=0.5", true);
        check("gzip;q=0", false);
        check("gzip; q=0.0, br", false);
        check("identity", false);
        check("gzipped", false);
        assert!(!is_accepted(&HeaderMap::new()));
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let body = "{\"kind\":\"Pod\"}".repeat(10_000);
        for effort in [Effort::Once, Effort::Often] {
            let packed = gzip(body.as_bytes(), effort);
            let mut unpacked = String::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
            assert!(unpacked == body && packed.len() < body.len() / 50);
        }
    }

    #[tokio::test]
    async fn so_does_what_comes_in_pieces() {
        let pieces: Vec<String> = (0..300).map(|n| format!("{{\"name\":\"{n}\"}},").repeat(1000)).collect();
        let frames = stream::iter(pieces.clone()).map(|piece| data(piece.into_bytes()));
        let packed = gzip_pieces(StreamBody::new(frames).boxed_unsync()).collect().await.unwrap().to_bytes();
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
        assert!(unpacked == pieces.concat() && packed.len() < unpacked.len() / 50);
    }
}
