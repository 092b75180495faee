//! The credential a client authenticated with, and whether it is still valid.
//!
//! A watch may last longer than the token it was opened with.

use std::sync::Arc;

use api::cluster::Id;
use jiff::Timestamp;
use storage::{Key, ReadError};

use crate::authn::identity::Identity;
use crate::authn::service_accounts::claims::Claims;
use crate::authn::service_accounts::{Accounts, NotFound};
use crate::authn::token_file::Tokens;
use crate::keys;

/// A credential.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Credential {
    /// A client certificate, or no credential. A certificate is valid until it expires.
    #[default]
    Certificate,
    /// A line of the static token file, by the digest of its token.
    TokenFile([u8; 32]),
    /// A service account token.
    ServiceAccount(Token),
}

/// A verified service account token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub(crate) cluster: Id,
    pub(crate) claims: Arc<Claims>,
    /// The id of the key that signed it.
    pub(crate) kid: Arc<str>,
    pub(crate) digest: [u8; 32],
}

/// The authenticators of tokens.
#[derive(Clone, Debug)]
pub(crate) struct Authenticators {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) accounts: Arc<Accounts>,
}

impl Authenticators {
    /// Reports whether the credential of an identity is still valid.
    pub(crate) async fn is_valid(&self, identity: &Identity) -> Result<bool, ReadError> {
        let Identity::User(user) = identity else { return Ok(true) };
        if identity.is_expired(Timestamp::now().as_second()) {
            return Ok(false);
        }
        match &user.credential {
            Credential::Certificate => Ok(true),
            Credential::TokenFile(digest) => Ok(self.tokens.by_digest(digest).as_ref() == Some(identity)),
            Credential::ServiceAccount(token) => match self.accounts.check_bound(token).await {
                Ok(()) => Ok(true),
                Err(NotFound::Unreadable(error)) => Err(error),
                Err(_) => Ok(false),
            },
        }
    }
}

impl Credential {
    /// Returns the keys of the objects that the credential depends on.
    pub(crate) fn bound(&self) -> Vec<Key> {
        match self {
            Credential::Certificate | Credential::TokenFile(_) => Vec::new(),
            Credential::ServiceAccount(token) => {
                let bound = Accounts::bound_objects(token).into_iter().map(|(key, ..)| key);
                bound.chain([keys::signing(token.cluster)]).collect()
            }
        }
    }
}
