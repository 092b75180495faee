//! Hashes of content: equal texts have equal hashes, so a client can find out whether anything changed.

/// Returns 128 bits in upper-case hexadecimal. A client that chooses the content can make two texts collide. So a hash
/// may only answer a client about its own logical cluster: never use it to share content between tenants.
pub fn content(text: &[u8]) -> String {
    format!("{:032X}", xxhash_rust::xxh3::xxh3_128(text))
}

/// Returns the hash as a quoted HTTP entity tag.
pub fn entity_tag(text: &[u8]) -> String {
    format!("\"{}\"", content(text))
}
