//! The range of addresses of Services.

use std::net::Ipv4Addr;

/// The range of cluster IPs. Each logical cluster has all of them to itself.
pub(crate) const ADDRESSES: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 12);
/// The first of them, which is the server's own.
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The range, as people write it.
pub(crate) fn cidr() -> String {
    format!("{}/{}", ADDRESSES.0, ADDRESSES.1)
}
