//! The certificate authority of a server, which it creates when it first starts.
//!
//! ```text
//!   <dir>/ca.crt, ca.key             the certificate authority
//!   <dir>/next.key                   the key of the next one, during a rotation
//!   <dir>/shared                     marks an authority that the servers of one etcd share, see [`shared`]
//!   <dir>/serving.crt, serving.key   the serving certificate
//! ```
//!
//! Client certificates are signed by the same authority: the common name is the user, the organizations are the groups.
//! Keys are readable only by their owner and are never logged.

mod rotation;
mod sec1;
mod serving;
mod shared;
mod subject;

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use storage::{CommitError, ReadError};

pub use crate::http::pki::rotation::Rotated;
pub use crate::http::pki::serving::{Offer, Serving};

/// Ten years. The authority is replaced by rotation, not by expiry.
const CA_DAYS: u32 = 3650;
const LEAF_DAYS: u32 = 365;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("cannot create a certificate for {0:?} with several groups")]
    Groups(String),
    #[error("the certificates in {} cannot be used: {reason}; remove them to create new ones", dir.display())]
    Unusable { dir: PathBuf, reason: String },
    #[error(
        "no certificate authority in {}; start the server once to create it (holon start)",
        dir.display()
    )]
    Absent { dir: PathBuf },
    #[error("cannot read the shared certificate authority in etcd: {0}")]
    ReadShared(#[from] ReadError),
    #[error("cannot write the shared certificate authority in etcd: {0}")]
    WriteShared(#[from] CommitError),
    #[error("cannot use the shared certificate authority in etcd: {reason}")]
    UnusableShared { reason: String },
    #[error(
        "the certificate authority in {at} is not the one that the servers of this etcd share; to use the shared one, move \
         {at} away and start again (kubeconfigs made with the old one are then refused); otherwise name another etcd or \
         another --data-dir",
        at = dir.display()
    )]
    Differs { dir: PathBuf },
    #[error("the certificate authority in {} is shared by the servers of an etcd; name that etcd with --etcd-endpoints", dir.display())]
    IsShared { dir: PathBuf },
}

/// The certificate authority and its directory.
#[derive(Clone)]
pub struct Authority {
    dir: PathBuf,
    certificate: String,
    key: String,
}

/// A certificate and its key as PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// A certificate and its key as rustls needs them.
type Parsed = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity(…)")
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.dir.display())
    }
}

impl Authority {
    /// Reads the authority in `dir`, or creates one.
    pub fn open(dir: &Path) -> Result<Authority, PkiError> {
        if !dir.join("ca.key").exists() {
            let made = make_authority()?;
            create_private_dir(dir)?;
            write_private(&dir.join("ca.crt"), &made.certificate)?;
            // The key comes last: if it exists, both files do.
            write_private(&dir.join("ca.key"), &made.key)?;
        }
        Authority::existing(dir)
    }

    /// Reads the authority in `dir`, but creates none: for commands next to a server, which would not know a new one.
    pub fn existing(dir: &Path) -> Result<Authority, PkiError> {
        if !dir.join("ca.key").exists() {
            return Err(PkiError::Absent { dir: dir.to_owned() });
        }
        let (certificate, key) = (read(&dir.join("ca.crt"))?, read(&dir.join("ca.key"))?);
        Ok(Authority { dir: dir.to_owned(), certificate, key })
    }

    /// Returns the certificate of the authority, for clients to trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Creates a client certificate for `user` in `groups`.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity, PkiError> {
        let mut params = leaf(user, groups);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let made =
            self.sign(params, |key| sec1::private_key_pem(key).unwrap_or_else(|| key.serialize_pem()))?;
        match groups {
            [] | [_] => Ok(made),
            // The library writes only the last of several organizations.
            _ => {
                let certificate = subject::renamed(&made.certificate, &self.key, user, groups);
                let certificate = certificate.ok_or_else(|| PkiError::Groups(user.to_owned()))?;
                Ok(Identity { certificate, ..made })
            }
        }
    }

    /// Creates the serving certificate for these names and addresses.
    pub fn serving(&self, names: &[String]) -> Result<Identity, PkiError> {
        let mut params = leaf("holon", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for name in names {
            let san = match name.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into()?),
            };
            params.subject_alt_names.push(san);
        }
        let identity = self.sign(params, KeyPair::serialize_pem)?;
        write_private(&self.dir.join("serving.crt"), &identity.certificate)?;
        write_private(&self.dir.join("serving.key"), &identity.key)?;
        Ok(identity)
    }

    fn sign(
        &self,
        params: CertificateParams,
        written: impl FnOnce(&KeyPair) -> String,
    ) -> Result<Identity, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(&self.signer()?, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: written(&key) })
    }

    /// Returns the TLS configuration of the server: 1.2 and 1.3, HTTP/2 and 1.1, optional client certificates of this
    /// authority and of `others`.
    fn tls(&self, serving: &Identity, others: &str) -> Result<Arc<ServerConfig>, PkiError> {
        let unusable = |reason: String| self.unusable(reason);
        let mut roots = self.roots()?;
        self.add(&mut roots, others)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let (chain, key) = self.parsed(serving)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(|error| unusable(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Returns the TLS configuration of a client that trusts this authority and presents a certificate.
    pub fn client_tls(&self, client: &Identity) -> Result<Arc<ClientConfig>, PkiError> {
        let unusable = |error: rustls::Error| self.unusable(error.to_string());
        let (chain, key) = self.parsed(client)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        Ok(Arc::new(config))
    }

    fn roots(&self) -> Result<RootCertStore, PkiError> {
        let mut roots = RootCertStore::empty();
        self.add(&mut roots, &self.certificate)?;
        Ok(roots)
    }

    fn add(&self, roots: &mut RootCertStore, pem: &str) -> Result<(), PkiError> {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| self.unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| self.unusable(error.to_string()))?;
        }
        Ok(())
    }

    fn parsed(&self, identity: &Identity) -> Result<Parsed, PkiError> {
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
        match (chain, key) {
            (Ok(chain), Ok(key)) => Ok((chain, key)),
            (Err(error), _) | (_, Err(error)) => Err(self.unusable(error.to_string())),
        }
    }

    fn unusable(&self, reason: String) -> PkiError {
        PkiError::Unusable { dir: self.dir.clone(), reason }
    }
}

fn create_private_dir(dir: &Path) -> Result<(), PkiError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| PkiError::Io { act: "create", path: dir.to_owned(), source })
}

fn make_authority() -> Result<Identity, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = name("holon-ca", &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    valid_for(&mut params, CA_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn leaf(user: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = name(user, groups);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    valid_for(&mut params, LEAF_DAYS);
    params
}

fn name(user: &str, groups: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, user);
    for group in groups {
        name.push(DnType::OrganizationName, *group);
    }
    name
}

/// Sets the validity, from a day ago, so that a client whose clock is slow is not locked out.
fn valid_for(params: &mut CertificateParams, days: u32) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    params.not_before = now - DAY;
    params.not_after = now + DAY * days;
}

fn read(path: &Path) -> Result<String, PkiError> {
    std::fs::read_to_string(path).map_err(|source| PkiError::Io {
        act: "read",
        path: path.to_owned(),
        source,
    })
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, contents: &str) -> Result<(), PkiError> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let private = std::fs::Permissions::from_mode(0o600);
    file.and_then(|mut file| {
        // An existing file may have been readable by others.
        file.set_permissions(private)?;
        file.write_all(contents.as_bytes())?;
        file.sync_all()
    })
    .map_err(|source| PkiError::Io { act: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    /// Reports whether a client that trusts `trusting` can connect with this certificate to a server of `authority`.
    pub(super) fn accepts(authority: &Authority, trusting: &Authority, client: &Identity) -> bool {
        let serving = Serving::new(authority.clone(), vec!["localhost".to_owned()], None);
        let mut server = ServerConnection::new(serving.offer().unwrap().config).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(trusting.client_tls(client).unwrap(), name).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut sent = Vec::new();
            client.write_tls(&mut sent).unwrap();
            server.read_tls(&mut sent.as_slice()).unwrap();
            if server.process_new_packets().is_err() {
                return false;
            }
            let mut answered = Vec::new();
            server.write_tls(&mut answered).unwrap();
            client.read_tls(&mut answered.as_slice()).unwrap();
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        true
    }

    #[test]
    fn clients_of_another_authority_are_accepted_if_it_is_configured() {
        let [ours, theirs, file] = [0; 3].map(|_| tempfile::tempdir().unwrap());
        let (ours, theirs) = (Authority::open(ours.path()).unwrap(), Authority::open(theirs.path()).unwrap());
        let other_client = theirs.client("ann", &[]).unwrap();
        assert!(!accepts(&ours, &ours, &other_client));
        let path = file.path().join("clients.crt");
        std::fs::write(&path, theirs.certificate()).unwrap();
        let serving = |others| Serving::new(ours.clone(), vec!["localhost".to_owned()], others);
        let with_others = serving(Some(path)).offer().unwrap();
        assert_ne!(with_others.trust, serving(None).offer().unwrap().trust);
        assert!(serving(Some(file.path().join("missing"))).offer().is_err());
    }

    #[test]
    fn a_key_readable_by_others_is_made_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serving.key");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        Authority::open(dir.path()).unwrap().serving(&["localhost".to_owned()]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
