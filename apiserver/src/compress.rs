//! Bodies that are worth it go over the wire compressed.

use std::io::Write;

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// Smaller bodies cost more time than they save. As for Kubernetes.
pub(crate) const WORTH_BYTES: u64 = 128 << 10;
pub(crate) const GZIP: &str = "gzip";

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
    written.expect("writing to memory does not fail").into_inner().freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
