//! A name for content: equal texts have equal hashes, so a client can ask whether anything changed.

/// 128 bits in upper-case hexadecimal. A client that chooses the content can make two texts collide, so this tells a client
/// about its own logical cluster and nothing more: never share what one tenant wrote with another because of it.
pub fn content(text: &[u8]) -> String {
    format!("{:032X}", xxhash_rust::xxh3::xxh3_128(text))
}

/// The same as an HTTP entity tag, in its quotes.
pub fn entity_tag(text: &[u8]) -> String {
    format!("\"{}\"", content(text))
}
