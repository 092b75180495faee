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

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.body[..self.body.len().min(1000)];
        write!(f, "{} {}", self.code, String::from_utf8_lossy(shown))
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

pub(crate) fn check(request: &Request, answer: &Answer) -> Result<()> {
    if request.method == "HEAD" || answer.code == 304 {
        ensure!(answer.body.is_empty(), "a body where none belongs");
        ensure!(answer.code < 500 || answer.code == 504, "its own fault");
        return Ok(());
    }
    if answer.headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding == "gzip") {
        ensure!(answer.body.starts_with(GZIP_MAGIC) && answer.code < 300, "neither packed nor plain");
        return Ok(());
    }
    let kind = answer.headers.get(CONTENT_TYPE).context("a media type")?.to_str()?;
    match answer.code {
        200..=299 if kind.starts_with("application/json") => documents(&answer.body),
        200..=299 if kind.starts_with("application/vnd.kubernetes.protobuf") => {
            let is_watch = kind.contains("stream=watch");
            ensure!(is_watch || answer.body.starts_with(PROTOBUF_MAGIC), "protobuf without its magic");
            Ok(())
        }
        200..=299 => Ok(()),
        // An unknown health check: these endpoints answer with plain text.
        404 if kind.starts_with("text/plain") && answer.body == "404 page not found\n" => Ok(()),
        _ => refusal(answer),
    }
}

/// Checks that a body is one document, or the events of a watch.
fn documents(body: &[u8]) -> Result<()> {
    for document in serde_json::Deserializer::from_slice(body).into_iter::<Value>() {
        let document = document.context("an answer that is not JSON")?;
        ensure!(document.is_object(), "a document is an object");
        if document["type"] == "ERROR" {
            let code = document["object"]["code"].as_u64().context("a code")?;
            status(&document["object"], u16::try_from(code)?)?;
        }
    }
    Ok(())
}

fn refusal(answer: &Answer) -> Result<()> {
    let kind = answer.headers.get(CONTENT_TYPE).context("a media type")?.to_str()?;
    let told: Value = match kind {
        kind if kind.starts_with("application/vnd.kubernetes.protobuf") => {
            protobuf::decode(&answer.body).context("a refusal that is not protobuf")?.value
        }
        kind if kind.starts_with("application/yaml") => {
            codec::decode(&answer.body, Syntax::Yaml).context("a refusal that is not YAML")?.value
        }
        _ => serde_json::from_slice(&answer.body).context("a refusal that is not JSON")?,
    };
    status(&told, answer.code)
}

fn status(told: &Value, code: u16) -> Result<()> {
    let text = |field: &str| told[field].as_str().unwrap_or_default();
    ensure!((text("kind"), text("apiVersion"), text("status")) == ("Status", "v1", "Failure"), "no Status");
    ensure!(told["code"] == code, "another code in its Status");
    let reasons = REASONS.iter().find(|(known, _)| *known == code).context("a code that is not expected")?.1;
    ensure!(reasons.contains(&text("reason")), "code {code} for the reason {:?}", text("reason"));
    ensure!(!text("message").is_empty(), "no message");
    Ok(())
}
