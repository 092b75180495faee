//! One request on its way through the layers: what every layer may know about it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::cluster::Id;
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use openapi::catalog::resource_info::ResourceInfo;

use crate::authn::identity::Identity;
use crate::http::connections::OpenConnection;
use crate::http::limits::{RequestSlot, Tenant};
use crate::request::info::RequestInfo;

/// Read from clients that choose the id themselves, and written to all responses.
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// As long as two uuids.
const ID_BYTES_MAX: usize = 80;

/// A request as it arrives.
pub(super) struct ApiRequest<B> {
    pub(super) context: Arc<RequestContext>,
    /// The identity of the connection.
    pub(super) peer: Identity,
    pub(super) headers: HeaderMap,
    /// None for clients in this process.
    pub(super) connection: Option<Arc<OpenConnection>>,
    pub(super) body: B,
}

/// A request with a valid credential, or with none.
pub(super) struct AuthenticatedRequest<B> {
    pub(super) context: Arc<RequestContext>,
    pub(super) identity: Arc<Identity>,
    pub(super) tenant: Tenant,
    pub(super) headers: HeaderMap,
    pub(super) body: B,
}

/// A request within the limits of its tenant.
pub(super) struct LimitedRequest<B> {
    pub(super) context: Arc<RequestContext>,
    pub(super) identity: Arc<Identity>,
    pub(super) slot: RequestSlot,
    pub(super) headers: HeaderMap,
    pub(super) body: B,
}

/// The parsed request line, and the facts that layers add. The facts are shared, because a request that
/// exceeds its deadline is dropped where it is, and the audit log still needs them.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub(super) id: HeaderValue,
    pub(super) info: RequestInfo,
    began: Instant,
    facts: Mutex<RequestFacts>,
}

#[derive(Debug, Default)]
pub(super) struct RequestFacts {
    /// None if the credential is invalid.
    pub(super) sender: Option<Arc<Identity>>,
    /// The impersonated identity, allowed or not.
    pub(super) acting: Option<Identity>,
    /// The logical cluster, and its path if the request does not name it.
    pub(super) cluster: Option<(Id, Option<String>)>,
    pub(super) resource: Option<Arc<ResourceInfo>>,
    /// Access was denied, even if the response is that of a path that does not exist.
    pub(super) is_refused: bool,
    /// Access was granted.
    pub(super) is_authorized: bool,
    /// The result of a write, which its client may not receive.
    pub(super) result: Option<StatusCode>,
    /// The audit log has a line that says that there was no result yet.
    pub(super) lacks_result: bool,
}

impl RequestContext {
    pub(super) fn of(head: &Parts) -> RequestContext {
        let chosen = head.headers.get(AUDIT_ID).filter(|id| is_sane(id)).cloned();
        let id = chosen.unwrap_or_else(|| {
            HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).expect("a uuid is made of digits")
        });
        RequestContext { id, info: RequestInfo::of(head), began: Instant::now(), facts: Mutex::default() }
    }

    /// Locks the facts. Not to be held across an await.
    pub(super) fn facts(&self) -> MutexGuard<'_, RequestFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Reports whether an id of the client is safe in headers and logs: it has only the characters of uuids and similar
/// ids.
fn is_sane(id: &HeaderValue) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_audit_id_of_the_client_is_used() {
        let check = |sent: &str, is_used: bool| {
            let request = http::Request::builder().header(AUDIT_ID, sent).body(()).unwrap();
            let id = RequestContext::of(&request.into_parts().0).id;
            assert_eq!(id == sent, is_used, "{sent} became {id:?}");
            assert!(is_sane(&id));
        };
        check("6f1e5b1c-6a4e-4cf4-93a1-8a44cbbd4a1c", true);
        check("ci:build_17.3", true);
        check("", false);
        check("two words", false);
        check("a\"b", false);
        check(&"a".repeat(81), false);
    }
}
