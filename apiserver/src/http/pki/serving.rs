//! The serving certificate and the trusted client authorities, for as long as the server runs.
//!
//! Its own certificate is made anew every day, so a server that is never restarted never shows an old one. Clients of our
//! authority are always known; those of others if the operator names a file with their certificates. That file is looked
//! again when it has changed: certificates of an authority it no longer names are refused, and open connections with one
//! included.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use controller::tasks::Stop;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::http::pki::{Authority, PkiError};

/// Much less than a certificate lasts.
const RENEW_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
/// How soon a changed file counts.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The TLS configuration for new connections.
#[derive(Clone, Debug)]
pub struct Offer {
    pub config: Arc<ServerConfig>,
    /// The certificates of those whose clients are known. When it is another, those who are connected prove anew who
    /// they are.
    pub(crate) trust: Arc<str>,
}

#[derive(Debug)]
pub struct Serving {
    authority: Authority,
    names: Vec<String>,
    /// Others whose clients are known.
    others: Option<PathBuf>,
}

impl Serving {
    /// Under these names and addresses, for clients of the authority and of those in a file.
    pub fn new(authority: Authority, names: Vec<String>, others: Option<PathBuf>) -> Serving {
        Serving { authority, names, others }
    }

    /// The configuration from now on.
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

    /// Renews what is offered until told to stop.
    pub async fn renew(self, offered: watch::Sender<Offer>, mut stop: Stop) -> Result<(), Infallible> {
        let mut renewed = Instant::now();
        let every = if self.others.is_some() { LOOK_EVERY } else { RENEW_EVERY };
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = stop.requested() => return Ok(()),
            }
            let trust = offered.borrow().trust.clone();
            let others = self.trusted().unwrap_or_else(|error| {
                // Certificates of an authority that is gone are refused.
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
