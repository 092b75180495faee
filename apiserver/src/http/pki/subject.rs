//! Certificates with several organizations, which are the groups of a client.
//!
//! The library that creates certificates keeps one value per attribute. So it creates one with a shorter subject, and
//! this module replaces the subject and signs the certificate again:
//!
//! ```text
//!   certificate = SEQUENCE { to be signed: SEQUENCE { … subject … }, algorithm, signature }
//! ```

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

pub(super) const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTF8: u8 = 0x0c;
pub(super) const BITS: u8 = 0x03;
const COMMON_NAME: &[u8] = &[0x06, 3, 0x55, 4, 3];
const ORGANISATION: &[u8] = &[0x06, 3, 0x55, 4, 10];
/// ECDSA with SHA-256, the signature algorithm of the authority.
const ALGORITHM: &[u8] = &[SEQUENCE, 10, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// Returns the certificate with this user and these groups. None if the certificate or the authority's key has an
/// unexpected form.
pub(super) fn renamed(certificate: &str, key: &str, user: &str, groups: &[&str]) -> Option<String> {
    let made = CertificateDer::from_pem_slice(certificate.as_bytes()).ok()?;
    let (_, parsed) = X509Certificate::from_der(&made).ok()?;
    let (signed, old) = (parsed.tbs_certificate.as_ref(), parsed.subject().as_raw());
    let at = old.as_ptr().addr().checked_sub(signed.as_ptr().addr())?;
    // The signed part is a sequence; its contents begin after a tag and a length.
    let start = match signed.get(1)? {
        length if *length < 0x80 => 2,
        length => 2 + usize::from(length & 0x7f),
    };
    let (before, after) = (signed.get(start..at)?, signed.get(at + old.len()..)?);
    let signed = der(SEQUENCE, &[before, &subject(user, groups), after]);
    let key = PrivatePkcs8KeyDer::from_pem_slice(key.as_bytes()).ok()?;
    let random = SystemRandom::new();
    let pair =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.secret_pkcs8_der(), &random).ok()?;
    let signature = pair.sign(&random, &signed).ok()?;
    let certificate = der(SEQUENCE, &[&signed, ALGORITHM, &der(BITS, &[&[0], signature.as_ref()])]);
    Some(pem("CERTIFICATE", &certificate))
}

fn subject(user: &str, groups: &[&str]) -> Vec<u8> {
    let name = |kind: &[u8], text: &str| {
        let value = der(UTF8, &[text.as_bytes()]);
        der(SET, &[&der(SEQUENCE, &[kind, &value])])
    };
    let names: Vec<_> = groups.iter().map(|group| name(ORGANISATION, group)).collect();
    let mut parts: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let user = name(COMMON_NAME, user);
    parts.push(&user);
    der(SEQUENCE, &parts)
}

/// Encodes a tag, a length and contents.
pub(super) fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
    let contents = contents.concat();
    let length = contents.len().to_be_bytes();
    let length = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
    let mut out = vec![tag];
    if contents.len() >= 0x80 {
        out.push(0x80 | length.len() as u8);
    }
    out.extend_from_slice(length);
    out.extend_from_slice(&contents);
    out
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, UnixTime};
    use rustls::server::WebPkiClientVerifier;
    use std::sync::Arc;

    use crate::authn::identity::Identity;
    use crate::http::pki::Authority;

    #[test]
    fn a_certificate_names_any_number_of_groups() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        let long = "g".repeat(300);
        for groups in
            [vec![], vec!["dev"], vec!["dev", "ops"], vec!["dev", "ops", "ä", long.as_str(), "dev:x"]]
        {
            let made = authority.client("ann", &groups).unwrap();
            let der = CertificateDer::from_pem_slice(made.certificate.as_bytes()).unwrap();
            // Verified as by TLS, including the signature.
            verifier.verify_client_cert(&der, &[], UnixTime::now()).unwrap();
            let Identity::User(user) = Identity::of(Some(&[der])) else { panic!("ann is anonymous") };
            let expected = [groups.as_slice(), &["system:authenticated"]].concat();
            assert_eq!(user.name, "ann");
            assert_eq!(user.groups, expected);
        }
    }
}
