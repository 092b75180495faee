//! Response bodies.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// A response body.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// A body that ends early. The client learns no reason, but it must notice: a body that ends in the normal way looks
/// complete. Only bodies that are read while they are sent can break.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the response was aborted")]
pub struct Broken;

/// Returns a body that cannot break.
pub fn whole(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Body {
    body.map_err(|never| match never {}).boxed_unsync()
}

/// Maximum size of a chunk, unless a single object is larger.
///
/// A client that does not read makes the server hold at most 64 KB, of which HTTP/2 and TLS use some 50 KB per
/// connection. The rest suffices for two chunks, one in HTTP and one in TLS.
pub(crate) const CHUNK_BYTES: usize = 4 << 10;

/// Returns a buffer for one chunk.
pub(crate) fn chunk_buffer() -> BytesMut {
    BytesMut::with_capacity(CHUNK_BYTES)
}
