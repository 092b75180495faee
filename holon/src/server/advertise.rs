//! Where others reach the server, which need not be where it listens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::bail;

/// A name or an address, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Advertised {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// As an operator writes it. The port is the one the server listens on, if nothing is said about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    host: String,
    port: Option<u16>,
}

impl FromStr for Written {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Written> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Written { host: address.ip().to_string(), port: Some(address.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Written { host: address.to_string(), port: None });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port.parse()?)),
            None => (text, None),
        };
        let can_be_said = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        if host.is_empty() || !host.chars().all(can_be_said) {
            bail!("{host:?} is neither a name nor an address");
        }
        Ok(Written { host: host.to_owned(), port })
    }
}

impl Advertised {
    /// What was written, for a server that listens at an address.
    pub(crate) fn new(written: Option<&Written>, listens: SocketAddr) -> Advertised {
        match written {
            Some(written) => {
                Advertised { host: written.host.clone(), port: written.port.unwrap_or(listens.port()) }
            }
            None => Advertised { host: listens.ip().to_string(), port: listens.port() },
        }
    }

    /// The same as an address, if it is one and not a name.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.host.parse().ok().map(|host: IpAddr| SocketAddr::new(host, self.port))
    }

    /// Whether anybody could reach anything there: whoever listens everywhere has not said where that is.
    pub(crate) fn is_somewhere(&self) -> bool {
        self.address().is_none_or(|address| !address.ip().is_unspecified())
    }
}

impl fmt::Display for Advertised {
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
    fn an_address_is_read_as_operators_write_it() {
        let listens: SocketAddr = "127.0.0.1:7443".parse().unwrap();
        let check = |text: &str, expected: Option<&str>| {
            let read = text.parse::<Written>().ok();
            let said = read.map(|written| Advertised::new(Some(&written), listens).to_string());
            assert_eq!(said.as_deref(), expected, "{text}");
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
        assert_eq!(Advertised::new(None, listens).to_string(), "127.0.0.1:7443");
    }

    #[test]
    fn who_listens_everywhere_has_not_said_where_that_is() {
        let is_somewhere = |text: &str| Advertised::new(None, text.parse().unwrap()).is_somewhere();
        assert!(is_somewhere("127.0.0.1:1") && !is_somewhere("0.0.0.0:1") && !is_somewhere("[::]:1"));
    }
}
