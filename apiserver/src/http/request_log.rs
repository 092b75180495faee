//! The request log: one line for every request.
//!
//! The line contains the user, the request and its result. It never contains a body, a header or a query, because these
//! may contain secrets.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::request::info::RequestInfo;

/// Slower requests are logged at a higher level.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum length of a path in the log. A client may send one of 60 KB.
const PATH_BYTES_MAX: usize = 1024;

/// Returns the path of a request, cut to a length for the log.
pub(crate) fn short_path(info: &RequestInfo) -> &str {
    &info.path[..info.path.floor_char_boundary(PATH_BYTES_MAX)]
}

/// Logs an answered request.
pub(crate) fn log(id: &HeaderValue, info: &RequestInfo, user: &str, code: StatusCode, took: Duration) {
    // The level must be a constant, so the macro expands to one call per level.
    macro_rules! line {
        ($log:ident) => {
            tracing::$log!(
                id = id.to_str().unwrap_or_default(),
                method = info.method.as_str(),
                path = short_path(info),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A client could make every warning about its request 60 KB long.
    #[test]
    fn a_long_path_is_cut_in_the_log() {
        let line = format!("GET /api/v1/namespaces/{}", "a".repeat(60_000));
        assert_eq!(short_path(&RequestInfo::line(&line)).len(), PATH_BYTES_MAX);
        assert_eq!(short_path(&RequestInfo::line("GET /api/v1/pods")), "/api/v1/pods");
    }
}
