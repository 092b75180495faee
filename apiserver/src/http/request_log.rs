//! The request log: every request gets an id, which its response carries, and one line in the log.
//!
//! The line contains the user, the request and its result. It never contains a body, a header or a query, because these
//! may contain secrets.

use std::time::{Duration, Instant};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::http::body::Body;
use crate::request::info::RequestInfo;

/// The header of the id. Clients may set it; every response has it.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Room for two UUIDs. A longer value is not an id.
const ID_BYTES_MAX: usize = 80;
/// Slower requests are logged at a higher level.
const SLOW: Duration = Duration::from_secs(1);

/// The log entry of one request.
#[derive(Debug)]
pub(crate) struct RequestLog {
    id: HeaderValue,
    began: Instant,
}

impl RequestLog {
    pub(crate) fn begin(headers: &HeaderMap) -> RequestLog {
        let chosen = headers.get(AUDIT_ID).filter(|id| is_sane(id)).cloned();
        let id = chosen.unwrap_or_else(|| {
            HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()).expect("a uuid is made of digits")
        });
        RequestLog { id, began: Instant::now() }
    }

    pub(crate) fn id(&self) -> String {
        self.id.to_str().unwrap_or_default().to_owned()
    }

    /// Adds the id to the response, and writes the line. Returns the duration of the request.
    pub(crate) fn end(self, info: &RequestInfo, user: &str, response: &mut Response<Body>) -> Duration {
        let took = self.began.elapsed();
        self.log(info, user, response.status(), took);
        response.headers_mut().insert(AUDIT_ID, self.id);
        took
    }

    fn log(&self, info: &RequestInfo, user: &str, code: StatusCode, took: Duration) {
        // The level must be a constant, so the macro expands to one call per level.
        macro_rules! line {
            ($log:ident) => {
                tracing::$log!(
                    id = self.id.to_str().unwrap_or_default(),
                    method = info.method.as_str(),
                    path = info.path,
                    cluster = info.address.as_ref().ok().map(|(cluster, _)| tracing::field::display(cluster)),
                    verb = info.verb().map(|verb| verb.as_str()),
                    resource = info.resource().map(tracing::field::display),
                    user,
                    code = code.as_u16(),
                    duration_ms = took.as_secs_f64() * 1000.0,
                    "request"
                )
            };
        }
        match code.is_server_error() || took >= SLOW {
            true => line!(info),
            false => line!(debug),
        }
    }
}

/// Reports whether an id is safe in headers and logs.
fn is_sane(id: &HeaderValue) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    (1..=ID_BYTES_MAX).contains(&id.len()) && id.as_bytes().iter().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_the_clients_if_it_looks_like_one() {
        let check = |sent: &str, kept: bool| {
            let headers = HeaderMap::from_iter([(AUDIT_ID, HeaderValue::from_str(sent).unwrap())]);
            let id = RequestLog::begin(&headers).id;
            assert_eq!(id == sent, kept, "{sent} became {id:?}");
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
