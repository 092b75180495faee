//! Compression of responses.

use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::write::{GzDecoder, GzEncoder};
use flate2::{Compress, Compression, Crc, FlushCompress};
use futures::stream;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::http::body::CHUNK_BYTES;
use crate::http::body::{Body, Broken};

/// Smaller bodies cost more time than they save. As in Kubernetes.
pub(crate) const WORTH_BYTES: u64 = 128 << 10;
pub(crate) const GZIP: &str = "gzip";
/// The reason for `expect`.
const MEMORY: &str = "writing to memory does not fail";

/// The compression level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// For a body that is sent once: most of the gain for little time.
    Once,
    /// For a document that is kept and sent often.
    Often,
}

/// Reports whether a client accepts gzip.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|text| text.split(',')).any(|coding| {
        let mut parameters = coding.split(';').map(str::trim);
        let is_gzip = parameters.next().is_some_and(|name| name.eq_ignore_ascii_case(GZIP));
        let refused = |parameter: &str| parameter.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
        is_gzip && !parameters.any(refused)
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

/// Decompresses bytes that were compressed here.
pub(crate) fn gunzip(packed: &[u8]) -> Bytes {
    let mut decoder = GzDecoder::new(BytesMut::with_capacity(packed.len() * 8).writer());
    let written = decoder.write_all(packed).and_then(|()| decoder.finish());
    written.expect(MEMORY).into_inner().freeze()
}

/// Maximum input of one encoder: enough to find repetitions.
const STRETCH_BYTES: usize = 64 << 10;
/// Compressed bytes are sent when there are this many.
const PACKED_BYTES: usize = CHUNK_BYTES / 2;
/// The magic number, deflate, no flags, no time, no extra flags, an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty deflate block that is marked as the last.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// Compresses a streamed body chunk by chunk, so that no chunk waits for the rest of the body.
///
/// An encoder holds some 300 KB, which a client that does not read would keep allocated. So each stretch of the body
/// gets its own encoder, which is dropped before the server waits for the client. Deflate blocks without references to
/// earlier data can be concatenated; only the checksum continues. A stretch ends when its output is large enough,
/// because that output is what such a client keeps allocated.
pub(crate) fn gzip_chunks(body: Body) -> Body {
    let frames = stream::unfold(Some(Packing { body, sum: Crc::new(), is_begun: false }), async |state| {
        let mut packing = state?;
        match packing.next().await {
            Ok((bytes, true)) => Some((Ok(Frame::data(bytes.into())), None)),
            Ok((bytes, false)) => Some((Ok(Frame::data(bytes.into())), Some(packing))),
            Err(broken) => Some((Err(broken), None)),
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A body that is being compressed.
struct Packing {
    body: Body,
    sum: Crc,
    is_begun: bool,
}

impl Packing {
    /// Returns the next stretch, and whether it is the last.
    async fn next(&mut self) -> Result<(Vec<u8>, bool), Broken> {
        let mut out = if self.is_begun { Vec::new() } else { GZIP_HEADER.to_vec() };
        self.is_begun = true;
        let (mut encoder, mut taken) = (Compress::new(Compression::fast(), false), 0);
        while taken < STRETCH_BYTES && out.len() < PACKED_BYTES {
            let Some(frame) = self.body.frame().await.transpose()? else {
                out.extend(LAST_BLOCK);
                out.extend(self.sum.sum().to_le_bytes());
                out.extend(self.sum.amount().to_le_bytes());
                return Ok((out, true));
            };
            let Ok(chunk) = frame.into_data() else { continue };
            self.sum.update(&chunk);
            taken += chunk.len();
            // The encoder is flushed after each chunk, at the cost of a few bytes: otherwise the size of the output is
            // unknown.
            pack(&mut encoder, &chunk, &mut out);
        }
        out.shrink_to_fit();
        Ok((out, false))
    }
}

/// Compresses all of `chunk`, up to a byte boundary.
fn pack(encoder: &mut Compress, mut chunk: &[u8], out: &mut Vec<u8>) {
    loop {
        out.reserve(chunk.len() / 4 + 1024);
        let before = encoder.total_in();
        let status = encoder.compress_vec(chunk, out, FlushCompress::Sync).expect(MEMORY);
        chunk = &chunk[(encoder.total_in() - before) as usize..];
        // Room is left only if the encoder has written everything.
        if chunk.is_empty() && out.len() < out.capacity() || status == flate2::Status::StreamEnd {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::io::Read;

    #[test]
    fn gzip_is_used_only_for_clients_that_accept_it() {
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
    fn compressed_bodies_decompress_to_the_original() {
        let body = "{\"kind\":\"Pod\"}".repeat(10_000);
        for effort in [Effort::Once, Effort::Often] {
            let packed = gzip(body.as_bytes(), effort);
            let mut unpacked = String::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut unpacked).unwrap();
            assert!(unpacked == body && packed.len() < body.len() / 50);
        }
    }

    #[tokio::test]
    async fn streamed_bodies_decompress_to_the_original() {
        let check = async |chunks: Vec<Vec<u8>>, gain: usize| {
            let frames = stream::iter(chunks.clone()).map(|chunk| Ok(Frame::data(chunk.into())));
            let mut body = gzip_chunks(StreamBody::new(frames).boxed_unsync());
            let mut packed = Vec::new();
            while let Some(frame) = body.frame().await {
                let stretch = frame.unwrap().into_data().unwrap();
                assert!(stretch.len() < PACKED_BYTES + CHUNK_BYTES + 64, "{}", stretch.len());
                packed.extend_from_slice(&stretch);
            }
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
            assert!(unpacked == chunks.concat() && packed.len() * gain <= unpacked.len() + 4096);
        };
        check((0..300).map(|n| format!("{{\"name\":\"{n}\"}},").repeat(200).into_bytes()).collect(), 25)
            .await;
        // Also data that cannot be compressed.
        check((0..30).map(|_| rand::random_iter().take(CHUNK_BYTES).collect()).collect(), 1).await;
        check(Vec::new(), 1).await;
    }
}
