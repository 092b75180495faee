//! The address at which clients reach the server, which may differ from the one it listens on.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::bail;

/// A host name or IP address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AdvertisedAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The value of --advertise-address. Without a port it means the port on which the server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AdvertiseAddress {
    host: String,
    port: Option<u16>,
}

impl FromStr for AdvertiseAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<AdvertiseAddress> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(AdvertiseAddress { host: address.ip().to_string(), port: Some(address.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(AdvertiseAddress { host: address.to_string(), port: None });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port.parse()?)),
            None => (text, None),
        };
        let is_host_character = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if host.is_empty() || !host.chars().all(is_host_character) {
            bail!("{host:?} is neither a host name nor an IP address");
        }
        Ok(AdvertiseAddress { host: host.to_owned(), port })
    }
}

impl AdvertisedAddress {
    /// Returns the advertised address of a server that listens on `listen`.
    pub(crate) fn new(configured: Option<&AdvertiseAddress>, listen: SocketAddr) -> AdvertisedAddress {
        match configured {
            Some(configured) => AdvertisedAddress {
                host: configured.host.clone(),
                port: configured.port.unwrap_or(listen.port()),
            },
            None => AdvertisedAddress { host: listen.ip().to_string(), port: listen.port() },
        }
    }

    /// Returns the same as a socket address, unless the host is a name.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.host.parse().ok().map(|host: IpAddr| SocketAddr::new(host, self.port))
    }

    /// Returns whether clients can connect to it: 0.0.0.0 and :: are no destinations.
    pub(crate) fn is_specified(&self) -> bool {
        self.address().is_none_or(|address| !address.ip().is_unspecified())
    }
}

impl fmt::Display for AdvertisedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => address.fmt(f),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_address_has_an_optional_port() {
        let listen: SocketAddr = "127.0.0.1:7443".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<AdvertiseAddress>().ok();
            let parsed = read.map(|configured| AdvertisedAddress::new(Some(&configured), listen).to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        };
        check("holon.example", Some("holon.example:7443"));
        check("holon.example:443", Some("holon.example:443"));
        check("10.0.0.1", Some("10.0.0.1:7443"));
        check("10.0.0.1:443", Some("10.0.0.1:443"));
        check("fd00::1", Some("[fd00::1]:7443"));
        check("[fd00::1]", Some("[fd00::1]:7443"));
        check("[fd00::1]:443", Some("[fd00::1]:443"));
        check("", None);
        check("a b", None);
        check("https://holon.example", None);
        check("holon.example:https", None);
        check(":443", None);
        assert_eq!(AdvertisedAddress::new(None, listen).to_string(), "127.0.0.1:7443");
    }

    #[test]
    fn an_unspecified_address_cannot_be_advertised() {
        let is_specified = |text: &str| AdvertisedAddress::new(None, text.parse().unwrap()).is_specified();
        assert!(is_specified("127.0.0.1:1") && !is_specified("0.0.0.0:1") && !is_specified("[::]:1"));
    }
}
