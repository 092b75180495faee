//! Client keys in the one form that every client library can read: SEC 1, `BEGIN EC PRIVATE KEY`.
//!
//! JVM clients choose how to read a key by its PEM label. The official client and fabric8 take `BEGIN PRIVATE KEY`
//! (PKCS #8) for RSA and fail on any other key in it, but they can read `BEGIN EC PRIVATE KEY`. Go, OpenSSL (so Python,
//! Ruby and .NET) and rustls can read both. Keys that only this server reads stay in the library's form.
//!
//! ```text
//!   PKCS #8:  SEQUENCE { version, algorithm, OCTET STRING { SEQUENCE { 1, OCTET STRING private, … } } }
//!   SEC 1:    SEQUENCE { 1, OCTET STRING private, [0] curve, [1] BIT STRING public }
//! ```
//!
//! PKCS #8 names the curve next to the key, SEC 1 inside it: without it readers cannot know the curve.

use rcgen::{KeyPair, PublicKeyData};

use crate::http::pki::subject::{BITS, SEQUENCE, der, pem};

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const CURVE: u8 = 0xa0;
const PUBLIC: u8 = 0xa1;
/// The object identifier of P-256, the curve of the library's keys.
const P256: &[u8] = &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];

/// Returns the key as SEC 1 PEM. None if it is not a P-256 key in PKCS #8.
pub(super) fn private_key_pem(pair: &KeyPair) -> Option<String> {
    let outer = pair.serialize_der();
    let (_, outer, _) = element(&outer, SEQUENCE)?;
    let (_, _, rest) = element(outer, INTEGER)?;
    let (algorithm, _, rest) = element(rest, SEQUENCE)?;
    if !algorithm.ends_with(P256) {
        return None;
    }
    let (_, inner, _) = element(rest, OCTETS)?;
    let (_, inner, _) = element(inner, SEQUENCE)?;
    let (version, _, rest) = element(inner, INTEGER)?;
    let (private, _, _) = element(rest, OCTETS)?;
    let public = der(BITS, &[&[0], pair.der_bytes()]);
    let key = der(SEQUENCE, &[version, private, &der(CURVE, &[P256]), &der(PUBLIC, &[&public])]);
    Some(pem("EC PRIVATE KEY", &key))
}

/// Splits off the first element if it has this tag. Returns the whole element, its contents, and the rest.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8], &[u8])> {
    let (found, length) = (*bytes.first()?, *bytes.get(1)?);
    let (head, length) = match length {
        short @ 0..=0x7f => (2, usize::from(short)),
        0x81 => (3, usize::from(*bytes.get(2)?)),
        // A P-256 key has less than 256 bytes.
        _ => return None,
    };
    let (whole, rest) = bytes.split_at_checked(head + length)?;
    (found == tag).then_some((whole, &whole[head..], rest))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{PrivateKeyDer, PrivateSec1KeyDer};

    use crate::http::pki::Authority;

    /// Regression: a user passed the kubeconfig of `holon kubeconfig` to a Java program. Both JVM clients took the key
    /// for RSA, because it began with `BEGIN PRIVATE KEY`, and failed before they sent anything.
    #[test]
    fn client_keys_are_in_the_form_that_jvm_clients_read() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open(dir.path()).unwrap();
        for groups in [&[][..], &["dev"], &["dev", "ops"]] {
            let made = authority.client("ann", groups).unwrap();
            let label = made.key.lines().next().unwrap();
            assert_eq!(label, "-----BEGIN EC PRIVATE KEY-----");
            let key = PrivateSec1KeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
            let names_the_curve =
                key.secret_sec1_der().windows(super::P256.len()).any(|bytes| bytes == super::P256);
            assert!(names_the_curve, "{} does not name its curve", made.key);
            let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).unwrap();
            rustls::crypto::ring::sign::any_ecdsa_type(&key).unwrap();
            // The certificate belongs to this key: TLS compares them.
            authority.client_tls(&made).unwrap();
        }
    }
}
