//! Rotation of the certificate authority, without locking out clients that follow it.
//!
//! ```text
//!   one ─► both trusted, the old one signs ─► both trusted, the new one signs ─► only the new one
//!        │                                  │                                  └ old certificates are refused
//!        │                                  └ kubeconfigs and certificates are issued anew
//!        └ clients add the new one to their trusted authorities
//! ```
//!
//! `ca.crt` contains all trusted authorities, `ca.key` the key that signs, `next.key` the key that will sign next. Each
//! step replaces one file atomically, so an interruption leaves either the old or the new state.

use std::path::Path;

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::http::pki::{Authority, PkiError, make_authority, write_private};

/// The step of a rotation that was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotated {
    /// A new authority is trusted. It signs nothing yet.
    Trusted,
    /// The new authority signs.
    Signing,
    /// The old authority is no longer trusted.
    Forgotten,
}

/// The state of an authority: the trusted certificates, the signing key and the next key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AuthorityState {
    /// All trusted certificates as PEM.
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) next_key: Option<String>,
}

impl AuthorityState {
    /// Reads the state from a directory.
    pub(super) fn read(dir: &Path) -> Result<AuthorityState, PkiError> {
        let Authority { certificate, key, .. } = Authority::existing(dir)?;
        let next = dir.join("next.key");
        let next_key = next.exists().then(|| crate::http::pki::read(&next)).transpose()?;
        Ok(AuthorityState { certificate, key, next_key })
    }

    /// Returns the state after the next step.
    pub(super) fn next(&self, dir: &Path) -> Result<(AuthorityState, Rotated), PkiError> {
        let is_introduced = blocks(&self.certificate).len() > 1;
        match &self.next_key {
            Some(next_key) if is_introduced => {
                let signing = AuthorityState { key: next_key.clone(), next_key: None, ..self.clone() };
                Ok((signing, Rotated::Signing))
            }
            None if is_introduced => {
                let Self { certificate, key, .. } = self.clone();
                let certificate = Authority { dir: dir.to_owned(), certificate, key }.signer()?;
                Ok((AuthorityState { certificate, ..self.clone() }, Rotated::Forgotten))
            }
            // A next key without a certificate is the remains of an interrupted step.
            _ => {
                let made = make_authority()?;
                let certificate = format!("{}{}", self.certificate, made.certificate);
                let trusted = AuthorityState { certificate, key: self.key.clone(), next_key: Some(made.key) };
                Ok((trusted, Rotated::Trusted))
            }
        }
    }

    /// Writes the files that differ. Each step changes one of them for good, and that one is replaced atomically.
    pub(super) fn write(&self, dir: &Path) -> Result<(), PkiError> {
        crate::http::pki::create_private_dir(dir)?;
        let differs =
            |path: &Path, contents: &str| crate::http::pki::read(path).ok().as_deref() != Some(contents);
        let next = dir.join("next.key");
        if let Some(key) = self.next_key.as_ref().filter(|key| differs(&next, key)) {
            put(key, &next)?;
        }
        // The key comes last: if it exists, both files do.
        for (contents, name) in [(&self.certificate, "ca.crt"), (&self.key, "ca.key")] {
            let path = dir.join(name);
            if differs(&path, contents) {
                put(contents, &path)?;
            }
        }
        if self.next_key.is_none() && next.exists() {
            let removed = std::fs::remove_file(&next);
            removed.map_err(|source| PkiError::Io { act: "remove", path: next, source })?;
        }
        Ok(())
    }
}

impl Authority {
    /// Takes the next step. Servers use it after a restart.
    pub fn rotate(&self) -> Result<Rotated, PkiError> {
        if crate::http::pki::shared::is_marked(&self.dir) {
            return Err(PkiError::IsShared { dir: self.dir.clone() });
        }
        let (state, done) = AuthorityState::read(&self.dir)?.next(&self.dir)?;
        state.write(&self.dir)?;
        Ok(done)
    }

    /// Returns the trusted certificate that belongs to the key.
    pub(super) fn signer(&self) -> Result<String, PkiError> {
        let key = KeyPair::from_pem(&self.key)?;
        let is_its = |block: &&str| {
            let der = CertificateDer::from_pem_slice(block.as_bytes()).ok()?;
            let (_, certificate) = X509Certificate::from_der(&der).ok()?;
            Some(certificate.public_key().subject_public_key.data == key.der_bytes())
        };
        let found = blocks(&self.certificate).into_iter().find(|block| is_its(block) == Some(true));
        let found = found.map(str::to_owned);
        found.ok_or_else(|| self.unusable("none of the certificates in ca.crt belongs to ca.key".to_owned()))
    }
}

/// Splits a file into its certificates.
fn blocks(pem: &str) -> Vec<&str> {
    pem.split_inclusive("-----END CERTIFICATE-----\n").filter(|block| block.contains("BEGIN")).collect()
}

/// Replaces a file atomically.
fn put(contents: &str, path: &Path) -> Result<(), PkiError> {
    let new = path.with_extension("new");
    write_private(&new, contents)?;
    std::fs::rename(&new, path).map_err(|source| PkiError::Io {
        act: "replace",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::pki::tests::accepts;

    #[test]
    fn a_rotation_rejects_old_certificates_only_in_its_last_step() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Authority::open(dir.path()).unwrap();
        let old = open();
        let (of_old, trusts_old) = (old.client("ann", &[]).unwrap(), old.clone());
        assert_eq!(old.rotate().unwrap(), Rotated::Trusted);
        let both = open();
        assert!(accepts(&both, &trusts_old, &of_old), "nothing has changed for any client");
        let early = both.client("bob", &[]).unwrap();
        assert_eq!(both.rotate().unwrap(), Rotated::Signing);
        let new = open();
        let of_new = new.client("eve", &[]).unwrap();
        for (trusting, client) in [(&both, &of_old), (&both, &early), (&new, &of_new)] {
            assert!(accepts(&new, trusting, client));
        }
        // A client that does not trust the new authority yet fails once it signs.
        assert!(!accepts(&new, &trusts_old, &of_old));
        assert_eq!(new.rotate().unwrap(), Rotated::Forgotten);
        let last = open();
        assert!(accepts(&last, &new, &of_new));
        assert!(!accepts(&last, &both, &of_old) && !accepts(&last, &both, &early));
        assert_eq!(blocks(last.certificate()).len(), 1);
    }

    #[test]
    fn an_interrupted_rotation_step_is_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let first = Authority::open(dir.path()).unwrap();
        // As if the process had stopped between the key and the certificate.
        write_private(&dir.path().join("next.key"), &make_authority().unwrap().key).unwrap();
        assert_eq!(first.rotate().unwrap(), Rotated::Trusted);
        assert_eq!(Authority::open(dir.path()).unwrap().rotate().unwrap(), Rotated::Signing);
        Authority::open(dir.path()).unwrap().client("ann", &[]).unwrap();
    }
}
