//! How to reach etcd, and how long to wait for it.

use std::fmt;
use std::time::Duration;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use super::ConnectError;

/// The options of [`Etcd::connect`](super::Etcd::connect).
#[derive(Clone, Debug)]
pub struct Options {
    /// Client addresses of the members, such as `https://10.0.0.1:2379`. List all of them: a member that is not listed
    /// is never used, even if the others are down.
    pub endpoints: Vec<String>,
    /// The prefix of all keys; nothing outside it is read. Servers with the same prefix share a store.
    pub prefix: String,
    pub tls: Option<Tls>,
    pub user: Option<User>,
    pub timeouts: Timeouts,
    /// `None` if this server never compacts. Without any compaction etcd runs full.
    pub compaction: Option<Compaction>,
}

impl Options {
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Options {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "/holon".into(),
            tls: None,
            user: None,
            timeouts: Timeouts::default(),
            compaction: Some(Compaction::default()),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConnectError> {
        let refuse = |reason: &str| Err(ConnectError::Options { reason: reason.into() });
        if self.endpoints.is_empty() {
            return refuse("no endpoint is given");
        }
        if self.prefix.is_empty() || self.prefix.ends_with('/') {
            return refuse("the prefix must not be empty or end in a slash");
        }
        if self.tls.is_some() && self.endpoints.iter().any(|endpoint| endpoint.starts_with("http://")) {
            return refuse("TLS is configured, but an endpoint begins with http://");
        }
        Ok(())
    }

    /// Returns the connection options of every member.
    pub(super) fn client(&self) -> ConnectOptions {
        let timeouts = &self.timeouts;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(timeouts.connect)
            .with_keep_alive(timeouts.keep_alive, timeouts.request)
            // etcd closes the connection of a client that pings without a stream.
            .with_keep_alive_while_idle(false)
            // A member without a leader fails requests at once instead of letting them time out, and ends its watches
            // instead of staying silent.
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some(user) = &self.user {
            options = options.with_user(&user.name, &user.password);
        }
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.client());
        }
        options
    }
}

/// Certificates and keys, all in PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// The certificate authority of the members.
    pub ca: Vec<u8>,
    /// The client certificate and its key, if the members require one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the members' certificates, if it is not the host of their endpoints.
    pub server_name: Option<String>,
}

impl Tls {
    fn client(&self) -> TlsOptions {
        let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            options = options.domain_name(name);
        }
        options
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No key may end up in a log.
        write!(f, "Tls(identity: {}, server_name: {:?})", self.identity.is_some(), self.server_name)
    }
}

#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({})", self.name)
    }
}

#[derive(Clone, Debug)]
pub struct Timeouts {
    /// For opening a connection to one member.
    pub connect: Duration,
    /// For one response of one member; then the next member is called. Longer than the second or two of an election, so
    /// that a new leader is not treated as a failed member.
    pub request: Duration,
    /// For a whole read or commit: no attempt begins later.
    pub overall: Duration,
    /// For determining whether a write whose response was lost has happened, in addition to the above.
    pub settle: Duration,
    /// Between pings on a silent connection. etcd closes the connection below five seconds.
    pub keep_alive: Duration,
    /// Between heartbeats on an idle feed: how long a broken connection stays undetected without readers.
    pub heartbeat: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_secs(2),
            request: Duration::from_secs(3),
            overall: Duration::from_secs(10),
            settle: Duration::from_secs(10),
            keep_alive: Duration::from_secs(10),
            heartbeat: Duration::from_secs(5),
        }
    }
}

/// Removes old history, so that etcd's database does not grow for ever.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// The interval, and also the minimum age of compacted history.
    pub every: Duration,
}

impl Default for Compaction {
    fn default() -> Self {
        Compaction { every: Duration::from_secs(300) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused_by_name() {
        let check = |change: fn(&mut Options), expected: &str| {
            let mut options = Options::new(["http://127.0.0.1:2379"]);
            change(&mut options);
            let message = options.check().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{message}");
        };
        check(|_| {}, "");
        check(|options| options.endpoints.clear(), "no endpoint");
        check(|options| options.prefix = "/holon/".into(), "slash");
        check(|options| options.prefix.clear(), "empty");
        check(|options| options.tls = Some(Tls::default()), "http://");
    }

    #[test]
    fn secrets_are_not_printed() {
        let mut options = Options::new(["https://127.0.0.1:2379"]);
        options.user = Some(User { name: "holon".into(), password: "hunter2".into() });
        options.tls = Some(Tls { identity: Some((vec![], b"hunter2".to_vec())), ..Tls::default() });
        let printed = format!("{options:?}");
        assert!(printed.contains("holon") && !printed.contains("hunter2"), "{printed}");
        assert!(!printed.contains("104, 117"), "{printed}");
    }
}
