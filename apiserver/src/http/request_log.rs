//! The request log: one line for every request.
//!
//! The line contains the user, the request and its result. It never contains a body, a header or a query, because these
//! may contain secrets.

use std::fmt;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::request::info::RequestInfo;

/// Slower requests are logged at a higher level.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum length of a text from the client in the log. A path or a method may have 60 KB.
const TEXT_BYTES_MAX: usize = 1024;

/// Returns a text from the client, cut to a length for the log.
pub(crate) fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// A value that the client chose, cut in the same way.
struct Short<T>(T);

impl<T: fmt::Display> fmt::Display for Short<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(short(&self.0.to_string()))
    }
}

/// Logs an answered request.
pub(crate) fn log(id: &HeaderValue, info: &RequestInfo, user: &str, code: StatusCode, took: Duration) {
    // The level must be a constant, so the macro expands to one call per level.
    macro_rules! line {
        ($log:ident) => {
            tracing::$log!(
                id = id.to_str().unwrap_or_default(),
                method = short(info.method.as_str()),
                path = short(&info.path),
                cluster =
                    info.address.as_ref().ok().map(|(cluster, _)| tracing::field::display(Short(cluster))),
                verb = info.verb().map(|verb| verb.as_str()),
                resource = info.resource().map(|resource| tracing::field::display(Short(resource))),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A client could make every warning about its request 60 KB long, by its path, its method or the names in its
    /// path.
    #[test]
    fn long_values_from_clients_are_truncated_in_the_request_log() {
        assert_eq!(short(&"ä".repeat(60_000)).len(), TEXT_BYTES_MAX);
        let long = RequestInfo::line(&format!("GET /apis/{0}/v1/{0}", "a".repeat(30_000)));
        assert_eq!(Short(long.resource().unwrap()).to_string().len(), TEXT_BYTES_MAX);
        assert_eq!(short(&RequestInfo::line("GET /api/v1/pods").path), "/api/v1/pods");
    }
}
