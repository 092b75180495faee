//! JSON web tokens: `base64(header).base64(claims).base64(signature)`, signed with ES256.
//!
//! The algorithm is fixed here, so a token cannot choose a weaker one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const ALGORITHM: &str = "ES256";
/// Longer tokens are refused. Issued tokens have about a kilobyte.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The parts of a token that is not verified yet.
#[derive(Debug)]
pub(super) struct UnverifiedToken<'a> {
    pub(super) kid: String,
    pub(super) claims: Vec<u8>,
    /// The signed text.
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

impl<'a> UnverifiedToken<'a> {
    /// Splits a token. None if this server cannot have issued it.
    pub(super) fn of(token: &'a str) -> Option<UnverifiedToken<'a>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: Header = serde_json::from_slice(&decode(header)?).ok()?;
        let unverified = UnverifiedToken {
            kid: header.kid,
            claims: decode(claims)?,
            signed,
            signature: decode(signature)?,
        };
        (header.alg == ALGORITHM).then_some(unverified)
    }
}

/// A key pair and its id.
pub(super) struct Signer {
    kid: String,
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({})", self.kid)
    }
}

impl Signer {
    /// Generates a key in its stored form.
    pub(super) fn generate() -> Option<Vec<u8>> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        made.ok().map(|made| made.as_ref().to_vec())
    }

    pub(super) fn read(pkcs8: &[u8]) -> Option<Signer> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).ok()?;
        let digest = ring::digest::digest(&ring::digest::SHA256, pair.public_key().as_ref());
        Some(Signer { kid: URL_SAFE_NO_PAD.encode(digest), pair, random })
    }

    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    pub(super) fn sign(&self, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": ALGORITHM, "kid": self.kid });
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = self.pair.sign(&self.random, signed.as_bytes());
        let signature = signature.expect("the system has random numbers, as it had for the key");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Reports whether this key signed a token.
    pub(super) fn verify(&self, unverified: &UnverifiedToken<'_>) -> bool {
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        self.kid == unverified.kid
            && public.verify(unverified.signed.as_bytes(), &unverified.signature).is_ok()
    }

    /// Returns the public key as a JSON web key.
    pub(super) fn published(&self) -> Value {
        // A format byte, then both coordinates with the same length.
        let point = self.pair.public_key().as_ref();
        let (x, y) = point.get(1..).unwrap_or_default().split_at(point.len() / 2);
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "use": "sig", "kty": "EC", "kid": self.kid, "crv": "P-256", "alg": ALGORITHM,
            "x": encode(x), "y": encode(y),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer() -> Signer {
        Signer::read(&Signer::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_key_verifies_only_its_own_signatures() {
        let (ours, other) = (signer(), signer());
        let token = ours.sign(&json!({ "sub": "ann" }));
        let unverified = UnverifiedToken::of(&token).unwrap();
        assert!(ours.verify(&unverified) && !other.verify(&unverified));
        assert_eq!(unverified.claims, br#"{"sub":"ann"}"#);
        // The signature covers every part.
        let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
        let eve = URL_SAFE_NO_PAD.encode(r#"{"sub":"eve"}"#);
        let forged = format!("{header}.{eve}.{signature}");
        assert!(!ours.verify(&UnverifiedToken::of(&forged).unwrap()));
        assert!(!format!("{ours:?}").contains("pair"));
    }

    /// Many libraries let the token choose the algorithm of the check, even `none`.
    #[test]
    fn a_token_does_not_choose_its_algorithm() {
        for alg in ["none", "HS256", "RS256", "ES384", "es256", ""] {
            let header = URL_SAFE_NO_PAD.encode(json!({ "alg": alg }).to_string());
            let token = format!("{header}.{}.", URL_SAFE_NO_PAD.encode("{}"));
            assert!(UnverifiedToken::of(&token).is_none(), "{alg}");
        }
        for odd in ["", ".", "..", "a.b.c", "a.b", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert!(UnverifiedToken::of(odd).is_none());
        }
    }

    #[test]
    fn the_public_half_has_both_coordinates() {
        let published = signer().published();
        for field in ["x", "y"] {
            let bytes = URL_SAFE_NO_PAD.decode(published[field].as_str().unwrap()).unwrap();
            assert_eq!(bytes.len(), 32, "{published}");
        }
        assert_eq!(published["crv"], "P-256");
    }
}
