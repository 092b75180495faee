//! Service account tokens: issuing and verifying them.
//!
//! ```text
//!   TokenRequest ─► claims ─► signed with the logical cluster's key ─► token
//!   token ─► its issuer ─► that logical cluster's key ─► claims ─► account, pod, secret exist? ─► user
//! ```
//!
//! Every logical cluster is an issuer with its own keys ([`signing_keys`]). A token names its issuer and is valid only
//! there. The objects that it is bound to are read each time, so deleting one of them revokes the token.
//!
//! [`jwt`] is the format, [`claims`] the contents of a token.

pub(crate) mod claims;
mod jwt;
mod signing_keys;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::cluster::Id;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use jiff::Timestamp;
use openapi::meta::status::Status;
use serde_json::{Value, json};
use storage::{CommitError, Key, ReadError, Store};

use crate::authn::credential::{Credential, Token};
use crate::authn::identity::{CREDENTIAL, Identity, User};
use crate::authn::service_accounts::claims::{Claims, ObjectRef};
use crate::authn::service_accounts::signing_keys::Keys;
use crate::keys::Collection;
use crate::objects::{metadata, stored};
use crate::rbac::account;

pub(crate) use crate::authn::service_accounts::signing_keys::forget;

const ACCOUNTS: Collection<'static> = Collection { group: "", plural: "serviceaccounts" };
pub(crate) const SECRETS: Collection<'static> = Collection { group: "", plural: "secrets" };
pub(crate) const PODS: Collection<'static> = Collection { group: "", plural: "pods" };
pub(crate) const NODES: Collection<'static> = Collection { group: "", plural: "nodes" };

/// An audience that does not depend on the address of the server, so that tokens stay valid when the server moves.
const IN_CLUSTER: &str = "https://kubernetes.default.svc";
/// The tokens of a terminating service account or pod stay valid for this long, for cleanup.
const TERMINATING_SECONDS: i64 = 60;
/// Cache size for verified signatures. Verifying one takes longer than all other checks of a token.
const VERIFIED_MAX: usize = 4096;

/// Issues and verifies the tokens of all service accounts.
#[derive(Debug)]
pub struct Accounts {
    store: Arc<dyn Store>,
    /// The base URL of the server: `https://host:port`.
    base: String,
    keys: Keys,
    /// Verified tokens by digest.
    verified: Mutex<HashMap<[u8; 32], Token>>,
}

/// The identity of a token and its accepted audiences.
#[derive(Debug)]
pub(crate) struct VerifiedToken {
    pub(crate) identity: Identity,
    pub(crate) audiences: Vec<String>,
}

/// Why a token is not valid. The text is for users who may review tokens.
#[derive(Debug)]
pub(crate) enum NotFound {
    /// Not issued by this server.
    Foreign,
    /// Issued by this server, but expired.
    Expired,
    Invalid(String),
    Unreadable(ReadError),
}

impl From<ReadError> for NotFound {
    fn from(error: ReadError) -> NotFound {
        NotFound::Unreadable(error)
    }
}

fn invalid(why: impl Into<String>) -> NotFound {
    NotFound::Invalid(why.into())
}

impl Accounts {
    pub fn new(store: Arc<dyn Store>, base: String) -> Accounts {
        Accounts { store, base, keys: Keys::default(), verified: Mutex::default() }
    }

    /// Returns the issuer of a logical cluster's tokens.
    pub(crate) fn issuer(&self, cluster: Id) -> String {
        format!("{}/clusters/{cluster}", self.base)
    }

    /// Returns the audiences that the server accepts by default.
    pub(crate) fn audiences(&self, cluster: Id) -> Vec<String> {
        vec![self.issuer(cluster), IN_CLUSTER.to_owned()]
    }

    /// Signs a token.
    pub(crate) async fn sign(&self, cluster: Id, claims: &Claims) -> Result<String, CommitError> {
        let keys = self.keys.make(&*self.store, cluster).await?;
        Ok(keys.sign(&json!(claims)))
    }

    /// Signs a token that is valid as long as its Secret exists.
    pub(crate) async fn lasting(
        &self,
        cluster: Id,
        namespace: &str,
        account: ObjectRef,
        secret: ObjectRef,
    ) -> Result<String, CommitError> {
        let mut claims = Claims::new(self.issuer(cluster), namespace, account, self.audiences(cluster));
        claims.kubernetes.secret = Some(secret);
        self.sign(cluster, &claims).await
    }

    /// Verifies a token for this server, or for one of `audiences` if any are given.
    pub(crate) async fn find(&self, token: &str, audiences: &[String]) -> Result<VerifiedToken, NotFound> {
        let token = self.verified(token).await?;
        let Token { cluster, claims, .. } = &token;
        let now = Timestamp::now().as_second();
        if claims.has_expired(now) {
            // The error reveals the expiry only if the logical cluster and the key still exist.
            self.check_key(&token).await?;
            return Err(NotFound::Expired);
        }
        claims.check_times(now).map_err(invalid)?;
        let accepted = if audiences.is_empty() { self.audiences(*cluster) } else { audiences.to_vec() };
        let common: Vec<String> =
            accepted.iter().filter(|accepted| claims.aud.contains(accepted)).cloned().collect();
        if common.is_empty() {
            let quoted = crate::rbac::cover::quoted;
            return Err(invalid(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&claims.aud),
                quoted(&accepted)
            )));
        }
        self.check_bound(&token).await?;
        Ok(VerifiedToken { identity: identity(token), audiences: common })
    }

    /// Returns the logical cluster in a token, without verifying it.
    pub(crate) fn home(token: &str) -> Option<Id> {
        let claims = jwt::UnverifiedToken::of(token)?.claims;
        serde_json::from_slice::<Claims>(&claims).ok()?.cluster()
    }

    /// Reports whether the signature of a token was already verified.
    pub(crate) fn is_verified(&self, token: &str) -> bool {
        let digest = digest(token.as_bytes());
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&digest)
    }

    /// Returns the claims of a token, if a key of its logical cluster signed it.
    async fn verified(&self, token: &str) -> Result<Token, NotFound> {
        let digest = digest(token.as_bytes());
        let cached = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned();
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let unverified = jwt::UnverifiedToken::of(token).ok_or(NotFound::Foreign)?;
        let claims: Claims = serde_json::from_slice(&unverified.claims).map_err(|_| NotFound::Foreign)?;
        let cluster = claims.cluster().ok_or(NotFound::Foreign)?;
        let keys = self.keys.find(&*self.store, cluster).await?.ok_or(NotFound::Foreign)?;
        if !keys.verify(&unverified) {
            return Err(invalid("invalid signature"));
        }
        let found = Token { cluster, claims: Arc::new(claims), kid: unverified.kid.into(), digest };
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(digest, found.clone());
        Ok(found)
    }

    /// Returns the objects a token is bound to: key, name and uid, and kind for errors.
    pub(crate) fn bound_objects(token: &Token) -> Vec<(Key, &ObjectRef, &'static str)> {
        let kubernetes = &token.claims.kubernetes;
        let key = |collection: Collection<'_>, object_ref: &ObjectRef| {
            collection.key(token.cluster, Some(&kubernetes.namespace), &object_ref.name)
        };
        let account = &kubernetes.serviceaccount;
        let mut bound = vec![(key(ACCOUNTS, account), account, "service account")];
        bound.extend(kubernetes.secret.as_ref().map(|secret| (key(SECRETS, secret), secret, "secret")));
        match (&kubernetes.pod, &kubernetes.node) {
            (Some(pod), _) => bound.push((key(PODS, pod), pod, "pod")),
            (None, Some(node)) => bound.push((NODES.key(token.cluster, None, &node.name), node, "node")),
            (None, None) => {}
        }
        bound
    }

    /// Checks that the key which signed the token is not retired.
    async fn check_key(&self, token: &Token) -> Result<(), NotFound> {
        let keys = self.keys.find(&*self.store, token.cluster).await?;
        match keys.is_some_and(|keys| keys.has(&token.kid)) {
            true => Ok(()),
            false => Err(invalid("invalid signature")),
        }
    }

    /// Checks that the objects the token is bound to exist with the same uids.
    pub(crate) async fn check_bound(&self, token: &Token) -> Result<(), NotFound> {
        self.check_key(token).await?;
        for (key, object_ref, kind) in Accounts::bound_objects(token) {
            let object = self.find_bound_object(key, object_ref, kind).await?;
            let is_copy = kind == "secret" && token.claims.exp.is_none();
            if is_copy && !holds(&object, token) {
                return Err(invalid("token does not match server's copy"));
            }
        }
        Ok(())
    }

    async fn find_bound_object(
        &self,
        key: Key,
        object_ref: &ObjectRef,
        kind: &str,
    ) -> Result<Value, NotFound> {
        let invalidated = || invalid("service account token has been invalidated");
        let entry = self.store.get(&key).await?.value.ok_or_else(invalidated)?;
        let object = stored::tree(&entry).unwrap_or_default();
        let uid = metadata::text(&object, "uid");
        if uid != object_ref.uid.as_deref().unwrap_or_default() {
            let claimed = object_ref.uid.as_deref().unwrap_or_default();
            return Err(invalid(format!("{kind} UID ({uid}) does not match claim ({claimed})")));
        }
        let deleted_at = metadata::text(&object, "deletionTimestamp").parse::<Timestamp>().ok();
        let now = Timestamp::now().as_second();
        match deleted_at.is_some_and(|deleted_at| deleted_at.as_second() + TERMINATING_SECONDS < now) {
            true => Err(invalidated()),
            false => Ok(object),
        }
    }

    /// Returns the OpenID discovery document of a logical cluster's issuer.
    pub(crate) fn configuration(&self, cluster: Id) -> Value {
        let issuer = self.issuer(cluster);
        json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [jwt::ALGORITHM],
        })
    }

    /// Returns the public keys of a logical cluster's issuer. `POST` first adds a signing key, `DELETE` first removes
    /// the older ones.
    pub(crate) async fn published(&self, cluster: Id, method: &Method) -> Result<Value, Status> {
        let (keys, store) = (&self.keys, &*self.store);
        let found = match *method {
            Method::GET | Method::HEAD => keys.make(store, cluster).await.map(Some),
            Method::POST => keys.renew(store, cluster).await,
            Method::DELETE => keys.retire(store, cluster).await,
            _ => return Err(Status::wrong_method()),
        };
        let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
        let keys = found.ok_or_else(|| {
            Status::bad_request("too many signing keys: delete the older ones first (DELETE /openid/v1/jwks)")
        })?;
        Ok(json!({ "keys": keys.published() }))
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }
}

/// Reports whether a Secret contains this token. Clearing or replacing it revokes the token.
fn holds(secret: &Value, token: &Token) -> bool {
    let held = secret["data"]["token"].as_str().and_then(|held| STANDARD.decode(held).ok());
    held.is_some_and(|held| digest(&held) == token.digest)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Returns the user that a token authenticates.
fn identity(token: Token) -> Identity {
    let claims = token.claims.clone();
    let kubernetes = &claims.kubernetes;
    let mut extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![format!("JTI={}", claims.jti)])]);
    for (kind, object_ref) in [("pod", &kubernetes.pod), ("node", &kubernetes.node)] {
        let Some(ObjectRef { name, uid }) = object_ref else { continue };
        extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![name.clone()]);
        if let Some(uid) = uid {
            extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![uid.clone()]);
        }
    }
    let namespace = &kubernetes.namespace;
    Identity::known(User {
        name: account(namespace, &kubernetes.serviceaccount.name),
        uid: kubernetes.serviceaccount.uid.clone().unwrap_or_default(),
        groups: vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")],
        extra,
        home: Some(token.cluster),
        expires: claims.exp,
        credential: Credential::ServiceAccount(token),
        controller_role: None,
    })
}

/// Returns name and uid of an object.
pub(crate) fn object_ref(object: &Value) -> ObjectRef {
    let text = |field: &str| metadata::text(object, field).to_owned();
    ObjectRef { name: text("name"), uid: Some(text("uid")) }
}

#[cfg(test)]
mod tests;
