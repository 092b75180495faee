//! The deadline of a request.
//!
//! The deadline is one minute, or less if the request has a timeout. A watch has its own timeout. A request that exceeds its
//! deadline is dropped where it is, except a write of which the store has a part: it is finished, so the client has to
//! check. Only the deletion of a collection stops between two objects.

use std::time::Duration;

use api::meta::go;
use openapi::meta::status::Status;

use crate::request::info::RequestInfo;

/// The default and the maximum, as in Kubernetes.
const LIMIT: Duration = Duration::from_secs(60);

/// Awaits a response until the deadline.
pub(crate) async fn within<T>(
    info: &RequestInfo,
    answer: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match limit(info)? {
        None => answer.await,
        Some(limit) => tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(exceeded())),
    }
}

/// Returns the error for a request that took too long.
pub(crate) fn exceeded() -> Status {
    // Without Retry-After: a client that retries automatically might write twice.
    Status::timeout("request did not complete within the allotted timeout", 0)
}

fn limit(info: &RequestInfo) -> Result<Option<Duration>, Status> {
    if info.is_watch() {
        return Ok(None);
    }
    let seconds = match info.query.text("timeout") {
        "" => 0.0,
        text => go::parse_duration(text).map_err(|fault| {
            Status::bad_request(format!("invalid timeout specified in the request URL - {fault}"))
        })?,
    };
    // Zero and negative timeouts mean the default.
    Ok(Some(match seconds > 0.0 {
        true => Duration::from_secs_f64(seconds.min(LIMIT.as_secs_f64())),
        false => LIMIT,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_times_out_after_its_timeout_or_a_minute() {
        let check = |line: &str, expected: Result<Option<u64>, &str>| {
            let found =
                limit(&RequestInfo::line(line)).map(|limit| limit.map(|limit| limit.as_millis() as u64));
            let expected = expected.map_err(|fault| {
                Status::bad_request(format!("invalid timeout specified in the request URL - time: {fault}"))
            });
            assert_eq!(found, expected, "{line}");
        };
        check("GET /api/v1/pods", Ok(Some(60_000)));
        check("GET /api/v1/pods?watch=1&timeout=1s", Ok(None));
        check("GET /api?timeout=32s", Ok(Some(32_000)));
        check("GET /api?timeout=1m30s", Ok(Some(60_000)));
        check("GET /api?timeout=1.5s", Ok(Some(1_500)));
        check("GET /api?timeout=1s20ms", Ok(Some(1_020)));
        check("GET /api?timeout=0s", Ok(Some(60_000)));
        check("GET /api?timeout=0", Ok(Some(60_000)));
        check("GET /api?timeout=-1s", Ok(Some(60_000)));
        check(&format!("GET /api?timeout={}h", "9".repeat(400)), Ok(Some(60_000)));
        check("GET /api?timeout=bogus", Err("invalid duration \"bogus\""));
        check("GET /api?timeout=.s", Err("invalid duration \".s\""));
        check("GET /api?timeout=1s-", Err("unknown unit \"s-\" in duration \"1s-\""));
        check("GET /api?timeout=5", Err("missing unit in duration \"5\""));
        check("GET /api?timeout=5d", Err("unknown unit \"d\" in duration \"5d\""));
    }

    #[tokio::test]
    async fn a_request_past_its_timeout_gets_504() {
        let info = RequestInfo::line("GET /api/v1/pods?timeout=1ns");
        let answer = std::future::pending::<Result<(), Status>>();
        let status = within(&info, answer).await.unwrap_err();
        assert_eq!(status.code, 504);
        assert_eq!(status.message, "Timeout: request did not complete within the allotted timeout");
    }
}
