//! The claims of a service account token.

use api::cluster::Id;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Maximum difference between the clocks of two servers.
const LEEWAY_SECONDS: i64 = 60;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Vec<String>,
    /// None: valid as long as the objects it is bound to exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exp: Option<i64>,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectRef>,
    pub(crate) serviceaccount: ObjectRef,
}

/// The name and uid of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ObjectRef {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uid: Option<String>,
}

impl Claims {
    /// Returns the claims of a token for a service account, valid from now on and not bound to another object.
    pub(crate) fn new(iss: String, namespace: &str, serviceaccount: ObjectRef, aud: Vec<String>) -> Claims {
        let now = Timestamp::now().as_second();
        let sub = crate::rbac::account(namespace, &serviceaccount.name);
        let kubernetes = Kubernetes {
            namespace: namespace.to_owned(),
            node: None,
            pod: None,
            secret: None,
            serviceaccount,
        };
        let jti = uuid::Uuid::new_v4().to_string();
        Claims { aud, exp: None, iat: now, iss, jti, kubernetes, nbf: now, sub }
    }

    /// Returns the logical cluster in the issuer.
    pub(crate) fn cluster(&self) -> Option<Id> {
        self.iss.rsplit_once("/clusters/")?.1.parse().ok()
    }

    pub(crate) fn has_expired(&self, now: i64) -> bool {
        self.exp.is_some_and(|exp| exp <= now)
    }

    pub(crate) fn check_times(&self, now: i64) -> Result<(), &'static str> {
        if self.nbf > now + LEEWAY_SECONDS {
            return Err("service account token is not valid yet");
        }
        Ok(())
    }
}
