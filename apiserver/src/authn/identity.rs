//! The identity of a client.
//!
//! Only verified credentials count: a certificate of the server's authority, a token of the static token file, or a
//! service account token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::cluster::Id;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use openapi::meta::status::Status;
use rustls::pki_types::CertificateDer;
use serde_json::{Map, Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::authn::credential::Credential;
use crate::authn::token_file::Tokens;
use crate::rbac::controller_role::ControllerRole;

/// The name and group of a client without credentials.
pub(crate) const ANONYMOUS: (&str, &str) = ("system:anonymous", "system:unauthenticated");
/// The group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// The group of administrators. They may do everything.
pub(crate) const ADMINISTRATORS: &str = "system:masters";
/// The key of a user's extra that names the credential.
pub(crate) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// An anonymous client or an authenticated user. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// A client without credentials.
    Anonymous,
    User(Arc<User>),
}

/// An authenticated user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct User {
    pub name: String,
    /// Distinguishes users with the same name. Empty if the authenticator provides none.
    pub uid: String,
    pub groups: Vec<String>,
    /// Extra information for authorizers.
    pub extra: BTreeMap<String, Vec<String>>,
    /// The logical cluster of a service account, which is not authenticated in any other.
    pub home: Option<Id>,
    /// The expiry of the credential, in seconds since 1970.
    pub expires: Option<i64>,
    /// The credential that authenticated the user.
    pub credential: Credential,
    /// The role of a controller in this process. No identity from the network has one.
    pub controller_role: Option<Arc<ControllerRole>>,
}

/// Returns the remaining validity of the client's certificate.
pub(crate) fn expires(certificates: Option<&[CertificateDer<'_>]>) -> Option<Duration> {
    let (_, certificate) = X509Certificate::from_der(certificates?.first()?).ok()?;
    let left = certificate.validity().time_to_expiration();
    Some(left.and_then(|left| left.try_into().ok()).unwrap_or_default())
}

impl Identity {
    /// Returns the identity in certificates that TLS has verified. The first is the client's own.
    pub(crate) fn of(certificates: Option<&[CertificateDer<'_>]>) -> Identity {
        let Some(der) = certificates.and_then(|chain| chain.first()) else {
            return Identity::Anonymous;
        };
        // TLS has parsed the certificate already. If this parser disagrees, the certificate is not accepted.
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Identity::Anonymous };
        let subject = certificate.subject();
        let Some(name) = subject.iter_common_name().find_map(|name| name.as_str().ok()) else {
            return Identity::Anonymous;
        };
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
        let credential = format!("X509SHA256={}", fingerprint(der));
        Identity::known(User {
            name: name.to_owned(),
            groups: groups.map(str::to_owned).collect(),
            extra: BTreeMap::from([(CREDENTIAL.to_owned(), vec![credential])]),
            // TLS checks this only when the connection begins.
            expires: Some(certificate.validity().not_after.timestamp()),
            ..User::default()
        })
    }

    /// Returns this user as a member of `system:authenticated`.
    pub fn known(mut user: User) -> Identity {
        if user.groups.iter().all(|group| group != AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Identity::exactly(user)
    }

    /// Returns this user with exactly these groups.
    pub(crate) fn exactly(user: User) -> Identity {
        Identity::User(Arc::new(user))
    }

    /// Reports whether the credential has expired.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        match self {
            Identity::Anonymous => false,
            Identity::User(user) => user.expires.is_some_and(|expires| expires <= now),
        }
    }

    /// Returns the only logical cluster in which this identity is authenticated, if it is limited to one.
    pub fn home(&self) -> Option<Id> {
        match self {
            Identity::Anonymous => None,
            Identity::User(user) => user.home,
        }
    }

    /// Returns the identity that sends a request on a connection with the certificate identity `peer`. As in
    /// Kubernetes, a certificate wins over a token. An unknown token is an error rather than anonymous, because the
    /// client expects to be authenticated.
    pub(crate) fn of_request(
        peer: Identity,
        headers: &HeaderMap,
        tokens: &Tokens,
    ) -> Result<Identity, Status> {
        match (peer, bearer(headers)) {
            (Identity::Anonymous, Some(token)) => tokens.find(token).ok_or_else(Status::unauthorized),
            (peer, _) => Ok(peer),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Identity::Anonymous => ANONYMOUS.0,
            Identity::User(user) => &user.name,
        }
    }

    /// Formats the user as Kubernetes does, without empty fields.
    pub(crate) fn info(&self) -> Map<String, Value> {
        let Identity::User(user) = self else {
            let (name, group) = ANONYMOUS;
            return Map::from_iter([("username".into(), name.into()), ("groups".into(), json!([group]))]);
        };
        let mut info = Map::from_iter([("username".to_owned(), user.name.as_str().into())]);
        if !user.uid.is_empty() {
            info.insert("uid".to_owned(), user.uid.as_str().into());
        }
        if !user.groups.is_empty() {
            info.insert("groups".to_owned(), json!(user.groups));
        }
        if !user.extra.is_empty() {
            info.insert("extra".to_owned(), json!(user.extra));
        }
        info
    }

    /// Reports whether the identity is an administrator. Only certificates and the static token file can grant this: a
    /// service account never has this group, and impersonation cannot add it.
    pub fn is_administrator(&self) -> bool {
        match self {
            Identity::Anonymous => false,
            Identity::User(user) => user.groups.iter().any(|group| group == ADMINISTRATORS),
        }
    }
}

impl Identity {
    pub(crate) fn controller_role(&self) -> Option<&Arc<ControllerRole>> {
        match self {
            Identity::Anonymous => None,
            Identity::User(user) => user.controller_role.as_ref(),
        }
    }

    /// Reports whether this is a controller in the server's process.
    pub fn has_controller_role(&self) -> bool {
        self.controller_role().is_some()
    }

    /// Reports whether the identity works in all logical clusters: it may address them by id and all at once, and the
    /// limits of tenants do not apply. Its rights are a separate decision.
    pub(crate) fn is_at_home_everywhere(&self) -> bool {
        self.is_administrator() || self.has_controller_role()
    }
}

/// Returns the bearer token of a request. Other authentication schemes are not supported.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn fingerprint(der: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
impl Identity {
    pub(crate) fn user(name: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        Identity::known(User { name: name.to_owned(), groups, ..User::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    #[test]
    fn a_certificate_names_its_user_and_all_groups() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ann");
        // The same attribute by name and by number, because the library keeps one value per name.
        params.distinguished_name.push(DnType::OrganizationName, "dev");
        params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 10]), "ops");
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let Identity::User(user) = Identity::of(Some(&[made.der().clone()])) else {
            panic!("ann is anonymous")
        };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("ann", ""));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        let credential = &user.extra[CREDENTIAL][0];
        assert!(credential.starts_with("X509SHA256=") && credential.len() == 11 + 64, "{credential}");
        assert_eq!(Identity::of(None), Identity::Anonymous);
    }

    /// Regression: TLS checks the time only when a connection begins, and a client that kept one open stayed
    /// authenticated.
    #[test]
    fn a_certificate_is_good_until_it_expires() {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ann");
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let ann = Identity::of(Some(&[made.der().clone()]));
        let new_year = 1_893_456_000;
        assert_eq!([new_year - 1, new_year].map(|now| ann.is_expired(now)), [false, true]);
    }

    #[test]
    fn an_unknown_token_is_refused_unless_the_client_has_a_certificate() {
        let ann = Identity::user("ann", &[]);
        let check = |peer: &Identity, sent: &str, expected: Option<&Identity>| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, sent.parse().unwrap())]);
            let found = Identity::of_request(peer.clone(), &headers, &Tokens::default());
            assert_eq!(found.as_ref().ok(), expected, "{sent}");
        };
        check(&Identity::Anonymous, "Bearer wrong", None);
        check(&Identity::Anonymous, "bearer  wrong", None);
        check(&Identity::Anonymous, "Bearer ", Some(&Identity::Anonymous));
        check(&Identity::Anonymous, "Basic YTpi", Some(&Identity::Anonymous));
        check(&ann, "Bearer wrong", Some(&ann));
    }
}
