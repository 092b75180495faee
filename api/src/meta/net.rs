//! Validation of IP addresses and CIDR ranges, as strict as in Kubernetes.
//!
//! Old fields accept everything they ever accepted that is unambiguous; new fields accept only the canonical form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Returns the errors of an address in an old field.
pub fn ip(text: &str) -> Vec<String> {
    let Some(address) = sloppy(text) else { return vec![NOT_AN_IP.to_owned()] };
    let mut faults = Vec::new();
    if text.parse::<IpAddr>().is_err() {
        faults.push("must not have leading 0s".to_owned());
    }
    if is_mapped(text, address) {
        faults.push("must not be an IPv4-mapped IPv6 address".to_owned());
    }
    faults
}

/// Returns the errors of an address in a new field or in a name.
pub fn strict_ip(text: &str) -> Vec<String> {
    let faults = ip(text);
    match sloppy(text) {
        Some(address) if faults.is_empty() && address.to_string() != text => {
            vec![format!("must be in canonical form (\"{address}\")")]
        }
        _ => faults,
    }
}

/// Returns the errors of a CIDR range.
pub fn cidr(text: &str) -> Vec<String> {
    let Some(range) = IpRange::parse(text) else { return vec![NOT_A_CIDR.to_owned()] };
    let (address, bits) = text.split_once('/').unwrap_or((text, ""));
    let fault = if address.parse::<IpAddr>().is_err() || (bits.len() > 1 && bits.starts_with('0')) {
        "must not have leading 0s in IP or prefix length"
    } else if is_mapped(address, range.address) {
        "must not have an IPv4-mapped IPv6 address"
    } else if range.first() != range.address {
        "must not have bits set beyond the prefix length"
    } else {
        return Vec::new();
    };
    vec![fault.to_owned()]
}

pub fn is_ip(text: &str) -> bool {
    sloppy(text).is_some()
}

pub fn is_v6(text: &str) -> bool {
    sloppy(text).is_some_and(|address| address.is_ipv6())
}

/// Reports whether the range `inner` is part of `outer` and smaller.
pub fn is_strict_subset(inner: &str, outer: &str) -> Option<bool> {
    let (inner, outer) = (IpRange::parse(inner)?, IpRange::parse(outer)?);
    let network = IpRange { address: inner.first(), bits: outer.bits };
    Some(
        inner.address.is_ipv4() == outer.address.is_ipv4()
            && network.first() == outer.first()
            && outer.bits < inner.bits,
    )
}

/// Parses an address as Go does: IPv4 may have leading zeros, and an IPv4-mapped address becomes IPv4.
pub fn sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4));
    }
    let octets: Vec<_> = text.split('.').collect();
    let read = |octet: &&str| {
        let digits = !octet.is_empty() && octet.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| octet.parse::<u8>().ok()).flatten()
    };
    let octets: Vec<u8> = octets.iter().map(read).collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Reports whether a text is a CIDR range in any notation.
pub fn sloppy_cidr(text: &str) -> bool {
    IpRange::parse(text).is_some()
}

fn is_mapped(text: &str, address: IpAddr) -> bool {
    text.contains(':') && address.is_ipv4()
}

struct IpRange {
    address: IpAddr,
    bits: u32,
}

impl IpRange {
    fn parse(text: &str) -> Option<IpRange> {
        let (address, bits) = text.split_once('/')?;
        let address = sloppy(address)?;
        let max = if address.is_ipv4() { 32 } else { 128 };
        let digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits = digits.then(|| bits.parse().ok()).flatten().filter(|bits| *bits <= max)?;
        Some(IpRange { address, bits })
    }

    /// Returns the address with all bits outside the prefix set to zero.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - self.bits.min(32)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - self.bits.min(128)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_ranges() {
        type Rule = fn(&str) -> Vec<String>;
        let rows: &[(Rule, &str, &str)] = &[
            (ip, "10.0.0.1", ""),
            (ip, "2001:DB8::1", ""),
            (ip, "010.0.0.1", "must not have leading 0s"),
            (ip, "::ffff:10.0.0.1", "must not be an IPv4-mapped"),
            (ip, "10.0.0", "must be a valid IP"),
            (ip, "10.0.0.256", "must be a valid IP"),
            (strict_ip, "2001:DB8::1", "must be in canonical form (\"2001:db8::1\")"),
            (strict_ip, "2001:db8::1", ""),
            (cidr, "10.0.0.0/8", ""),
            (cidr, "10.0.0.1/8", "must not have bits"),
            (cidr, "10.0.0.0/08", "must not have leading"),
            (cidr, "10.0.0.0/33", "must be a valid CIDR"),
            (cidr, "10.0.0.0", "must be a valid CIDR"),
            (cidr, "2001:db8::/64", ""),
            (cidr, "0.0.0.0/0", ""),
            (cidr, "::/0", ""),
        ];
        for (rule, text, expected) in rows {
            let found = rule(text);
            match found.first() {
                None => assert_eq!(*expected, "", "{text}"),
                Some(fault) => {
                    assert!(!expected.is_empty() && fault.starts_with(expected), "{text}: {fault}")
                }
            }
        }
        assert_eq!(is_strict_subset("10.1.0.0/16", "10.0.0.0/8"), Some(true));
        assert_eq!(is_strict_subset("10.0.0.0/8", "10.0.0.0/8"), Some(false));
        assert_eq!(is_strict_subset("11.0.0.0/16", "10.0.0.0/8"), Some(false));
        assert_eq!(is_strict_subset("::/64", "0.0.0.0/0"), Some(false));
    }
}
