//! The rules that every response must keep.

use std::fmt;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use openapi::codec;
use openapi::codec::Syntax;
use openapi::codec::protobuf;
use serde_json::Value;

use crate::request::Request;

pub(crate) struct FuzzResponse {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl fmt::Debug for FuzzResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = &self.body[..self.body.len().min(1000)];
        write!(f, "{} {}", self.code, String::from_utf8_lossy(prefix))
    }
}

/// The status codes of errors and their reasons. The only valid code above 499 is the timeout for a version that does
/// not exist yet. Any other is a bug of the server.
const REASONS: &[(u16, &[&str])] = &[
    (400, &["BadRequest", ""]),
    (401, &["Unauthorized"]),
    (403, &["Forbidden"]),
    (404, &["NotFound"]),
    (405, &["MethodNotAllowed"]),
    (406, &["NotAcceptable"]),
    (409, &["AlreadyExists", "Conflict"]),
    (410, &["Expired", "Gone"]),
    (413, &["RequestEntityTooLarge"]),
    (415, &["UnsupportedMediaType"]),
    (422, &["Invalid", ""]),
    (504, &["Timeout"]),
];
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

pub(crate) fn check(request: &Request, response: &FuzzResponse) -> Result<()> {
    if request.method == "HEAD" || response.code == 304 {
        ensure!(response.body.is_empty(), "the response must not have a body");
        ensure!(response.code < 500 || response.code == 504, "an internal error");
        return Ok(());
    }
    if response.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
        ensure!(
            response.body.starts_with(GZIP_MAGIC) && response.code < 300,
            "not a gzip stream, or an error that is compressed"
        );
        return Ok(());
    }
    let kind = response.headers.get(CONTENT_TYPE).context("the response has no media type")?.to_str()?;
    match response.code {
        200..=299 if kind.starts_with("application/json") => check_documents(&response.body),
        200..=299 if kind.starts_with("application/vnd.kubernetes.protobuf") => {
            let is_watch = kind.contains("stream=watch");
            ensure!(is_watch || response.body.starts_with(PROTOBUF_MAGIC), "protobuf without its magic");
            Ok(())
        }
        200..=299 => Ok(()),
        // An unknown health check: these endpoints answer with plain text.
        404 if kind.starts_with("text/plain") && response.body == "404 page not found\n" => Ok(()),
        _ => check_error(response),
    }
}

/// Checks that a body is one document, or the events of a watch.
fn check_documents(body: &[u8]) -> Result<()> {
    for document in serde_json::Deserializer::from_slice(body).into_iter::<Value>() {
        let document = document.context("the body is not JSON")?;
        ensure!(document.is_object(), "the document is not an object");
        if document["type"] == "ERROR" {
            let code = document["object"]["code"].as_u64().context("the error has no code")?;
            check_status(&document["object"], u16::try_from(code)?)?;
        }
    }
    Ok(())
}

fn check_error(response: &FuzzResponse) -> Result<()> {
    let kind = response.headers.get(CONTENT_TYPE).context("the response has no media type")?.to_str()?;
    let status: Value = match kind {
        kind if kind.starts_with("application/vnd.kubernetes.protobuf") => {
            protobuf::decode(&response.body).context("the error is not protobuf")?.value
        }
        kind if kind.starts_with("application/yaml") => {
            codec::decode(&response.body, Syntax::Yaml).context("the error is not YAML")?.value
        }
        _ => serde_json::from_slice(&response.body).context("the error is not JSON")?,
    };
    check_status(&status, response.code)
}

fn check_status(status: &Value, code: u16) -> Result<()> {
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    ensure!(
        (text("kind"), text("apiVersion"), text("status")) == ("Status", "v1", "Failure"),
        "the error is not a Status"
    );
    ensure!(status["code"] == code, "the Status has another code");
    let reasons = REASONS.iter().find(|(expected, _)| *expected == code).context("unexpected status code")?.1;
    ensure!(reasons.contains(&text("reason")), "code {code} for the reason {:?}", text("reason"));
    ensure!(!text("message").is_empty(), "the Status has no message");
    Ok(())
}
