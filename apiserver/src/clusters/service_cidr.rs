//! The range of addresses of Services.

use std::net::Ipv4Addr;

/// The range of cluster IPs. Each logical cluster has the whole range to itself.
pub(crate) const ADDRESSES: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 12);
/// The first address, which is that of the server.
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// Returns the range in CIDR notation.
pub(crate) fn cidr() -> String {
    format!("{}/{}", ADDRESSES.0, ADDRESSES.1)
}
