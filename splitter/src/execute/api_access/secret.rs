//! The Secret with the three files a client in a pod looks for.

use std::time::Duration;

use api::fleet::Locator;
use api::meta::hash::word;
use api::meta::is_being_deleted;
use api::names::{API_ACCESS, PLACED, RENEW_AFTER, TRUE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApiEndpoint, ServiceAccountRef};
use crate::snapshot::LabelsAndAnnotations;

const PREFIX: &str = "holon-api-access-";
/// As for any name.
const NAME_BYTES_MAX: usize = 253;
const HASH_CHARS: usize = 8;
/// A server issues tokens for ten minutes at least. A shorter answer must not make this controller renew all the time.
const VALIDITY_MIN: Duration = Duration::from_secs(60);

/// The name of the Secret of an account. A name that is too long is cut and gets a hash of the whole.
pub(super) fn name(account: &str) -> String {
    let length_max = NAME_BYTES_MAX - PREFIX.len();
    if account.len() <= length_max {
        return format!("{PREFIX}{account}");
    }
    let begin = account.get(..length_max - HASH_CHARS - 1).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{PREFIX}{begin}-{}", word(&[account], HASH_CHARS))
}

/// An API access Secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AccessSecret {
    pub(super) account: ServiceAccountRef,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) is_being_deleted: bool,
    account_uid: String,
    version: String,
    finalizers: Value,
    renew_after: Option<Timestamp>,
    authority: String,
}

#[derive(serde::Deserialize)]
pub(super) struct SecretMetadata {
    metadata: LabelsAndAnnotations,
}

/// The account of a Secret, and the uid of that account.
pub(super) fn owner(object: &SecretMetadata) -> Option<(ServiceAccountRef, String)> {
    let of: Locator = serde_json::from_str(object.metadata.annotations.get(API_ACCESS)?).ok()?;
    let (cluster, namespace) = (of.logical_cluster.parse().ok()?, of.namespace?);
    Some((ServiceAccountRef { cluster, namespace, name: of.name }, of.uid))
}

impl AccessSecret {
    /// None if the Secret was not written by the splitter.
    pub(super) fn read(object: &Value) -> Option<AccessSecret> {
        let metadata = &object["metadata"];
        let (account, account_uid) = owner(&serde_json::from_value(object.clone()).ok()?)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(AccessSecret {
            account,
            account_uid,
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            is_being_deleted: is_being_deleted(object),
            version: text(&metadata["resourceVersion"]),
            finalizers: metadata["finalizers"].clone(),
            renew_after: metadata["annotations"][RENEW_AFTER].as_str().and_then(|time| time.parse().ok()),
            authority: text(&object["data"]["ca.crt"]),
        })
    }

    /// How long the Secret is valid. None if it has to be written again: the token is due for renewal, the account
    /// was recreated, or the certificate authority changed.
    pub(super) fn valid_for(&self, account_uid: &str, api_endpoint: &ApiEndpoint) -> Option<Duration> {
        let left = self.renew_after?.duration_since(Timestamp::now());
        let is_same =
            self.account_uid == account_uid && self.authority == STANDARD.encode(&api_endpoint.authority);
        Duration::try_from(left).ok().filter(|left| is_same && !left.is_zero())
    }
}

/// The Secret with this token, and how long it is valid: two thirds of the token's lifetime. The last third is left
/// for retries.
pub(super) fn written(
    account: &ServiceAccountRef,
    account_uid: &str,
    namespace: &str,
    api_endpoint: &ApiEndpoint,
    response: &Value,
    before: Option<&AccessSecret>,
) -> (Value, Duration) {
    let now = Timestamp::now();
    let expires = response["status"]["expirationTimestamp"].as_str().and_then(|time| time.parse().ok());
    let lifetime =
        expires.and_then(|expires: Timestamp| Duration::try_from(expires.duration_since(now)).ok());
    let valid_for = (lifetime.unwrap_or_default() * 2 / 3).max(VALIDITY_MIN);
    let renew_after = now.checked_add(valid_for).unwrap_or(now);
    let of = Locator {
        logical_cluster: account.cluster.to_string(),
        namespace: Some(account.namespace.clone()),
        name: account.name.clone(),
        uid: account_uid.to_owned(),
    };
    let encoded = |text: &str| STANDARD.encode(text);
    let mut secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": name(&account.name), "namespace": namespace,
            "labels": { PLACED: TRUE },
            "annotations": { API_ACCESS: json!(of).to_string(), RENEW_AFTER: renew_after.to_string() },
        },
        "data": {
            "token": encoded(response["status"]["token"].as_str().unwrap_or_default()),
            "ca.crt": encoded(&api_endpoint.authority),
            "namespace": encoded(&account.namespace),
        },
    });
    if let Some(before) = before {
        secret["metadata"]["uid"] = before.uid.as_str().into();
        secret["metadata"]["resourceVersion"] = before.version.as_str().into();
        secret["metadata"]["finalizers"] = before.finalizers.clone();
    }
    (secret, valid_for)
}
