//! The serving certificate and the trusted client authorities, while the server runs.
//!
//! The server renews its certificate every day, so it never serves an expired one. It accepts client certificates of
//! its own authority and of the authorities in a file that the operator may name. The file is read again when it
//! changes. Certificates of an authority that was removed from it are then refused, and open connections with such
//! certificates are closed.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use controller::tasks::Stop;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::http::pki::{Authority, PkiError};

/// Much shorter than the validity of a certificate.
const RENEW_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// How soon a change of the file takes effect.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The TLS configuration for new connections.
#[derive(Clone, Debug)]
pub struct Offer {
    pub config: Arc<ServerConfig>,
    /// The trusted authorities of the file. When they change, open connections are closed, so that their clients
    /// authenticate again.
    pub(crate) trust: Arc<str>,
}

#[derive(Debug)]
pub struct Serving {
    authority: Authority,
    names: Vec<String>,
    /// A file with more trusted client authorities.
    others: Option<PathBuf>,
}

impl Serving {
    /// Creates one for these names and addresses, and the client authorities in a file.
    pub fn new(authority: Authority, names: Vec<String>, others: Option<PathBuf>) -> Serving {
        Serving { authority, names, others }
    }

    /// Returns a new TLS configuration.
    pub fn offer(&self) -> Result<Offer, PkiError> {
        self.trusting(self.trusted()?)
    }

    fn trusting(&self, others: String) -> Result<Offer, PkiError> {
        let config = self.authority.tls(&self.authority.serving(&self.names)?, &others)?;
        Ok(Offer { config, trust: others.into() })
    }

    fn trusted(&self) -> Result<String, PkiError> {
        match &self.others {
            Some(file) => crate::http::pki::read(file),
            None => Ok(String::new()),
        }
    }

    /// Renews the TLS configuration until `stop`.
    pub async fn renew(self, offered: watch::Sender<Offer>, mut stop: Stop) -> Result<(), Infallible> {
        let mut renewed = Instant::now();
        let every = if self.others.is_some() { POLL_EVERY } else { RENEW_EVERY };
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.requested() => return Ok(()),
            }
            let trust = offered.borrow().trust.clone();
            let others = self.trusted().unwrap_or_else(|error| {
                // If the file cannot be read, none of its authorities is trusted.
                tracing::error!(%error, "cannot read the client CA file; its clients are no longer authenticated");
                String::new()
            });
            if *others == *trust && renewed.elapsed() < RENEW_EVERY {
                continue;
            }
            match self.trusting(others) {
                Ok(offer) => drop(offered.send_replace(offer)),
                Err(error) => {
                    tracing::error!(%error, "cannot renew the serving certificate; the old one stays in use")
                }
            }
            renewed = Instant::now();
        }
    }
}
