//! The servers that are measured: how a client reaches each, and its processes.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::measure::{cpu_seconds_of, rss_bytes_of};

/// A server under load.
#[derive(Clone, Debug)]
pub(crate) struct BenchTarget {
    pub(crate) name: &'static str,
    /// `127.0.0.1:…`
    pub(crate) address: String,
    /// The prefix of every path: empty, or `/clusters/…`.
    pub(crate) prefix: String,
    pub(crate) tls: Arc<ClientConfig>,
    /// The same without a client certificate.
    anonymous_tls: Arc<ClientConfig>,
    /// A bearer token that is sent with every request.
    pub(crate) token: Option<Arc<str>>,
    /// The processes whose time and memory count.
    pids: Vec<u32>,
}

impl BenchTarget {
    /// Returns the server of a kubeconfig that has one cluster and one user.
    pub(crate) fn open(name: &'static str, kubeconfig: &Path, pids: Vec<u32>) -> Result<BenchTarget> {
        let text = std::fs::read_to_string(kubeconfig)?;
        let server = value(&text, "server")?.trim_start_matches("https://");
        let (address, prefix) = server.split_at(server.find('/').unwrap_or(server.len()));
        Ok(BenchTarget {
            name,
            address: address.to_owned(),
            prefix: prefix.to_owned(),
            tls: tls(&text, true)?,
            anonymous_tls: tls(&text, false)?,
            token: None,
            pids,
        })
    }

    /// Returns the same server for the service account of a token.
    pub(crate) fn with_token(&self, token: &str) -> BenchTarget {
        BenchTarget { tls: self.anonymous_tls.clone(), token: Some(token.into()), ..self.clone() }
    }

    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.pids.iter().map(|pid| cpu_seconds_of(&pid.to_string())).sum()
    }

    pub(crate) fn rss_bytes(&self) -> Result<u64> {
        self.pids.iter().map(|pid| rss_bytes_of(&pid.to_string())).sum()
    }
}

/// Holon and its peer, or Holon alone.
#[derive(Debug)]
pub(crate) struct ServerPair {
    pub(crate) ours: BenchTarget,
    pub(crate) theirs: Option<BenchTarget>,
}

/// A figure of Holon, and the peer's if there is one.
pub(crate) type Figures = (f64, Option<f64>);

impl ServerPair {
    pub(crate) fn each(&self, figure: impl Fn(&BenchTarget) -> Result<f64>) -> Result<Figures> {
        Ok((figure(&self.ours)?, self.theirs.as_ref().map(&figure).transpose()?))
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = &BenchTarget> {
        [&self.ours].into_iter().chain(&self.theirs)
    }
}

fn tls(kubeconfig: &str, has_certificate: bool) -> Result<Arc<ClientConfig>> {
    let pem = |key| anyhow::Ok(STANDARD.decode(value(kubeconfig, key)?)?);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem("certificate-authority-data")?)?)?;
    let certificate = CertificateDer::from_pem_slice(&pem("client-certificate-data")?)?;
    let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data")?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match has_certificate {
        true => config.with_client_auth_cert(vec![certificate], key)?,
        false => config.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

/// Returns the value after the first `key:`. These kubeconfigs have one of each key, and values without blanks.
fn value<'a>(kubeconfig: &'a str, key: &str) -> Result<&'a str> {
    let (_, rest) =
        kubeconfig.split_once(&format!("{key}: ")).with_context(|| format!("the kubeconfig has no {key}"))?;
    Ok(rest.trim_start_matches('"').split(['"', '}', ',', '\n']).next().unwrap_or_default().trim())
}
