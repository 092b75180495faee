//! Bodies of responses.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

/// The body of a response.
pub type Body = UnsyncBoxBody<Bytes, Broken>;

/// An answer breaks off in the middle. The client is not told why, but that it was not all: what ends in good order looks
/// complete. Only bodies from elsewhere can break.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the answer breaks off")]
pub struct Broken;

/// A body that is made here.
pub fn whole(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Body {
    body.map_err(|never| match never {}).boxed_unsync()
}

/// At most so much is sent at a time, unless a single object is longer.
///
/// A client that does not read holds at most 64 KB, of which HTTP/2 and TLS take some 50 KB for the connection. There is
/// room for twice this: one piece waits in HTTP, and one in TLS.
pub(crate) const CHUNK_BYTES: usize = 4 << 10;

/// A buffer for one piece.
pub(crate) fn chunk_buffer() -> BytesMut {
    BytesMut::with_capacity(CHUNK_BYTES)
}
